"""Reports: the state of the leader's loops, stored so that every server can read it."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.coordination.fenced_database import FencedDatabase
from mooring.model.loops import LoopState
from mooring.store.control import loops
from mooring.store.core.engine import Connection


class ReportLoop:
    def __init__(self, database: FencedDatabase, states: Sequence[LoopState]) -> None:
        self._database = database
        self._states = states

    async def once(self) -> bool:
        async def work(connection: Connection, term: int) -> None:
            await loops.report(connection, self._states, server=self._database.holder, term=term)

        await self._database.write(work, notify=False)
        return False
