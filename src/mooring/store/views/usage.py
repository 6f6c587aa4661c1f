"""Reports: what was used in some days and by whom, and the records of workloads that ended in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Table, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import Sight
from mooring.model.accounting import By
from mooring.store.tables import domains, measured_buckets, projects, usage_buckets, users, workload_records
from mooring.store.views.sight import shown_to

_record = workload_records.c
# Use outlives its tenants.
_REMOVED = "(removed)"
_NAMES: Mapping[By, ColumnElement[str]] = {
    By.DOMAIN: func.coalesce(domains.c.name, _REMOVED),
    By.PROJECT: func.coalesce(domains.c.name + "/" + projects.c.name, _REMOVED),
    By.USER: func.coalesce(users.c.name, _REMOVED),
}


@dataclass(frozen=True, slots=True)
class UsageRow:
    name: str
    """A project with its domain before it."""
    slot: str
    amount_seconds: int
    """Base units times seconds, exact."""
    measured_seconds: int | None = None
    """How much of it was really used; None: nobody measured."""


async def usage(
    connection: AsyncConnection, by: By, since: datetime, until: datetime, *, sight: Sight, pool: str | None = None
) -> list[UsageRow]:
    """What was used on the days that begin in [since, until]."""
    chosen = _Buckets(by, since, until, sight, pool)
    # Multiplied here: the product may be larger than the numbers of a database.
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
    """Which days are summed up, and by what."""

    by: By
    since: datetime
    until: datetime
    sight: Sight
    pool: str | None

    def grouped(self, table: Table, summed: ColumnElement[int], *apart: ColumnElement[int]) -> Select[Any]:
        """Name, slot, sum, and what is kept apart."""
        own = table.c
        names: Mapping[By, ColumnElement[Any]] = {**_NAMES, By.POOL: own.pool, By.DAY: own.starts_at}
        name = names[self.by].label("name")
        seen = shown_to(self.sight, domain_id=domains.c.id, project_id=own.project_id, user_id=own.user_id)
        query = (
            select(name, own.slot_name, func.sum(summed), *apart)
            .outerjoin(projects, projects.c.id == own.project_id)
            .outerjoin(domains, domains.c.id == projects.c.domain_id)
            .outerjoin(users, users.c.id == own.user_id)
            .where(own.starts_at >= self.since, own.starts_at <= self.until, seen)
            .group_by(name, own.slot_name, *apart)
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
    """Workloads that ended in [since, until], the last first."""
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
    """Records know their tenants by name and outlive them: who got the name of a removed one later sees none of it."""
    if sight.everything:
        return []
    of_user = exists().where(
        users.c.id == sight.user_id, users.c.name == _record.username, users.c.created_at <= _record.created_at
    )
    of_domain = exists().where(
        domains.c.id == sight.domain_id, domains.c.name == _record.domain, domains.c.created_at <= _record.created_at
    )
    of_project = exists(
        select(projects.c.id)
        .join(domains, domains.c.id == projects.c.domain_id)
        .where(
            projects.c.id.in_(sight.project_ids),
            projects.c.name == _record.project,
            domains.c.name == _record.domain,
            projects.c.created_at <= _record.created_at,
        )
    )
    return [or_(of_user, of_domain, of_project)]
