"""Timeslots for display: lists, single timeslots, and the resolution of names for a principal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, String, Table, case, cast, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.timeslots import OVER, Timeslot, TimeslotKind
from mooring.model.tenancy.access import Sight, Target, own_work
from mooring.model.tenancy.tenants import Principal
from mooring.store.core import batch_sql
from mooring.store.core.types import AnyRow
from mooring.store.reservations.timeslots import as_timeslot
from mooring.store.tables import nodes, pools, projects, timeslot_places, timeslot_series, timeslots, users
from mooring.store.views.visibility import shown_to

_own = timeslots.c
_AT_ONCE = 1_000
"""Rows that are read at once: converting them keeps the event loop busy."""
_is_over = _own.status.in_(sorted(OVER))


@dataclass(frozen=True, slots=True)
class TimeslotRow:
    slot: Timeslot
    """The timeslot without its nodes; `placements` lists them by name."""
    user: str
    project: str
    reason: Mapping[str, Any] | None
    rule: str | None
    timezone: str | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    placements: Sequence[tuple[str, int]]
    """Existing nodes by name, each with the number of tasks that it has reserved capacity for."""
    users: Sequence[str]
    projects: Sequence[str]

    @property
    def target(self) -> Target:
        return Target(self.slot.domain_id, self.slot.project_id, self.slot.user_id)


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of timeslots; None does not restrict."""

    sight: Sight
    reservation_user: Principal | None = None
    """Include the timeslots that this principal may use."""
    maintenance: bool = True
    """Include maintenance timeslots, which affect everyone."""
    statuses: frozenset[str] | None = None
    kind: str | None = None
    pool: str | None = None
    series_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    """With `since`, the window that the timeslots overlap."""
    ended_since: datetime | None = None
    """Exclude timeslots that ended before this time."""


async def page(
    connection: AsyncConnection, selection: Selection, *, limit: int, offset: int
) -> tuple[list[TimeslotRow], int]:
    """Return one page of the selected timeslots in order of their start, and their total number.

    A page that is read in several parts needs a connection whose statements see the same state.
    """
    conditions = _conditions(selection)
    counted = select(func.count()).select_from(timeslots).join(pools, pools.c.id == _own.pool_id).where(*conditions)
    total = (await connection.execute(counted)).scalar_one()
    query = _timeslots().where(*conditions).order_by(_own.starts_at, _own.id)
    found: list[TimeslotRow] = []
    while len(found) < min(limit, total - offset):
        part = query.limit(min(_AT_ONCE, limit - len(found))).offset(offset + len(found))
        rows = (await connection.execute(part)).all()
        if not rows:
            break
        found += await _named(connection, rows)
    return found, int(total)


async def by_id(connection: AsyncConnection, timeslot_id: UUID) -> TimeslotRow | None:
    """Return a timeslot regardless of its owner."""
    rows = await connection.execute(_timeslots().where(_own.id == timeslot_id))
    return next(iter(await _named(connection, rows.all())), None)


async def by_name(connection: AsyncConnection, name: str, principal: Principal) -> TimeslotRow | None:
    """Return the timeslot that a name refers to: the principal's own before others, then the current or next one."""
    rows = await connection.execute(
        _timeslots().where(_own.name == name, used_by(principal)).order_by(*_first(principal)).limit(1)
    )
    return next(iter(await _named(connection, rows.all())), None)


async def usable(connection: AsyncConnection, principal: Principal, refs: Collection[str]) -> dict[str, Timeslot]:
    """Return the timeslots that the names and ids refer to and that the principal may run workloads in."""
    found: dict[str, Timeslot] = {}
    for ref in refs:
        query = _timeslots().where(_referred(ref))
        if not principal.is_admin or principal.by_keypair:
            query = query.where(used_by(principal))
        row = (await connection.execute(query.order_by(*_first(principal)).limit(1))).one_or_none()
        if row is not None:
            found[ref] = as_timeslot(row, {})
    return found


async def version_and_status(connection: AsyncConnection, timeslot_id: UUID) -> tuple[int, str] | None:
    """Return the version and status, which are all that a wait request checks."""
    rows = await connection.execute(select(_own.version, _own.status).where(_own.id == timeslot_id))
    row = rows.one_or_none()
    return None if row is None else (row.version, row.status)


