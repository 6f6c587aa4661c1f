"""Idleness: the user of an idle session is warned, and the session ends if it stays idle."""

from __future__ import annotations

from functools import partial

from mooring.clock import now
from mooring.coordination.fenced_database import FencedDatabase
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.lifetime.idleness import Step, idle_for_too_long
from mooring.store.commit import transitions
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.core.engine import Connection
from mooring.store.workloads import idleness


class IdlenessLoop:
    def __init__(self, database: FencedDatabase) -> None:
        self._database = database

    async def once(self) -> bool:
        async with self._database.read() as connection:
            due = await idleness.due(connection, now())
        notified = [session for session in due if session.step is not Step.END]
        over = [session for session in due if session.step is Step.END]
        if notified:
            await self._database.write(partial(self._notify, notified))
        if over:
            log_applied(await self._database.write(partial(self._end, over)))
        return False

    async def _notify(self, sessions: list[idleness.Session], connection: Connection, term: int) -> None:
        await idleness.mark(connection, sessions, actor="idleness", now=now(), term=term)

    async def _end(self, sessions: list[idleness.Session], connection: Connection, term: int) -> Applied:
        changes = [
            Change(task_id, TaskStatus.TERMINATING, idle_for_too_long(session.timeout_seconds))
            for session in sessions
            for task_id in session.task_ids
        ]
        return await transitions.apply(connection, changes, actor="idleness", now=now(), term=term)
