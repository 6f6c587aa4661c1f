"""Timeslots as people see them: the list, one of them, and which a name means to whom."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, String, Table, case, cast, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import Sight, Target
from mooring.model.tenants import Principal
from mooring.model.timeslots import OVER, Timeslot, TimeslotKind
from mooring.store import sets
from mooring.store.tables import nodes, pools, projects, timeslot_places, timeslot_series, timeslots, users
from mooring.store.timeslots import as_timeslot
from mooring.store.types import AnyRow
from mooring.store.views.sight import shown_to

_own = timeslots.c
_is_over = _own.status.in_(sorted(OVER))


@dataclass(frozen=True, slots=True)
class TimeslotRow:
    slot: Timeslot
    """Without its places, which have names here."""
    user: str
    project: str
    reason: Mapping[str, Any] | None
    rule: str | None
    timezone: str | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    places: Sequence[tuple[str, int]]
    """Nodes that are there, with how many tasks have their room on each."""
    users: Sequence[str]
    projects: Sequence[str]

    @property
    def target(self) -> Target:
        return Target(self.slot.domain_id, self.slot.project_id, self.slot.user_id)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which timeslots are meant; None does not restrict."""

    sight: Sight
    guest: Principal | None = None
    """Also those that it may use."""
    maintenance: bool = True
    """Also what operators take, which concerns everybody."""
    statuses: frozenset[str] | None = None
    kind: str | None = None
    pool: str | None = None
    series_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Those that overlap this window."""
    ended_since: datetime | None = None
    """Leaves out what was over before."""


async def page(
    connection: AsyncConnection, selection: Selection, *, limit: int, offset: int
) -> tuple[list[TimeslotRow], int]:
    """Some of the selected timeslots by their start, and how many there are in all."""
    conditions = _conditions(selection)
    counted = select(func.count()).select_from(timeslots).join(pools, pools.c.id == _own.pool_id).where(*conditions)
    total = (await connection.execute(counted)).scalar_one()
    rows = await connection.execute(
        _timeslots().where(*conditions).order_by(_own.starts_at, _own.id).limit(limit).offset(offset)
    )
    return await _named(connection, rows.all()), int(total)


async def by_id(connection: AsyncConnection, timeslot_id: UUID) -> TimeslotRow | None:
    """Whosever it is."""
    rows = await connection.execute(_timeslots().where(_own.id == timeslot_id))
    return next(iter(await _named(connection, rows.all())), None)


async def by_name(connection: AsyncConnection, name: str, principal: Principal) -> TimeslotRow | None:
    """What a name means to the principal: of its own, else of those that it may use, what is in force or comes next."""
    rows = await connection.execute(
        _timeslots().where(_own.name == name, used_by(principal)).order_by(*_first(principal)).limit(1)
    )
    return next(iter(await _named(connection, rows.all())), None)


async def usable(connection: AsyncConnection, principal: Principal, refs: Collection[str]) -> dict[str, Timeslot]:
    """The timeslots that these names and ids mean, as far as the principal may run something in them."""
    found: dict[str, Timeslot] = {}
    for ref in refs:
        query = _timeslots().where(_referred(ref))
        if not principal.is_admin:
            query = query.where(used_by(principal))
        row = (await connection.execute(query.order_by(*_first(principal)).limit(1))).one_or_none()
        if row is not None:
            found[ref] = as_timeslot(row, {})
    return found


async def version_and_status(connection: AsyncConnection, timeslot_id: UUID) -> tuple[int, str] | None:
    """As much of a timeslot as a waiter looks at."""
    rows = await connection.execute(select(_own.version, _own.status).where(_own.id == timeslot_id))
    row = rows.one_or_none()
    return None if row is None else (row.version, row.status)


def used_by(principal: Principal) -> ColumnElement[bool]:
    """Whose booker it is, or who is named as one that may use it."""
    guests = [cast(_own.users, String).contains(str(principal.user_id))]
    guests += [cast(_own.projects, String).contains(str(project_id)) for project_id in principal.projects]
    return or_(_own.user_id == principal.user_id, *guests)


def _referred(ref: str) -> ColumnElement[bool]:
    try:
        return _own.id == UUID(ref)
    except ValueError:
        return _own.name == ref


def _first(principal: Principal) -> list[ColumnElement[Any]]:
    """One's own before others, what is not over before the rest: then what comes first, of what is over the last."""
    theirs = case((_own.user_id == principal.user_id, 0), else_=1)
    over = case((_is_over, 1), else_=0)
    return [theirs, over, case((_is_over, None), else_=_own.starts_at), _own.starts_at.desc(), _own.id]


def _conditions(selection: Selection) -> list[ColumnElement[bool]]:
    sight = shown_to(selection.sight, domain_id=_own.domain_id, project_id=_own.project_id, user_id=_own.user_id)
    shown = [sight] if selection.guest is None else [sight, used_by(selection.guest)]
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
    """With the names of nodes and guests, each asked for once for all rows."""
    places: dict[UUID, list[tuple[str, int]]] = {row.id: [] for row in rows}
    found = await connection.execute(
        select(timeslot_places.c.timeslot_id, nodes.c.name, timeslot_places.c.tasks)
        .join(nodes, nodes.c.id == timeslot_places.c.node_id)
        .where(sets.among(timeslot_places.c.timeslot_id, places))
        .order_by(nodes.c.name)
    )
    for timeslot_id, node, number in found:
        places[timeslot_id].append((node, number))
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
            places=places[slot.id],
            users=sorted(usernames[id] for id in slot.users & usernames.keys()),
            projects=sorted(project_names[id] for id in slot.projects & project_names.keys()),
        )
        for row, slot in zip(rows, slots, strict=True)
    ]


async def _names(connection: AsyncConnection, table: Table, ids: Collection[UUID]) -> dict[UUID, str]:
    if not ids:
        return {}
    rows = await connection.execute(select(table.c.id, table.c.name).where(sets.among(table.c.id, ids)))
    return {row.id: row.name for row in rows}
