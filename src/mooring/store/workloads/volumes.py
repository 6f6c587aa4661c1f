"""Volumes: creation, lookup, removal and accounting.

While a volume has a row, its size counts as storage `used` by the project and its domain, and by its node once it has
one. The audit adds these rows to those of the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, case, delete, exists, func, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.model.lifecycle import SILENT
from mooring.model.resources.slots import slot_type
from mooring.model.tenancy.access import (
    EVERYTHING,
    Sight,
    Target,
    not_there,
)
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.volumes import STORAGE, VolumeStatus
from mooring.store.commit import tenant_usage
from mooring.store.control import events
from mooring.store.core import batch_sql
from mooring.store.core.ids import new_id
from mooring.store.core.inserts import insert_new
from mooring.store.core.types import AnyRow
from mooring.store.tables import (
    domains,
    nodes,
    pools,
    projects,
    tasks,
    users,
    volumes,
    workload_volumes,
    workloads,
)
from mooring.store.tenancy import admin_actions, quotas
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.views.visibility import shown_to

_own = volumes.c
SHARED_FOLDER = pools.c.options["shared_volumes"].as_string()
COUNT_ON_NODES = batch_sql.Statement(
    f"""
    UPDATE node_resources AS r SET used = r.used + i.bytes FROM {{rows}} i
    WHERE r.node_id = i.node_id AND r.slot_name = '{STORAGE}'
    """,
    {"node_id": "uuid", "bytes": "bigint"},
)
"""Statement that adds bytes to the used storage of nodes, which the caller has locked."""


@dataclass(frozen=True, slots=True)
class Volume:
    id: UUID
    name: str
    project_id: UUID
    project: str
    domain_id: UUID
    domain: str
    pool_id: UUID
    pool: str
    shared: bool
    size: int
    node_id: UUID | None
    node: str | None
    """Name of the node, even after the node was removed."""
    node_status: str | None
    created_by: UUID
    creator: str
    created_at: datetime
    removed_at: datetime | None
    mounted_by: int = 0
    """Number of live workloads that mount it."""

    @property
    def status(self) -> VolumeStatus:
        if self.removed_at is not None:
            return VolumeStatus.REMOVING
        if self.shared:
            return VolumeStatus.AVAILABLE
        if self.node_id is None:
            return VolumeStatus.UNPLACED if self.node is None else VolumeStatus.LOST
        return VolumeStatus.UNREACHABLE if self.node_status in SILENT else VolumeStatus.AVAILABLE

    @property
    def of_project(self) -> Target:
        return Target(self.domain_id, self.project_id)

    @property
    def target(self) -> Target:
        return Target(self.domain_id, self.project_id, self.created_by)

    @property
    def path(self) -> str:
        return f"{self.domain}/{self.project}/{self.name}"

    @property
    def state(self) -> admin_actions.State:
        return {
            "name": self.name,
            "project": self.project,
            "pool": self.pool,
            "size": slot_type(STORAGE).format(self.size),
            "shared": self.shared,
            "node": self.node,
        }


MAX_PER_PROJECT = 10_000
"""Maximum volumes of one project; each request may list all of them."""


async def create(
    connection: AsyncConnection,
    *,
    name: str,
    project_id: UUID,
    pool_id: UUID,
    size: int,
    shared: bool,
    actor: Actor,
    now: datetime,
) -> Volume:
    """Create a volume; raise Conflict if the name is taken in the project or a quota is exceeded."""
    assert actor.user_id is not None
    await _check_number(connection, project_id)
    values = {
        "id": new_id(),
        "name": name,
        "project_id": project_id,
        "pool_id": pool_id,
        "size": size,
        "shared": shared,
        "created_by": actor.user_id,
        "created_at": now,
    }
    if not await insert_new(connection, volumes, values):
        raise Conflict(f"the project has a volume {name!r} already", code="volume-exists")
    made = await find(connection, project_id, name)
    await _check_quota(connection, made, now)
    await _charge(connection, made, size, now)
    await admin_actions.record(connection, actor, "create", "volume", made.path, now=now, after=made.state)
    return made


async def _check_number(connection: AsyncConnection, project_id: UUID) -> None:
    query = select(func.count()).where(volumes.c.project_id == project_id)
    number = int((await connection.execute(query)).scalar_one())
    if number >= MAX_PER_PROJECT:
        raise Conflict(
            f"the project has {number:,} volumes, which is the limit; remove unused ones",
            code="too-many-volumes",
            details={"limit": MAX_PER_PROJECT, "present": number},
        )


async def _check_quota(connection: AsyncConnection, volume: Volume, now: datetime) -> None:
    counters = await tenant_usage.lock_rows(connection, [(*row, STORAGE) for row in _charged(volume)])
    tenants = [Tenant(Scope.PROJECT, str(volume.project_id)), Tenant(Scope.DOMAIN, str(volume.domain_id))]
    for tenant, limits in (await quotas.limits_of(connection, tenants, now)).items():
        limit = limits.amounts.get(STORAGE)
        used = sum(counters[tenant.scope.value, tenant.id, tenant_usage.ALL_POOLS, STORAGE])
        if limit is not None and used + volume.size > limit:
            written = slot_type(STORAGE).format
            raise Conflict(
                f"{tenant.scope} {limits.name!r} may use {written(limit)} {STORAGE}; {written(used)} are in use and"
                f" this volume has {written(volume.size)}",
                code=f"{tenant.scope}-quota-exceeded",
                details={"slot": STORAGE, "limit": limit, "used": used, "requested": volume.size},
            )


def _charged(volume: Volume) -> tuple[tuple[str, str, str], ...]:
    return tenant_usage.counters_of_project(volume.project_id, volume.domain_id, volume.pool)


async def _charge(connection: AsyncConnection, volume: Volume, size: int, now: datetime) -> None:
    writes = batch_sql.Writes.on(connection)
    tenant_usage.write_rows(writes, sorted((*row, STORAGE, 0, size) for row in _charged(volume)))
    usage_events = [events.NewEvent("tenant", id, 0, events.USAGE) for id in (volume.project_id, volume.domain_id)]
    events.add(writes, usage_events, now)
    await writes.execute(connection)


async def find(connection: AsyncConnection, project_id: UUID, name: str) -> Volume:
    """Return the volume of this name that is not being removed; raise NotFound if there is none."""
    this = and_(_own.project_id == project_id, _own.name == name, _own.removed_at.is_(None))
    row = (await connection.execute(_volumes().where(this))).one_or_none()
    if row is None:
        raise not_there(f"volume {name[:63]!r} in this project")
    return Volume(**row._mapping)


async def named(connection: AsyncConnection, project_ids: Collection[UUID], names: Collection[str]) -> list[Volume]:
    """Return the volumes of these names in these projects that are not being removed."""
    if not names:
        return []
    query = _volumes().where(_own.project_id.in_(project_ids), _own.name.in_(names), _own.removed_at.is_(None))
    return [Volume(**row._mapping) for row in await connection.execute(query)]


async def every(
    connection: AsyncConnection,
    *,
    project_ids: Collection[UUID] | None = None,
    domain_id: UUID | None = None,
    node: str | None = None,
) -> list[Volume]:
    """Return all volumes, or those of some projects and of a domain; with `node`, only those on that node."""
    seen: ColumnElement[bool] = true()
    if project_ids is not None:
        of_domain = () if domain_id is None else (projects.c.domain_id == domain_id,)
        seen = or_(_own.project_id.in_(project_ids), *of_domain)
    here = true() if node is None else _own.node_name == node
    query = _volumes().where(seen, here).order_by(domains.c.name, projects.c.name, _own.name, _own.created_at)
    return [Volume(**row._mapping) for row in await connection.execute(query)]


async def remove(
    connection: AsyncConnection, volume: Volume, *, sight: Sight = EVERYTHING, actor: Actor, now: datetime
) -> bool:
    """Remove a volume; return True if it is gone at once, False if agents must delete its contents first.

    Raise Conflict while it is mounted, with the names of those workloads that are within `sight`.
    """
    current = await _locked(connection, volume.id)
    if current is None or current.removed_at is not None:
        raise not_there(f"volume {volume.name!r} in this project")
    await _check_unused(connection, current, sight)
    await admin_actions.record(connection, actor, "remove", "volume", current.path, now=now, before=current.state)
    owners = await _volume_nodes(connection, current)
    if not owners:
        await _drop(connection, current, now)
        return True
    await connection.execute(update(volumes).where(_own.id == current.id).values(removed_at=now))
    await events.append(connection, [_node_event(*owner) for owner in owners], now)
    return False


async def _locked(connection: AsyncConnection, volume_id: UUID) -> Volume | None:
    """Lock a volume after its node, the lock order used everywhere, and return it."""
    node_id = await connection.scalar(select(_own.node_id).where(_own.id == volume_id))
    if node_id is not None:
        await connection.execute(select(nodes.c.id).where(nodes.c.id == node_id).with_for_update(key_share=True))
    await connection.execute(select(_own.id).where(_own.id == volume_id).with_for_update())
    row = (await connection.execute(_volumes().where(_own.id == volume_id))).one_or_none()
    return None if row is None else Volume(**row._mapping)


async def _check_unused(connection: AsyncConnection, volume: Volume, sight: Sight) -> None:
    # Unfreed tasks of an ended workload, on a node that does not respond, may still write to the volume.
    charged = tasks.c.node_id.is_not(None) & tasks.c.freed_at.is_(None)
    left = exists().where(tasks.c.workload_id == workloads.c.id, charged)
    mounting = (
        select(workloads.c.name, shown_to(sight).label("seen"))
        .join(workload_volumes, workload_volumes.c.workload_id == workloads.c.id)
        .where(workload_volumes.c.volume_id == volume.id, or_(workloads.c.ended_at.is_(None), left))
        .order_by(workloads.c.name)
    )
    rows = (await connection.execute(mounting)).all()
    if rows:
        names = [row.name for row in rows if row.seen]
        others = f"{len(rows)} workload{'s' if len(rows) > 1 else ''} of other users"
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        raise Conflict(
            f"volume {volume.name!r} is mounted by {f'{names[0]}{more}' if names else others};"
            " end the work that uses it first",
            code="volume-in-use",
            details={"workloads": names[:10], "number": len(rows)},
        )


async def _volume_nodes(connection: AsyncConnection, volume: Volume) -> list[tuple[UUID, int]]:
    """Return the nodes with an agent that can delete the contents, with their generations."""
    here = nodes.c.pool_id == volume.pool_id if volume.shared else nodes.c.id == volume.node_id
    rows = await connection.execute(
        select(nodes.c.id, nodes.c.generation).where(here, nodes.c.simulated.is_(False)).order_by(nodes.c.id)
    )
    return [(row.id, row.generation) for row in rows]


async def gone(connection: AsyncConnection, node_id: UUID, ids: Sequence[UUID], now: datetime) -> None:
    """Drop volumes that a node reports as deleted; only those that it was asked to delete are accepted."""
    for volume_id in sorted(set(ids) & {row.id for row in await to_delete(connection, node_id)}):
        volume = await _locked(connection, volume_id)
        if volume is not None and volume.removed_at is not None:
            await _drop(connection, volume, now)


async def to_delete(connection: AsyncConnection, node_id: UUID) -> list[AnyRow]:
    """Return the volumes that a node has to delete: id, project and, for a shared one, the pool's folder."""
    folder = case((_own.shared, SHARED_FOLDER)).label("folder")
    rows = await connection.execute(
        select(_own.id, _own.project_id, folder)
        .join(pools, pools.c.id == _own.pool_id)
        .join(nodes, or_(nodes.c.id == _own.node_id, and_(_own.shared, nodes.c.pool_id == _own.pool_id)))
        .where(nodes.c.id == node_id, _own.removed_at.is_not(None))
        .order_by(_own.id)
    )
    return list(rows)


