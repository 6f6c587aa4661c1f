"""Node templates: the kinds of nodes that can be added to pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.nodes.node_templates import NodeTemplate, ScaleRequestStatus
from mooring.model.tenancy.access import not_there
from mooring.store.control import events
from mooring.store.core.types import AnyRow
from mooring.store.nodes import pools
from mooring.store.nodes.pools import Pool
from mooring.store.tables import node_templates, scale_requests
from mooring.store.tables import pools as pools_table
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor

_NOUN = "node-template"
_KEYS = ("name", "pool")
"""Fields with columns of their own."""


@dataclass(frozen=True, slots=True)
class StoredTemplate:
    template: NodeTemplate
    version: int

    @property
    def state(self) -> Mapping[str, Any]:
        return _encoded(self.template)


async def of_pool(connection: AsyncConnection, pool: str) -> list[StoredTemplate]:
    rows = await connection.execute(_select().where(pools_table.c.name == pool))
    return [_stored(row) for row in rows]


async def by_pool(connection: AsyncConnection) -> dict[str, list[NodeTemplate]]:
    """Return the templates of all pools that have any."""
    found: dict[str, list[NodeTemplate]] = {}
    for row in await connection.execute(_select()):
        found.setdefault(row.pool, []).append(_stored(row).template)
    return found


async def put(connection: AsyncConnection, template: NodeTemplate, *, actor: Actor, now: datetime) -> StoredTemplate:
    """Create or replace a template. Refused requests for it expire, so that its nodes are requested again."""
    pool = await _pool(connection, template.pool)
    before = await _find(connection, template.pool, template.name)
    after = StoredTemplate(template, 1 if before is None else before.version + 1)
    values = {"template": dict(after.state), "version": after.version}
    path = f"{template.pool}/{template.name}"
    if before is None:
        await connection.execute(
            insert(node_templates).values(pool_id=pool.id, name=template.name, created_at=now, **values)
        )
        await admin_actions.created(connection, actor, _NOUN, path, after, now)
    else:
        this = (node_templates.c.pool_id == pool.id) & (node_templates.c.name == template.name)
        await connection.execute(update(node_templates).where(this).values(**values))
        await admin_actions.changed(connection, actor, _NOUN, path, before, after, now)
    await connection.execute(
        update(scale_requests)
        .where(
            scale_requests.c.pool_id == pool.id,
            scale_requests.c.template == template.name,
            scale_requests.c.status == ScaleRequestStatus.REFUSED,
            scale_requests.c.expires_at > now,
        )
        .values(expires_at=now, version=scale_requests.c.version + 1)
    )
    await _notify(connection, pool, now)
    return after


async def remove(connection: AsyncConnection, pool_name: str, name: str, *, actor: Actor, now: datetime) -> None:
    """Remove a template: its nodes and the open requests for them stay, but no more are requested."""
    pool = await _pool(connection, pool_name)
    before = await _find(connection, pool_name, name)
    if before is None:
        raise not_there(f"template {name[:63]!r} in pool {pool_name!r}")
    await connection.execute(
        delete(node_templates).where(node_templates.c.pool_id == pool.id, node_templates.c.name == name)
    )
    await admin_actions.removed(connection, actor, _NOUN, f"{pool_name}/{name}", before, now)
    await _notify(connection, pool, now)


async def _pool(connection: AsyncConnection, name: str) -> Pool:
    await pools.lock(connection, name)
    found = await pools.by_name(connection, name)
    if found is None:
        raise not_there(f"pool {name[:63]!r}")
    return found


async def _find(connection: AsyncConnection, pool: str, name: str) -> StoredTemplate | None:
    return next((stored for stored in await of_pool(connection, pool) if stored.template.name == name), None)


async def _notify(connection: AsyncConnection, pool: Pool, now: datetime) -> None:
    await events.append(connection, [events.NewEvent("pool", pool.id, pool.version, "templates")], now)


def _select() -> Select[Any]:
    return (
        select(node_templates, pools_table.c.name.label("pool"))
        .join(pools_table, pools_table.c.id == node_templates.c.pool_id)
        .order_by(pools_table.c.name, node_templates.c.name)
    )


def _stored(row: AnyRow) -> StoredTemplate:
    template = msgspec.convert({**row.template, "name": row.name, "pool": row.pool}, NodeTemplate)
    return StoredTemplate(template, row.version)


def _encoded(template: NodeTemplate) -> dict[str, Any]:
    encoded: dict[str, Any] = msgspec.to_builtins(template)
    encoded["runtimes"] = sorted(template.runtimes)
    return {name: value for name, value in encoded.items() if name not in _KEYS}
