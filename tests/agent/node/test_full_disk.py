"""A node whose disk is full: tasks that cannot start say why, and the node says so until there is space again."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.agent.node.facts import measure
from mooring.wire.agents.agent_protocol import Heartbeat
from tests.agent.builders import eventually, order
from tests.agent.fake_server import FakeServer
from tests.agent.test_agent import make, running

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root: a small file system is mounted")
_NO_PERCENTAGE = 200.0
"""A disk of which figures never say that it is full, as with a quota."""


@pytest.fixture
def small_disk(node_folder: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    options = getattr(request, "param", "size=4m")
    mount = ["mount", "-t", "tmpfs", "-o", f"{options},mode=0711", "tmpfs", str(node_folder)]
    subprocess.run(mount, check=True, capture_output=True)
    yield node_folder
    subprocess.run(["umount", "-l", str(node_folder)], check=True, capture_output=True)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    return ballast


async def test_a_task_without_space_names_the_full_disk_and_so_does_the_node(server: FakeServer, small_disk: Path):
    task = order("true")
    async with running(make(server, small_disk, disk_full_percent=_NO_PERCENTAGE)):
        await eventually(lambda: server.of(Heartbeat))
        assert server.of(Heartbeat)[-1].problem is None
        ballast = fill(small_disk)
        await server.want(task)
        await eventually(server.ended(task))
        last = server.last(task)
        assert last is not None
        assert (last.status, last.code) == ("FAILED", "disk-full")
        assert "is full: No space left on device" in last.reason
        received = await eventually(lambda: [beat.problem for beat in server.of(Heartbeat) if beat.problem])
        assert received[0].startswith("disk full: nothing can be written")
        ballast.unlink()
        await eventually(lambda: server.of(Heartbeat)[-1].problem is None)


@pytest.mark.parametrize("small_disk", ["size=4m,nr_inodes=10"], indirect=True)
def test_a_disk_without_inodes_is_a_problem_though_it_has_space(small_disk: Path):
    assert measure([small_disk], 95.0).problem is None
    with contextlib.suppress(OSError):
        for number in range(10):
            (small_disk / str(number)).touch()
    problem = measure([small_disk], 95.0).problem
    assert problem is not None
    assert "100% of the inodes" in problem