async def detach_from_node(connection: AsyncConnection, node_id: UUID, now: datetime) -> None:
    """Detach the volumes of a locked node that is being removed, and notify workloads that mount them.

    Their contents are lost. Volumes being removed that no other node can delete are dropped.
    """
    lost = list((await connection.execute(select(_own.id).where(_own.node_id == node_id))).scalars())
    await connection.execute(update(volumes).where(_own.node_id == node_id).values(node_id=None))
    await events.append(connection, await mount_events(connection, lost), now)
    for volume_id in [*await _going(connection, lost), *await _going_with_the_last_node(connection, node_id)]:
        volume = await _locked(connection, volume_id)
        assert volume is not None
        await _drop(connection, volume, now)


async def _going(connection: AsyncConnection, ids: Collection[UUID]) -> list[UUID]:
    query = select(_own.id).where(batch_sql.among(_own.id, ids), _own.removed_at.is_not(None)).order_by(_own.id)
    return list((await connection.execute(query)).scalars())


async def _going_with_the_last_node(connection: AsyncConnection, node_id: UUID) -> list[UUID]:
    """Return the shared volumes being removed whose deletion no other node could report."""
    other = nodes.alias()
    able = exists().where(other.c.pool_id == _own.pool_id, other.c.id != node_id, other.c.simulated.is_(False))
    rows = await connection.execute(
        select(_own.id)
        .join(nodes, nodes.c.pool_id == _own.pool_id)
        .where(nodes.c.id == node_id, _own.shared, _own.removed_at.is_not(None), ~able)
        .order_by(_own.id)
    )
    return list(rows.scalars())


