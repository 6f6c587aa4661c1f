"""Measured use: counters that grow become averages, and the server is told of them now and then."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from mooring.agent.runtime import Measuring, Runtime
from mooring.agent.stream import Connection
from mooring.agent.use import Use
from mooring.model.errors import Unavailable
from mooring.wire.agent import Measures, TaskMeasure

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Meter:
    """Remembers what the processor had done for each task at the last look."""

    _looked_at: float | None = None
    _before: dict[UUID, int] = field(default_factory=dict)

    def measures(
        self, uses: Mapping[UUID, Use], now: float, network: Mapping[UUID, tuple[int, int]] | None = None
    ) -> list[TaskMeasure]:
        """`now` in seconds that only grow. What nobody saw the beginning of is told of from the next look on."""
        looked_at, self._looked_at = self._looked_at, now
        before, self._before = self._before, {task_id: use.cpu_microseconds or 0 for task_id, use in uses.items()}
        if looked_at is None:
            return []
        microseconds = max((now - looked_at) * 1_000_000, 1)
        found: list[TaskMeasure] = []
        for task_id, use in uses.items():
            spent = max(0, self._before[task_id] - before.get(task_id, 0))
            received, sent = (network or {}).get(task_id, (0, 0))
            found.append(
                TaskMeasure(
                    task_id=task_id,
                    cpu_millicores=round(spent * 1000 / microseconds),
                    memory_bytes=use.memory_bytes or 0,
                    read_bytes=use.read_bytes or 0,
                    written_bytes=use.written_bytes or 0,
                    received_bytes=received,
                    sent_bytes=sent,
                )
            )
        return found


async def measure_all(runtimes: Iterable[Runtime]) -> list[TaskMeasure]:
    """Of all tasks; a runtime that fails costs its own alone."""
    found: list[TaskMeasure] = []
    for runtime in runtimes:
        if isinstance(runtime, Measuring):
            try:
                found += await runtime.measures()
            except Exception:
                log.exception("measuring failed", runtime=runtime.name)
    return found


class Measurer:
    """Sends what is measured for as long as a connection lasts, also where nothing has changed."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        """The pause that the server wants; None: it wants no measures."""
        self._wanted = asyncio.Event()

    def be_guided(self, seconds: float | None) -> None:
        self.seconds = seconds
        if seconds is not None:
            self._wanted.set()
        else:
            self._wanted.clear()

    async def run(self, connection: Connection, runtimes: Iterable[Runtime]) -> None:
        """A little sooner each time, so that no two agents stay in step."""
        told = False
        try:
            while True:
                await self._wanted.wait()
                found = await measure_all(runtimes)
                # Once without any: what ended uses nothing any more.
                if found or told:
                    await connection.send(Measures(at=time.time(), tasks=found))
                told = bool(found)
                await asyncio.sleep((self.seconds or 0.0) * random.uniform(0.8, 1.0))
        except Unavailable:
            return
