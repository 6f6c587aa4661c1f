"""Idleness: a session that nobody uses is told so, and ends if it goes on like this."""

from __future__ import annotations

from mooring.clock import now
from mooring.coordination.leadership import Office
from mooring.model.idleness import Step, idle_for_too_long
from mooring.model.lifecycle import TaskStatus
from mooring.store import idleness, leadership, transitions
from mooring.store.changes import Applied, Change
from mooring.store.engine import Connection, Database
from mooring.store.narration import narrate


class IdlenessLoop:
    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office

    async def once(self) -> bool:
        async with self._database.read() as connection:
            due = await idleness.due(connection, now())
        told = [session for session in due if session.step is not Step.END]
        over = [session for session in due if session.step is Step.END]
        if told:
            await self._database.write(lambda connection: self._tell(connection, told))
        if over:
            narrate(await self._database.write(lambda connection: self._end(connection, over)))
        return False

    async def _tell(self, connection: Connection, sessions: list[idleness.Session]) -> None:
        await leadership.check_term(connection, self._office.term)
        await idleness.mark(connection, sessions, actor="idleness", now=now(), term=self._office.term)

    async def _end(self, connection: Connection, sessions: list[idleness.Session]) -> Applied:
        await leadership.check_term(connection, self._office.term)
        changes = [
            Change(task_id, TaskStatus.TERMINATING, idle_for_too_long(session.timeout_seconds))
            for session in sessions
            for task_id in session.task_ids
        ]
        return await transitions.apply(connection, changes, actor="idleness", now=now(), term=self._office.term)