async def check_none_shared(connection: AsyncConnection, pool_id: UUID, pool: str) -> None:
    """Raise Conflict if the pool has shared volumes: they are bound to its current folder."""
    here = select(_own.name).where(_own.pool_id == pool_id, _own.shared).limit(1)
    name = await connection.scalar(here)
    if name is not None:
        raise Conflict(
            f"pool {pool!r} has shared volumes ({name!r} is one), which cannot be moved: remove them first",
            code="pool-has-volumes",
        )


async def number_on(connection: AsyncConnection, node_id: UUID) -> int:
    return int((await connection.execute(select(func.count()).where(_own.node_id == node_id))).scalar_one())


async def mount_events(connection: AsyncConnection, ids: Collection[UUID]) -> list[events.NewEvent]:
    """Return events for the live workloads that mount these volumes, whose nodes have changed."""
    mounting = select(workload_volumes.c.workload_id).where(batch_sql.among(workload_volumes.c.volume_id, ids))
    rows = await connection.execute(
        select(workloads.c.id, workloads.c.version)
        .where(workloads.c.id.in_(mounting), workloads.c.ended_at.is_(None))
        .order_by(workloads.c.id)
    )
    return [events.NewEvent("workload", row.id, row.version, "volumes", None, row.id) for row in rows]


