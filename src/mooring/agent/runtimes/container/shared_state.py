"""State that the container tasks of a node share: the engine, images, networks and paths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from mooring.agent.options import Options
from mooring.agent.runtimes.container.engine import Engine, EngineUnavailable
from mooring.agent.runtimes.container.networks import Networks
from mooring.agent.runtimes.container.oom import MemoryWatch
from mooring.agent.runtimes.container.pulls import Images
from mooring.agent.runtimes.container.task_paths import TaskPaths

_CONCURRENT_STARTS = 4
"""Maximum number of containers that are created and started concurrently on a node."""


@dataclass(slots=True, kw_only=True)
class SharedState:
    """State that the tasks of a node share."""

    node_id: UUID
    options: Options
    paths: TaskPaths
    networks: Networks
    changed: Callable[[], None]
    term: Callable[[], int]
    memory_bytes: int
    memory: MemoryWatch = field(default_factory=MemoryWatch)
    engine: Engine | None = None
    fetcher: Images | None = None
    workloads: Callable[[], Iterator[UUID]] = lambda: iter(())
    """Workloads of all tasks that have not ended."""
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CONCURRENT_STARTS))

    def connected_engine(self) -> Engine:
        if self.engine is None:
            raise EngineUnavailable("the container engine of this node does not answer")
        return self.engine

    def images(self) -> Images:
        if self.fetcher is None:
            raise EngineUnavailable("the container engine of this node does not answer")
        return self.fetcher
