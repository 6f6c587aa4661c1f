"""Usage reports for a range of days, and the records of workloads that ended in a range."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Table, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.access import Sight
from mooring.model.tenancy.accounting import By
from mooring.store.tables import domains, measured_buckets, projects, usage_buckets, users, workload_records
from mooring.store.views.visibility import shown_to

_record = workload_records.c
# Usage is retained after its tenants are removed.
_REMOVED = "(removed)"
_NAMES: Mapping[By, ColumnElement[str]] = {
    By.DOMAIN: func.coalesce(domains.c.name, _REMOVED),
    By.PROJECT: func.coalesce(domains.c.name + "/" + projects.c.name, _REMOVED),
    By.USER: func.coalesce(users.c.name, _REMOVED),
}


@dataclass(frozen=True, slots=True)
class UsageRow:
    name: str
    """The name of the group; for a project, preceded by its domain's."""
    slot: str
    amount_seconds: int
    """Base units times seconds, exact."""
    measured_seconds: int | None = None
    """Measured usage in the same unit; None if there are no measurements."""


async def usage(
    connection: AsyncConnection, by: By, since: datetime, until: datetime, *, sight: Sight, pool: str | None = None
) -> list[UsageRow]:
    """Return the usage on the days that begin in [since, until], grouped by `by` and slot."""
    chosen = _Buckets(by, since, until, sight, pool)
    # Multiply in Python: the product may exceed the integers of a database.
    sums: dict[tuple[str | datetime, str], int] = defaultdict(int)
    given = await connection.execute(chosen.grouped(usage_buckets, usage_buckets.c.seconds, usage_buckets.c.amount))
    for found, slot, seconds, amount in given:
        sums[found, slot] += amount * int(seconds)
    measured = await connection.execute(chosen.grouped(measured_buckets, measured_buckets.c.amount_minutes))
    used = {(found, slot): int(minutes) * 60 for found, slot, minutes in measured}
    return [
        UsageRow(name if isinstance(name, str) else f"{name:%Y-%m-%d}", slot, total, used.get((name, slot)))
        for (name, slot), total in sorted(sums.items())
    ]


@dataclass(frozen=True, slots=True)
class _Buckets:
    """A filter of daily buckets, and the attribute that their sums are grouped by."""

    by: By
    since: datetime
    until: datetime
    sight: Sight
    pool: str | None

    def grouped(self, table: Table, summed: ColumnElement[int], *also_by: ColumnElement[int]) -> Select[Any]:
        """Return a query for name, slot, sum, and the columns `also_by`, which also group the sums."""
        own = table.c
        names: Mapping[By, ColumnElement[Any]] = {**_NAMES, By.POOL: own.pool, By.DAY: own.starts_at}
        name = names[self.by].label("name")
        seen = shown_to(self.sight, domain_id=domains.c.id, project_id=own.project_id, user_id=own.user_id)
        query = (
            select(name, own.slot_name, func.sum(summed), *also_by)
            .outerjoin(projects, projects.c.id == own.project_id)
            .outerjoin(domains, domains.c.id == projects.c.domain_id)
            .outerjoin(users, users.c.id == own.user_id)
            .where(own.starts_at >= self.since, own.starts_at <= self.until, seen)
            .group_by(name, own.slot_name, *also_by)
        )
        return query if self.pool is None else query.where(own.pool == self.pool)


@dataclass(frozen=True, slots=True)
class RecordRow:
    workload_id: UUID
    name: str
    kind: str
    type: str
    domain: str
    project: str
    username: str
    access_key: str
    pool: str
    priority: int
    tasks: int
    attempts: int
    requested_slots: Mapping[str, int]
    peak_slots: Mapping[str, int]
    nodes: Sequence[str]
    status: str
    reason: Mapping[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime
    wait_seconds: int
    run_seconds: int


async def records(
    connection: AsyncConnection,
    since: datetime,
    until: datetime,
    *,
    sight: Sight,
    limit: int,
    pool: str | None = None,
) -> list[RecordRow]:
    """Return the records of workloads that ended in [since, until], latest first."""
    query = (
        select(workload_records)
        .where(_record.ended_at >= since, _record.ended_at <= until, *_seen_records(sight))
        .order_by(_record.ended_at.desc(), _record.workload_id.desc())
        .limit(limit)
    )
    if pool is not None:
        query = query.where(_record.pool == pool)
    return [RecordRow(**row._mapping) for row in await connection.execute(query)]


def _seen_records(sight: Sight) -> list[ColumnElement[bool]]:
    """Return the conditions on visible records.

    Records name their tenants and outlive them. A new tenant with the name of a removed one must not see its records.
    """
    if sight.everything:
        return []
    of_user = exists().where(
        users.c.id == sight.user_id, users.c.name == _record.username, users.c.created_at <= _record.created_at
    )
    of_domain = exists().where(
        domains.c.id == sight.domain_id, domains.c.name == _record.domain, domains.c.created_at <= _record.created_at
    )
    of_project = exists(_named_as_recorded(projects.c.id.in_(sight.project_ids)))
    if sight.within is None:
        return [or_(of_user, of_domain, of_project)]
    in_project = exists(_named_as_recorded(projects.c.id == sight.within))
    return [or_(of_user & in_project, of_domain, of_project)]


def _named_as_recorded(those: ColumnElement[bool]) -> Select[Any]:
    """Return a query for the projects that the record can belong to: same names, created no later than the workload."""
    return (
        select(projects.c.id)
        .join(domains, domains.c.id == projects.c.domain_id)
        .where(
            those,
            projects.c.name == _record.project,
            domains.c.name == _record.domain,
            projects.c.created_at <= _record.created_at,
        )
    )