def used_by(principal: Principal) -> ColumnElement[bool]:
    """Return the condition that the principal booked the timeslot, or that it or a project of it may use it."""
    granted = [cast(_own.users, String).contains(str(principal.user_id))]
    granted += [cast(_own.projects, String).contains(str(project_id)) for project_id in principal.projects]
    return or_(shown_to(own_work(principal), project_id=_own.project_id, user_id=_own.user_id), *granted)


def _referred(ref: str) -> ColumnElement[bool]:
    try:
        return _own.id == UUID(ref)
    except ValueError:
        return _own.name == ref


def _first(principal: Principal) -> list[ColumnElement[Any]]:
    """Return the order of timeslots with the same name.

    The principal's own come before others'. In each group, timeslots that are not over come first, by earliest start;
    the rest follow by latest start.
    """
    theirs = case((_own.user_id == principal.user_id, 0), else_=1)
    over = case((_is_over, 1), else_=0)
    return [theirs, over, case((_is_over, None), else_=_own.starts_at), _own.starts_at.desc(), _own.id]


def _conditions(selection: Selection) -> list[ColumnElement[bool]]:
    sight = shown_to(selection.sight, domain_id=_own.domain_id, project_id=_own.project_id, user_id=_own.user_id)
    shown = [sight] if selection.reservation_user is None else [sight, used_by(selection.reservation_user)]
    if selection.maintenance:
        shown.append(_own.kind == TimeslotKind.MAINTENANCE)
    conditions: list[ColumnElement[bool]] = [or_(*shown)]
    if selection.statuses is not None:
        conditions.append(_own.status.in_(sorted(selection.statuses)))
    if selection.kind is not None:
        conditions.append(_own.kind == selection.kind)
    if selection.pool is not None:
        conditions.append(pools.c.name == selection.pool)
    if selection.series_id is not None:
        conditions.append(_own.series_id == selection.series_id)
    if selection.since is not None:
        conditions.append(_own.ends_at > selection.since)
    if selection.until is not None:
        conditions.append(_own.starts_at < selection.until)
    if selection.ended_since is not None:
        conditions.append(or_(_own.ended_at.is_(None), _own.ended_at >= selection.ended_since))
    return conditions


def _timeslots() -> Select[Any]:
    return (
        select(
            timeslots,
            pools.c.name.label("pool_name"),
            users.c.name.label("user"),
            projects.c.name.label("project"),
            timeslot_series.c.rule,
            timeslot_series.c.timezone,
        )
        .join(pools, pools.c.id == _own.pool_id)
        .join(users, users.c.id == _own.user_id)
        .join(projects, projects.c.id == _own.project_id)
        .join(timeslot_series, timeslot_series.c.id == _own.series_id, isouter=True)
    )


async def _named(connection: AsyncConnection, rows: Sequence[AnyRow]) -> list[TimeslotRow]:
    """Return the rows with the names of nodes, users and projects, each kind read once for all rows."""
    placements: dict[UUID, list[tuple[str, int]]] = {row.id: [] for row in rows}
    found = await connection.execute(
        select(timeslot_places.c.timeslot_id, nodes.c.name, timeslot_places.c.tasks)
        .join(nodes, nodes.c.id == timeslot_places.c.node_id)
        .where(batch_sql.among(timeslot_places.c.timeslot_id, placements))
        .order_by(nodes.c.name)
    )
    for timeslot_id, node, number in found:
        placements[timeslot_id].append((node, number))
    slots = [as_timeslot(row, {}) for row in rows]
    usernames = await _names(connection, users, {id for slot in slots for id in slot.users})
    project_names = await _names(connection, projects, {id for slot in slots for id in slot.projects})
    return [
        TimeslotRow(
            slot,
            user=row.user,
            project=row.project,
            reason=row.reason,
            rule=row.rule,
            timezone=row.timezone,
            created_at=row.created_at,
            updated_at=row.updated_at,
            ended_at=row.ended_at,
            placements=placements[slot.id],
            users=sorted(usernames[id] for id in slot.users & usernames.keys()),
            projects=sorted(project_names[id] for id in slot.projects & project_names.keys()),
        )
        for row, slot in zip(rows, slots, strict=True)
    ]


async def _names(connection: AsyncConnection, table: Table, ids: Collection[UUID]) -> dict[UUID, str]:
    if not ids:
        return {}
    rows = await connection.execute(select(table.c.id, table.c.name).where(batch_sql.among(table.c.id, ids)))
    return {row.id: row.name for row in rows}
