"""A node's folder that tenants' users can walk through, and a process runtime on it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from mooring.agent.node import limits
from mooring.agent.options import Options
from mooring.agent.runtimes.contract import Observed, RuntimeContext
from mooring.agent.runtimes.process.runtime import ProcessRuntime
from mooring.agent.runtimes.process.supervisor import record
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent.builders import DEADLINE_SECONDS
from tests.agent.fake_server import FakeServer

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root: another OS user is taken on")


@pytest.fixture
def node_folder() -> Iterator[Path]:
    # Not pytest's own temporary folder: that one is closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="mooring-agent-"))
    folder.chmod(0o711)
    yield folder
    _end_supervisors(folder)
    while _cgroups:
        _remove_cgroup(_cgroups.pop())
    shutil.rmtree(folder, ignore_errors=True)


_cgroups: list[Path] = []


def keep_cgroup_tidy(node_id: UUID) -> None:
    """Remove the node's cgroup when the test is over."""
    mount = limits.mount_point(Path("/proc/self/mountinfo").read_text())
    if mount is not None:
        _cgroups.append(mount / f"mooring-{node_id}")


def _remove_cgroup(base: Path) -> None:
    """Supervisors need a moment to end."""
    limit = time.monotonic() + DEADLINE_SECONDS
    while base.exists() and time.monotonic() < limit:
        for task in (path for path in base.iterdir() if path.is_dir()):
            limits.remove(task)
        limits.remove(base)
        time.sleep(0.005)


class Node:
    """A process runtime with a change to wait for."""

    def __init__(self, root: Path, node_id: UUID | None = None, **options: Any) -> None:
        self.root = root
        self.node_id = node_id or uuid4()
        self.changed = asyncio.Event()
        settings = Options(**{"scan_seconds": 0.5, "shared_work_root": root / "shared", **options})
        self.runtime = ProcessRuntime(RuntimeContext(root, self.node_id, settings, self.changed.set))
        if self.runtime._processes.cgroups is not None:
            _cgroups.append(self.runtime._processes.cgroups.base)

    def folder(self, task: DesiredTask) -> Path:
        return self.root / "tasks" / str(task.task_id)

    def state(self, task: DesiredTask) -> dict[str, Any]:
        return record.read(str(self.folder(task) / record.STATE)) or {}

    async def look(self, task: DesiredTask) -> Observed | None:
        return (await self.runtime.observe({task.task_id})).get(task.task_id)

    async def until(self, task: DesiredTask, status: str) -> Observed:
        """The observation once the task has come to the status."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                self.changed.clear()
                found = await self.look(task)
                if found is not None and found.status == status:
                    return found
                assert found is None or not found.ended, found
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), timeout=0.5)

    async def end(self, task: DesiredTask) -> Observed:
        """The observation once nothing of the task is left."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                self.changed.clear()
                found = await self.look(task)
                if found is not None and found.gone:
                    return found
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), timeout=0.5)

    async def run(self, task: DesiredTask) -> Observed:
        await self.runtime.start(task)
        return await self.end(task)

    async def output(self, task: DesiredTask, container: str = "main", tail: int | None = None, **times: Any) -> str:
        parts = [data async for data in self.runtime.logs(task.task_id, container, tail, False, **times)]
        return b"".join(parts).decode()


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    server = FakeServer()
    await server.start()
    keep_cgroup_tidy(server.node_id)
    yield server
    await server.stop()


@pytest.fixture
async def node(node_folder: Path) -> AsyncIterator[Node]:
    node = Node(node_folder)
    await node.runtime.open()
    yield node
    _end_supervisors(node_folder)
    for task_id, found in (await node.runtime.observe(set())).items():
        if not found.gone:
            await node.end(_Named(task_id))  # type: ignore[arg-type]
    await asyncio.sleep(0.02)
    await node.runtime.observe(set())
    await node.runtime.close()


class _Named:
    def __init__(self, task_id: UUID) -> None:
        self.task_id = task_id


def _end_supervisors(folder: Path) -> None:
    for path in folder.glob(f"tasks/*/{record.STATE}"):
        state = record.read(str(path)) or {}
        if record.start_time(state.get("pid", 0)) == state.get("start_time"):
            (path.parent / record.STOP).write_text('{"grace_seconds": 0, "cause": "requested"}')
            with suppress(ProcessLookupError):
                os.kill(state["pid"], signal.SIGTERM)
