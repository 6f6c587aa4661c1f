"""Reports: what the leader's loops did, written where every server can read it."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.coordination.leadership import Office
from mooring.model.loops import LoopState
from mooring.store import leadership, loops
from mooring.store.engine import Connection, Database


class ReportLoop:
    def __init__(self, database: Database, office: Office, states: Sequence[LoopState]) -> None:
        self._database = database
        self._office = office
        self._states = states

    async def once(self) -> bool:
        async def work(connection: Connection) -> None:
            term = self._office.term
            await leadership.check_term(connection, term)
            await loops.report(connection, self._states, server=self._office.holder, term=term)

        await self._database.write(work, wakes=False)
        return False
