"""Retention: what nobody asks for again is forgotten by age, a small batch at a time, each with a commit of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from mooring.clock import now
from mooring.coordination.leadership import Office
from mooring.store import agenda, feed, leadership, measured, purging, records, scale_requests, submissions, usage
from mooring.store.engine import Connection, Database

_Purge = Callable[[Connection, datetime, int], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept. What administrators did is kept for ever."""

    events: timedelta = timedelta(hours=24)
    submissions: timedelta = timedelta(hours=72)
    workloads: timedelta = timedelta(days=90)
    """Ended ones, with tasks, ledger rows, history and attempts; their records outlive them. Timeslots likewise."""
    history: timedelta = timedelta(days=365)
    """Also of what lives on."""
    records: timedelta = timedelta(days=730)
    usage: timedelta = timedelta(days=730)
    measures: timedelta = timedelta(hours=48)
    """What each task used minute by minute."""


class RetentionLoop:
    def __init__(self, database: Database, office: Office, retention: Retention) -> None:
        self._database = database
        self._office = office
        self._purges: tuple[tuple[_Purge, timedelta, int], ...] = (
            (feed.purge, retention.events, 10_000),
            (submissions.purge, retention.submissions, 1000),
            (purging.purge_workloads, retention.workloads, 500),
            (purging.purge_replaced_tasks, retention.workloads, 1000),
            (agenda.purge, retention.workloads, 1000),
            (purging.purge_history, retention.history, 5000),
            (scale_requests.purge, retention.history, 1000),
            (records.purge, retention.records, 5000),
            (usage.purge, retention.usage, 1),
            (measured.purge, retention.measures, 10_000),
        )

    async def once(self) -> bool:
        """A batch of each kind; True where something was old enough, so that there may be more."""
        at = now()
        gone = 0
        for purge, kept, most in self._purges:
            gone += await self._batch(purge, at - kept, most)
        return gone > 0

    async def _batch(self, purge: _Purge, before: datetime, most: int) -> int:
        async def work(connection: Connection) -> int:
            await leadership.check_term(connection, self._office.term)
            return await purge(connection, before, most)

        return await self._database.write(work)
