"""A tenant who can write a host folder cannot have the engine mount another one, at no start of a container."""

from __future__ import annotations

import os
from pathlib import Path

from mooring.wire.agents.desired_tasks import DesiredTask, MountSpec, VolumeSpec
from tests.agent.builders import eventually
from tests.agent.runtimes.container.conftest import Node, container, order
from tests.engine import Engine
from tests.security.attacker import UID, act, needs_root, open_folder

pytestmark = needs_root


def mounting(folder: Path, script: str) -> DesiredTask:
    mounts = [MountSpec(volume="disk", path="/disk")]
    volumes = [VolumeSpec(name="disk", kind="host", path=str(folder))]
    containers = [container("sh", "-c", script, mounts=mounts)]
    return order(containers=containers, volumes=volumes, restart="on-failure", max_restarts=5)


async def test_a_container_that_is_started_again_gets_the_folder_of_its_first_start(engine: Engine, tmp_path: Path):
    with open_folder() as top:
        allowed, victim = top / "allowed", top / "victim"
        for folder in (allowed, victim):
            folder.mkdir()
        os.chown(allowed, UID, UID)
        (victim / "shadow").write_text("root's own")
        act(f"mkdir -m 777 {allowed}/folder")
        # The first run waits for the attacker; each run says what it finds.
        waits = "touch /disk/ran; while [ ! -e /disk/again ]; do sleep 0.1; done; exit 1"
        task = mounting(allowed / "folder", f"ls /disk; [ -e /disk/again ] && exit 0; {waits}")
        async with Node(tmp_path, engine, host_paths=(allowed,)) as node:
            await node.runtime.start(task)
            await eventually((allowed / "folder" / "ran").exists, "the first run")
            act(
                f"mv {allowed}/folder {allowed}/aside && ln -s {victim} {allowed}/folder && touch {allowed}/aside/again"
            )
            found = await node.end(task)
            said = (await node.output(task)).split()
        assert (found.status, found.restarts) == ("SUCCEEDED", 1)
        assert said == ["again", "ran"]
        assert sorted(path.name for path in (allowed / "aside").iterdir()) == ["again", "ran"]
        assert [path.name for path in victim.iterdir()] == ["shadow"]
    assert not pins(node)


def pins(node: Node) -> list[Path]:
    return list(Path("/run/mooring-mounts").glob(str(node.node_id)))
