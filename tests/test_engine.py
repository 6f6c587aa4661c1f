"""The tests' container engine itself: real, restartable, and gone without a trace."""

from pathlib import Path

import pytest

from tests.engine import BUSYBOX, running_engine


@pytest.mark.slow
def test_a_container_survives_its_engine_and_is_removed_with_the_tests():
    with running_engine() as engine:
        identity = engine.run("run", "--detach", "--name", "lasting", BUSYBOX, "sleep", "1000").strip()
        pid = int(engine.run("inspect", "--format", "{{.State.Pid}}", "lasting"))
        engine.restart()
        assert "lasting" in engine.containers()
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
    assert not engine.folder.exists()
    assert str(engine.folder) not in Path("/proc/self/mountinfo").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/*{identity}*"))
