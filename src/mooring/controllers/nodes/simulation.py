"""Simulated nodes: nothing runs on them. Their tasks take the steps that an agent would report, which makes a cluster
for experiments. Every interface marks them as simulated.

Labels of a workload give its simulated tasks a run time, an exit code and a load (`model.simulation`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from mooring.clock import now
from mooring.controllers.leadership.loops import Alarm, Iteration
from mooring.coordination.fenced_database import FencedDatabase
from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.simulation import Behaviour, behaviour_of
from mooring.store.commit import holds, transitions
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.locked_workloads import load
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.core.engine import Connection
from mooring.store.workloads import simulated_tasks
from mooring.store.workloads.simulated_tasks import Running

_NEXT = {
    TaskStatus.SCHEDULED: TaskStatus.RUNNING,
    TaskStatus.PREPARING: TaskStatus.RUNNING,
    TaskStatus.TERMINATING: TaskStatus.CANCELLED,
}
_MAX_CONCURRENT = 1500
_NO_BEHAVIOUR = Behaviour()


class SimulationLoop:
    def __init__(self, database: FencedDatabase) -> None:
        self._database = database
        self.alarm = Alarm()
        """The next end of a running task."""
        self._any_load = True
        """Some node may have a stored load, possibly one that an earlier leader stored."""
        self._any_behave = True
        """Some running task may have an end or a load; most have neither, and are not read each time."""

    async def once(self) -> Iteration:
        async with self._database.read() as connection:
            due = await simulated_tasks.steps(connection)
            running = await simulated_tasks.running(connection) if self._any_behave else []
            present = await simulated_tasks.load_percents(connection) if running or self._any_load else {}
        steps = due[:_MAX_CONCURRENT]
        begin_to_behave = any(step.behaves for step in steps)
        self._any_behave = bool(running) or begin_to_behave
        lost = [step.task_id for step in steps if step.status is TaskStatus.LOST]
        held = [step.task_id for step in steps if step.status is TaskStatus.RESERVED]
        changes = [Change(step.task_id, _NEXT[step.status]) for step in steps if step.status in _NEXT]
        ends = self._ends(running, now())[:_MAX_CONCURRENT]

        async def free(connection: Connection, _term: int) -> int:
            return await transitions.free_lost(connection, lost, now())

        moved = [*changes, *ends]
        ending = {change.task_id for change in ends}
        owners = {step.workload_id for step in steps} | {t.workload_id for t in running if t.task_id in ending}

        async def work(connection: Connection, term: int) -> Applied:
            # Lock order: all workloads before any task.
            loaded = await load(connection, workload_ids=owners, naming=[change.task_id for change in moved])
            await holds.mark_prepared(connection, held, now())
            return await transitions.apply(
                connection, moved, actor="simulation", now=now(), term=term, loaded=loaded, last=True
            )

        if lost:
            await self._database.write(free)
        if held or changes or ends:
            log_applied(await self._database.write(work))
        await self._show_loads(running, present)
        more = len(due) > _MAX_CONCURRENT or len(ends) == _MAX_CONCURRENT
        # Starts do not signal this loop, so it reads its own to learn when they end.
        return Iteration(more=more or begin_to_behave, announced=bool(due))

    def _ends(self, running: Sequence[Running], at: datetime) -> list[Change]:
        """Return the ends of the tasks that have run for their time, and set the alarm for the next one."""
        ends: list[Change] = []
        later: list[datetime] = []
        for task in running:
            behaviour = _behaviour(task.labels)
            if behaviour.seconds is None:
                continue
            end = task.started_at + timedelta(seconds=behaviour.seconds)
            if end <= at:
                ends.append(_end(task.task_id, behaviour.exit_code))
            else:
                later.append(end)
        self.alarm.set(*later)
        return ends

    async def _show_loads(self, running: Sequence[Running], present: Mapping[UUID, tuple[int, float]]) -> None:
        """Store the load of the nodes whose load changed."""
        used: dict[UUID, int] = defaultdict(int)
        for task in running:
            used[task.node_id] += task.cpu * _behaviour(task.labels).load_percent
        loads = {
            node_id: min(100.0, used[node_id] / capacity) if capacity else 0.0
            for node_id, (capacity, _) in present.items()
        }
        changed = {node_id: load for node_id, load in loads.items() if load != present[node_id][1]}
        if changed:
            await self._database.write(lambda connection, _: simulated_tasks.set_loads(connection, changed, now()))
        if present:
            self._any_load = any(loads.values())


def _behaviour(labels: Mapping[str, str]) -> Behaviour:
    try:
        return behaviour_of(labels)
    except InvalidInput:
        # Labels are validated at submission; invalid ones from an older version are ignored.
        return _NO_BEHAVIOUR


def _end(task_id: UUID, exit_code: int) -> Change:
    if exit_code == 0:
        return Change(task_id, TaskStatus.SUCCEEDED, exit_code=0)
    reason = Reason("exit-code", f"It ended with exit code {exit_code} (simulated)", "simulation", "change")
    return Change(task_id, TaskStatus.FAILED, reason, exit_code=exit_code)
