"""Measured usage: growing counters become averages, which are sent to the server periodically."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from msgspec import structs

from mooring.agent.connection.stream import Connection
from mooring.agent.node import gpus
from mooring.agent.node.usage_counters import Usage
from mooring.agent.runtimes.contract import Measuring, Runtime
from mooring.concurrency import backoff
from mooring.wire.agents.agent_protocol import Measures, TaskMeasure
from mooring.wire.agents.desired_tasks import DesiredTask

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Meter:
    """CPU time of each task at the last measurement."""

    _looked_at: float | None = None
    _before: dict[UUID, int] = field(default_factory=dict)

    def measures(
        self, uses: Mapping[UUID, Usage], now: float, network: Mapping[UUID, tuple[int, int]] | None = None
    ) -> list[TaskMeasure]:
        """Return averages since the last call; `now` is monotonic. A new task is included from the next call on."""
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
    """Return the usage of all tasks; a failing runtime affects only its own."""
    found: list[TaskMeasure] = []
    for runtime in runtimes:
        if isinstance(runtime, Measuring):
            try:
                found += await runtime.measures()
            except Exception:
                log.exception("measuring failed", runtime=runtime.name)
    return found


async def with_gpus(found: Sequence[TaskMeasure], tasks: Sequence[DesiredTask]) -> list[TaskMeasure]:
    """Return the measurements with the use of GPUs, if tasks have some."""
    if not found or not gpus.has_gpus(tasks):
        return list(found)
    uses = gpus.use_of_tasks(tasks, await asyncio.to_thread(gpus.gpu_use))
    return [
        measure
        if (use := uses.get(measure.task_id)) is None
        else structs.replace(measure, gpu_millidevices=use.millidevices, gpu_memory_bytes=use.memory_bytes)
        for measure in found
    ]


class Measurer:
    """Sends measurements while a connection lasts, even if nothing has changed."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        """Set the interval that the server wants; None: no measurements."""
        self._wanted = asyncio.Event()

    def apply_config(self, seconds: float | None) -> None:
        self.seconds = seconds
        if seconds is not None:
            self._wanted.set()
        else:
            self._wanted.clear()

    async def run(
        self, connection: Connection, runtimes: Iterable[Runtime], tasks: Callable[[], Sequence[DesiredTask]]
    ) -> None:
        """Send measurements with jitter, so that agents do not stay in step. `tasks`: the desired ones."""
        reported = False
        while True:
            await self._wanted.wait()
            found = await with_gpus(await measure_all(runtimes), tasks())
            # An empty report is sent once, so that ended tasks no longer count.
            if found or reported:
                await connection.send(Measures(at=time.time(), tasks=found))
            reported = bool(found)
            await asyncio.sleep(backoff.jittered(self.seconds or 0.0))
