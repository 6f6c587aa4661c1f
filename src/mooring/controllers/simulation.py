"""Simulated nodes: nothing runs there. Their tasks take the steps that an agent would report, so that a cluster is
there to play with; whoever shows them says that they are simulated."""

from __future__ import annotations

from mooring.clock import now
from mooring.controllers.loops import Turn
from mooring.coordination.leadership import Office
from mooring.model.lifecycle import TaskStatus
from mooring.store import holds, leadership, nodes, transitions
from mooring.store.changes import Applied, Change
from mooring.store.engine import Connection, Database
from mooring.store.loading import lock_owners
from mooring.store.narration import narrate

_NEXT = {
    TaskStatus.SCHEDULED: TaskStatus.RUNNING,
    TaskStatus.PREPARING: TaskStatus.RUNNING,
    TaskStatus.TERMINATING: TaskStatus.CANCELLED,
}
_MOST_AT_ONCE = 1500


class SimulationLoop:
    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office

    async def once(self) -> Turn:
        async with self._database.read() as connection:
            due = await nodes.simulated_steps(connection)
        steps = due[:_MOST_AT_ONCE]
        lost = [task_id for task_id, status in steps if status is TaskStatus.LOST]
        held = [task_id for task_id, status in steps if status is TaskStatus.RESERVED]
        changes = [Change(task_id, _NEXT[status]) for task_id, status in steps if status in _NEXT]

        async def free(connection: Connection) -> int:
            await leadership.check_term(connection, self._office.term)
            return await transitions.free_lost(connection, lost, now())

        async def work(connection: Connection) -> Applied:
            await leadership.check_term(connection, self._office.term)
            if held:
                # All workloads before any task, as everywhere.
                await lock_owners(connection, [task_id for task_id, _ in steps])
            await holds.note_prepared(connection, held, now())
            return await transitions.apply(connection, changes, actor="simulation", now=now(), term=self._office.term)

        if lost:
            await self._database.write(free)
        if held or changes:
            narrate(await self._database.write(work))
        return Turn(more=len(due) > _MOST_AT_ONCE, announced=bool(due))
