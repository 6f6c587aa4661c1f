"""Join tokens: single-use credentials with which an agent joins. Only the hash of a token is stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict, InvalidInput, NotAllowed, NotFound
from mooring.model.workloads.constraints import Taint
from mooring.store.core.constraint_columns import decode_taints, encode_taints
from mooring.store.tables import join_tokens, pools
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor

# Retention of expired tokens, so that using one is answered with the exact reason.
_REMEMBERED = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class JoinGrant:
    """Permission carried by a token: to join this pool under this name."""

    node_name: str
    pool_id: UUID
    pool: str
    region: str | None
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    created_by: UUID


async def create(
    connection: AsyncConnection,
    *,
    node_name: str,
    pool: str,
    created_by: UUID,
    expires_at: datetime,
    now: datetime,
    region: str | None = None,
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    actor: Actor = admin_actions.SERVER,
) -> str:
    """Create a token and return its text, which is shown once and cannot be recovered."""
    found = (await connection.execute(select(pools.c.id, pools.c.simulated).where(pools.c.name == pool))).one_or_none()
    if found is None:
        raise NotFound(f"there is no pool {pool!r}", code="unknown-pool")
    if found.simulated:
        raise InvalidInput(
            f"pool {pool!r} is simulated, and a real node cannot join it; name another pool", code="pool-is-simulated"
        )
    token = "mj-" + secrets.token_urlsafe(32)
    await connection.execute(delete(join_tokens).where(join_tokens.c.expires_at < now - _REMEMBERED))
    await connection.execute(
        insert(join_tokens).values(
            token_hash=_hash(token),
            node_name=node_name,
            pool_id=found.id,
            region=region,
            labels=dict(labels or {}),
            taints=encode_taints(taints),
            created_by=created_by,
            created_at=now,
            expires_at=expires_at,
        )
    )
    granted = {"pool": pool, "region": region, "labels": dict(labels or {}), "expires_at": expires_at.isoformat()}
    await admin_actions.record(connection, actor, "create", "join-token", node_name, now=now, after=granted)
    return token


async def consume(connection: AsyncConnection, token: str, now: datetime, *, node_name: str | None = None) -> JoinGrant:
    """Use up a token. If `node_name` is given, it must be the name the token was created for."""
    this = join_tokens.c.token_hash == _hash(token)
    row = (
        await connection.execute(
            select(join_tokens, pools.c.name.label("pool")).join(pools, pools.c.id == join_tokens.c.pool_id).where(this)
        )
    ).one_or_none()
    if row is None:
        raise NotAllowed("unknown join token; ask an admin for a new one", code="join-token-unknown")
    if node_name is not None and node_name != row.node_name:
        raise NotAllowed(
            f"this join token is for a node named {row.node_name!r}, not {node_name[:63]!r}",
            code="join-token-for-another-name",
        )
    if row.used_at is None and row.expires_at <= now:
        raise NotAllowed("this join token has expired; ask an admin for a new one", code="join-token-expired")
    taken = await connection.execute(
        update(join_tokens).where(this, join_tokens.c.used_at.is_(None)).values(used_at=now)
    )
    if taken.rowcount != 1:
        raise Conflict(
            "this join token was used before; each works once: ask an admin for a new one",
            code="join-token-used",
        )
    return JoinGrant(
        row.node_name, row.pool_id, row.pool, row.region, row.labels, decode_taints(row.taints), row.created_by
    )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "backslashreplace")).hexdigest()
