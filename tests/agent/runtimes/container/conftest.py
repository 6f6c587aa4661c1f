"""A container runtime on a folder of its own, with the session's engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from mooring.agent.options import Options
from mooring.agent.runtimes.container.runtime import ContainerRuntime
from mooring.agent.runtimes.contract import Observed, RuntimeContext
from mooring.wire.agents.desired_tasks import ContainerSpec, DesiredTask
from tests.agent import builders
from tests.agent.builders import DEADLINE_SECONDS
from tests.engine import BUSYBOX, Engine


def container(*command: str, name: str = "main", **changes: Any) -> ContainerSpec:
    return builders.container(*command, name=name, **{"image": BUSYBOX, "pull": "never", **changes})


def order(*command: str, **changes: Any) -> DesiredTask:
    """A task of busybox containers; any field can be given by name."""
    return builders.order(**{"containers": [container(*command)], **changes})


class Node:
    """A container runtime with a change to wait for."""

    def __init__(self, root: Path, engine: Engine, **options: Any) -> None:
        self.root = root
        self.engine = engine
        self.node_id = uuid4()
        self.changed = asyncio.Event()
        settings = Options(**{"engine": engine.socket, "container_networks": False, **options})
        self._context = RuntimeContext(root, self.node_id, settings, self.changed.set)
        self.runtime = ContainerRuntime(self._context)

    async def until(self, task: DesiredTask, status: str) -> Observed:
        """The observation once the task has come to the status."""
        found = await self.until_seen(task, lambda found: found.status == status or found.ended)
        assert found.status == status, found
        return found

    async def end(self, task: DesiredTask) -> Observed:
        """The observation once nothing of the task is left."""
        return await self.until_seen(task, lambda found: found.gone)

    async def until_seen(self, task: DesiredTask, condition: Callable[[Observed], bool]) -> Observed:
        return await self._until(task.task_id, condition)

    async def _until(self, task_id: UUID, condition: Callable[[Observed], bool]) -> Observed:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                self.changed.clear()
                found = (await self.runtime.observe({task_id})).get(task_id)
                if found is not None and condition(found):
                    return found
                await self.changed.wait()

    async def run(self, task: DesiredTask) -> Observed:
        await self.runtime.start(task)
        return await self.end(task)

    async def output(self, task: DesiredTask, container: str = "main", tail: int | None = None, **times: Any) -> str:
        parts = [data async for data in self.runtime.logs(task.task_id, container, tail, False, **times)]
        return b"".join(parts).decode()

    async def next_agent(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Another runtime takes the place of this one, which leaves its tasks as they are."""
        await self.runtime.close()
        meanwhile()
        self.runtime = ContainerRuntime(self._context)
        await self.runtime.open()

    async def __aenter__(self) -> Node:
        await self.runtime.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all tasks, then let go."""
        for task_id in await self.runtime.observe(set()):
            await self.runtime.stop(task_id, 0, "requested")
            await self._until(task_id, lambda found: found.gone)
        await self.runtime.close()


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Nothing that a container is to see may depend on it: servers and their agents have a strict one."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
async def node(engine: Engine, tmp_path: Path) -> AsyncIterator[Node]:
    async with Node(tmp_path, engine, host_paths=(tmp_path.parent, engine.folder)) as node:
        yield node
