"""Retention: old rows are deleted by age, in small batches with a commit each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from mooring.clock import now
from mooring.coordination.fenced_database import FencedDatabase
from mooring.store.accounting import (
    ended_workloads,
    measured_usage,
    purging,
    usage,
)
from mooring.store.control import feed
from mooring.store.core.engine import Connection
from mooring.store.nodes import defragmentation_plans
from mooring.store.reservations import due_timeslots
from mooring.store.scaling import scale_requests
from mooring.store.tenancy import admin_actions, login_codes, logins
from mooring.store.workloads import idempotency

_Purge = Callable[[Connection, datetime, int], Awaitable[int]]


_EXPIRED = timedelta(hours=1)
"""Logins are deleted this long after their last token expired: clocks of servers differ a little."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention times. Records of administrators' actions are retained indefinitely."""

    events: timedelta = timedelta(hours=24)
    submissions: timedelta = timedelta(hours=72)
    workloads: timedelta = timedelta(days=90)
    """Ended workloads with their tasks, ledger rows, history and attempts, and timeslots. `records` outlive them."""
    history: timedelta = timedelta(days=365)
    """Includes the history of objects that still exist."""
    records: timedelta = timedelta(days=730)
    usage: timedelta = timedelta(days=730)
    measures: timedelta = timedelta(hours=48)
    """Measured usage of each task by the minute."""
    logins: timedelta = timedelta(days=90)


class RetentionLoop:
    def __init__(self, database: FencedDatabase, retention: Retention) -> None:
        self._database = database
        self._purges: tuple[tuple[_Purge, timedelta, int], ...] = (
            (feed.purge, retention.events, 10_000),
            (idempotency.purge, retention.submissions, 1000),
            (purging.purge_workloads, retention.workloads, 500),
            (purging.purge_replaced_tasks, retention.workloads, 1000),
            (due_timeslots.purge, retention.workloads, 1000),
            (purging.purge_history, retention.history, 5000),
            (scale_requests.purge, retention.history, 1000),
            (defragmentation_plans.purge, retention.history, 1000),
            (ended_workloads.purge, retention.records, 5000),
            (usage.purge, retention.usage, 1),
            (measured_usage.purge, retention.measures, 10_000),
            (admin_actions.purge_logins, retention.logins, 5000),
            (logins.purge, _EXPIRED, 5000),
            (login_codes.purge, _EXPIRED, 5000),
        )

    async def once(self) -> bool:
        """Delete a batch of each kind. Return True if any row was old enough, since there may be more."""
        at = now()
        gone = 0
        for purge, retention, limit in self._purges:
            gone += await self._batch(purge, at - retention, limit)
        return gone > 0

    async def _batch(self, purge: _Purge, before: datetime, limit: int) -> int:
        return await self._database.write(lambda connection, _: purge(connection, before, limit))