def _node_event(node_id: UUID, generation: int) -> events.NewEvent:
    """Return the event that its agent has volumes to delete or that its counters have changed."""
    return events.NewEvent("node", node_id, generation, "volumes", node_id)


async def _drop(connection: AsyncConnection, volume: Volume, now: datetime) -> None:
    """Delete the row and subtract its size from all counters."""
    await connection.execute(delete(volumes).where(_own.id == volume.id))
    if volume.node_id is not None:
        writes = batch_sql.Writes.on(connection)
        writes.add(COUNT_ON_NODES, [(volume.node_id, -volume.size)], expected=1)
        generation = select(nodes.c.generation).where(nodes.c.id == volume.node_id)
        events.add(writes, [_node_event(volume.node_id, (await connection.execute(generation)).scalar_one())], now)
        await writes.execute(connection)
    await _charge(connection, volume, -volume.size, now)


def _volumes() -> Select[Any]:
    mounted = (
        select(func.count())
        .select_from(workload_volumes)
        .join(workloads, workloads.c.id == workload_volumes.c.workload_id)
        .where(workload_volumes.c.volume_id == _own.id, workloads.c.ended_at.is_(None))
        .correlate(volumes)
        .scalar_subquery()
    )
    return (
        select(
            _own.id,
            _own.name,
            _own.project_id,
            projects.c.name.label("project"),
            projects.c.domain_id,
            domains.c.name.label("domain"),
            _own.pool_id,
            pools.c.name.label("pool"),
            _own.shared,
            _own.size,
            _own.node_id,
            _own.node_name.label("node"),
            nodes.c.status.label("node_status"),
            _own.created_by,
            users.c.name.label("creator"),
            _own.created_at,
            _own.removed_at,
            mounted.label("mounted_by"),
        )
        .join(projects, projects.c.id == _own.project_id)
        .join(domains, domains.c.id == projects.c.domain_id)
        .join(pools, pools.c.id == _own.pool_id)
        .join(users, users.c.id == _own.created_by)
        .join(nodes, nodes.c.id == _own.node_id, isouter=True)
    )
