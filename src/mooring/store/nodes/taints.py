"""Taints of nodes: since when each is there and why, and those that Mooring itself sets, which no admin changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.constraints import Effect, Taint
from mooring.model.errors import NotFound
from mooring.store import events
from mooring.store.tables import nodes
from mooring.store.types import AnyRow


@dataclass(frozen=True, slots=True)
class Standing:
    """A taint of a node, since when it is there, and why where Mooring set it."""

    taint: Taint
    since: datetime
    reason: str | None = None


def encode(standing: Iterable[Standing]) -> list[dict[str, Any]]:
    return [
        {**msgspec.to_builtins(each.taint), "since": each.since.isoformat()}
        | ({} if each.reason is None else {"reason": each.reason})
        for each in standing
    ]


def standing(row: AnyRow) -> list[Standing]:
    """The taints in a node's row; one that does not say since when is as old as the node."""
    return [
        Standing(
            msgspec.convert(each, Taint),
            datetime.fromisoformat(each["since"]) if "since" in each else row.created_at,
            each.get("reason"),
        )
        for each in row.taints
    ]


async def change(
    connection: AsyncConnection,
    node_id: UUID,
    *,
    add: Sequence[Standing] = (),
    remove: Sequence[tuple[str, Effect | None]] = (),
    now: datetime,
) -> bool:
    """Add taints, in place of those of the same key and effect, and remove some by key, of one effect or of all.

    One that is there already stays since when it is. True if something changed.
    """
    row = (await connection.execute(select(nodes).where(nodes.c.id == node_id).with_for_update())).one_or_none()
    if row is None:
        raise NotFound("the node was removed")
    before = {(each.taint.key, each.taint.effect): each for each in standing(row)}
    after = {key: each for key, each in before.items() if not _is_removed(each.taint, remove)}
    for new in add:
        key = (new.taint.key, new.taint.effect)
        known = after.get(key)
        if known is None or (known.taint, known.reason) != (new.taint, new.reason):
            after[key] = new
    if after == before:
        return False
    await connection.execute(
        update(nodes).where(nodes.c.id == node_id).values(taints=encode(after.values()), generation=row.generation + 1)
    )
    told = events.NewEvent("node", node_id, row.generation + 1, "taints", node_id)
    await events.append(connection, [told], now)
    return True


def _is_removed(taint: Taint, remove: Sequence[tuple[str, Effect | None]]) -> bool:
    return any(taint.key == key and effect in (None, taint.effect) for key, effect in remove)
