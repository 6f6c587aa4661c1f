"""Measured use of the tasks of this server's agents: the newest in memory, averages in the database once a minute."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import structlog

from mooring.api.agents.agent_session import AgentSession
from mooring.clock import now
from mooring.coordination.outage import Outage
from mooring.model.errors import InvalidInput
from mooring.model.workloads.lifetime.idleness import is_active
from mooring.store.accounting import measured_usage
from mooring.store.core.engine import (
    DISK_FULL,
    Database,
    is_disk_full,
    is_temporary,
)
from mooring.telemetry import metrics
from mooring.wire.agents.agent_protocol import Measures, TaskMeasure

_log = structlog.get_logger(__name__)
_ITERATION_SECONDS, _ITERATION_BEATS = 10.0, 2
"""Interval between two writes, or this many heartbeats if those are more frequent."""
_ITERATIONS_PER_AVERAGE = 6
_MISSED = 2
"""A measurement covers at most this many intervals; the rest of a longer gap counts as not measured."""
_RETENTION = timedelta(minutes=10)
_MAX_CORES, _MAX_BYTES, _MAX_COUNTED = 10**9, 2**50, 2**62
_WRITTEN_AT_ZERO = measured_usage.COUNTED | {"gpu", "gpu-memory"}
_FLOWS = ("read", "written", "received", "sent")


@dataclass(slots=True)
class Measured:
    """A task as it was measured last."""

    node_id: UUID
    measured_at: datetime
    amounts: dict[str, int]
    """Slot to amount; of `read`, `written`, `received` and `sent` bytes per second, once two measures tell."""
    counters: tuple[int, ...]
    """Bytes since its start, in the order of the flows."""


@dataclass(slots=True)
class _Sums:
    """Since the last averages were written: amounts times seconds."""

    last: Measured
    seconds: float = 0.0
    amounts: dict[str, float] = field(default_factory=dict)

    def add(self, measured: Measured, seconds: float) -> None:
        self.last = measured
        self.seconds += seconds
        for slot, amount in measured.amounts.items():
            self.amounts[slot] = self.amounts.get(slot, 0.0) + amount * seconds


class MeasuredUse:
    def __init__(self) -> None:
        self._newest: dict[UUID, Measured] = {}
        self._sums: dict[UUID, _Sums] = {}
        self._active: dict[UUID, datetime] = {}
        self._accessing: Counter[UUID] = Counter()

    @property
    def newest(self) -> Mapping[UUID, Measured]:
        return self._newest

    def take(self, session: AgentSession, message: Measures, *, pool: str = "") -> None:
        """Accept measurements of the tasks assigned to the node of the agent, and no others."""
        for measure in message.tasks:
            _check(measure)
        at = now()
        orders = session.last_desired
        own = {task.task_id for task in orders.tasks if task.action == "run"} if orders is not None else set()
        measured = {measure.task_id: measure for measure in message.tasks if measure.task_id in own}
        welcome = session.last_welcome
        usual_seconds = (welcome.measure_seconds if welcome is not None else None) or _ITERATION_SECONDS
        for task_id, measure in measured.items():
            self._take(session.node_id, task_id, measure, at, usual_seconds)
        for slot in measured_usage.COUNTED:
            total = sum(self._newest[task_id].amounts[slot] for task_id in measured)
            metrics.measured.labels(pool, session.node_name, slot).set(total)

    def forget(self, session: AgentSession, *, pool: str = "") -> None:
        """The agent is gone: another server may know more about its node by now."""
        self._newest = {id: newest for id, newest in self._newest.items() if newest.node_id != session.node_id}
        for slot in measured_usage.COUNTED:
            with contextlib.suppress(KeyError):
                metrics.measured.remove(pool, session.node_name, slot)

    @contextlib.contextmanager
    def accessing(self, task_id: UUID) -> Iterator[None]:
        """Count a channel into the task while the block runs: the task is active until the last one closes."""
        self._accessing[task_id] += 1
        try:
            yield
        finally:
            self._accessing[task_id] -= 1
            if not self._accessing[task_id]:
                del self._accessing[task_id]
            self._active[task_id] = now()

    async def write_periodically(self, database: Database, heartbeat_seconds: float) -> None:
        """Write the new measurements of all agents together, indefinitely, without a signal."""
        outage = Outage("The database", "measured usage is not recorded")
        iteration = 0
        while True:
            await asyncio.sleep(min(_ITERATION_SECONDS, _ITERATION_BEATS * heartbeat_seconds))
            iteration += 1
            try:
                await self.write(database, averages=iteration % _ITERATIONS_PER_AVERAGE == 0)
                outage.over()
            except Exception as error:
                if is_disk_full(error):
                    _log.error(f"Cannot store measured usage: {DISK_FULL}; trying again with the next measurements")
                    continue
                outage.failed(error)
                if not is_temporary(error):
                    _log.exception("Cannot write what was measured; trying again with the next measurements")

    async def write(self, database: Database, *, averages: bool = True) -> None:
        active = {**self._active, **dict.fromkeys(self._accessing, now())}
        self._active = {}
        rows = self._averages() if averages else []
        if active or rows:
            await database.write(partial(measured_usage.write, averages=rows, active=active), notify=False)

    def _take(self, node_id: UUID, task_id: UUID, measure: TaskMeasure, at: datetime, usual_seconds: float) -> None:
        before = self._newest.get(task_id)
        seconds = usual_seconds if before is None else max((at - before.measured_at).total_seconds(), 0.0)
        amounts = {"cpu": measure.cpu_millicores, "memory": measure.memory_bytes}
        if measure.gpu_millidevices is not None:
            amounts["gpu"] = measure.gpu_millidevices
        if measure.gpu_memory_bytes is not None:
            amounts["gpu-memory"] = measure.gpu_memory_bytes
        counters = _counters(measure)
        if before is not None and seconds > 0:
            flows = zip(_FLOWS, counters, before.counters, strict=True)
            amounts |= {flow: round(max(0, new - old) / seconds) for flow, new, old in flows}
        self._newest[task_id] = newest = Measured(node_id, at, amounts, counters)
        self._sums.setdefault(task_id, _Sums(newest)).add(newest, min(seconds, _MISSED * usual_seconds))
        if is_active(amounts["cpu"], sum(amounts.get(flow, 0) for flow in _FLOWS)):
            self._active[task_id] = at

    def _averages(self) -> list[measured_usage.Average]:
        """The averages since the last call; tasks without recent measurements are dropped."""
        sums, self._sums = self._sums, {}
        since = now() - _RETENTION
        self._newest = {id: newest for id, newest in self._newest.items() if newest.measured_at > since}
        return [
            measured_usage.Average(
                task_id, own.last.node_id, own.last.measured_at, slot, amount, max(1, round(own.seconds))
            )
            for task_id, own in sums.items()
            if own.seconds > 0
            for slot, total in own.amounts.items()
            if (amount := round(total / own.seconds)) or slot in _WRITTEN_AT_ZERO
        ]


def _counters(measure: TaskMeasure) -> tuple[int, ...]:
    return (measure.read_bytes, measure.written_bytes, measure.received_bytes, measure.sent_bytes)


def _check(measure: TaskMeasure) -> None:
    if (
        not 0 <= measure.cpu_millicores <= _MAX_CORES
        or not 0 <= measure.memory_bytes <= _MAX_BYTES
        or not 0 <= (measure.gpu_millidevices or 0) <= _MAX_CORES
        or not 0 <= (measure.gpu_memory_bytes or 0) <= _MAX_BYTES
        or not all(0 <= counter <= _MAX_COUNTED for counter in _counters(measure))
    ):
        raise InvalidInput("the agent reports an impossible usage of a task: negative, or more than a machine can have")
