"""A run keeps what is needed to understand a violation, and gives up only where nothing moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers import private_folder
from tests.system.faults import run as running
from tests.system.faults.checker import Violation
from tests.system.faults.cluster import Cluster, Daemon
from tests.system.servers import eventually

SPEAKS = ("/bin/sh", "-c", "echo it said this; exec sleep 60")


def test_the_logs_of_all_parts_are_retained_after_a_violation_and_the_report_names_their_folder() -> None:
    with private_folder("mooring-test-") as folder:
        cluster = Cluster(folder, 0)
        cluster.add("part", Daemon(SPEAKS, folder, "part"))
        try:
            eventually(lambda: "it said this" in cluster.parts["part"].log)
            quiet = running.Report(7, 1.0)
            running._keep_logs(cluster, quiet, ["a fault"], None, failed=False)
            assert quiet.logs is None
            report = running.Report(7, 1.0, violations=[Violation("rest", "it rests not")])
            running._keep_logs(cluster, report, ["a fault"], None, failed=False)
        finally:
            cluster.end()
    assert report.logs is not None
    try:
        assert (report.logs / "part.txt").read_text().strip() == "it said this"
        assert "a fault" in (report.logs / "run.txt").read_text()
        assert f"logs                 {report.logs}" in list(report.lines())
    finally:
        _remove(report.logs)


def test_a_run_waits_while_there_is_progress_and_no_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = 0.0

    def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds

    monkeypatch.setattr("tests.system.faults.run.time.monotonic", lambda: clock)
    monkeypatch.setattr("tests.system.faults.run.time.sleep", sleep)
    cluster = Cluster(tmp_path, 0)
    steps = 4 * running._STALLED_POLLS * running._POLL_SECONDS
    assert running._wait_until_idle(cluster, lambda: [] if clock > steps else ["slow"], lambda: int(clock / 100)) == []
    stuck_at = clock
    assert running._wait_until_idle(cluster, lambda: ["stuck"], lambda: None) == ["stuck"]
    polls = (clock - stuck_at) / running._POLL_SECONDS
    assert polls == pytest.approx(running._STALLED_POLLS, abs=1)


def _remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
