"""Taints of nodes with their time and reason, including those that Mooring sets itself and no admin changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import NotFound
from mooring.model.workloads.constraints import Effect, Taint
from mooring.store.control import events
from mooring.store.core.types import AnyRow
from mooring.store.tables import nodes


@dataclass(frozen=True, slots=True)
class TimedTaint:
    """Taint of a node, the time it was set, and the reason if Mooring set it."""

    taint: Taint
    since: datetime
    reason: str | None = None


def encode(timed: Iterable[TimedTaint]) -> list[dict[str, Any]]:
    return [
        {**msgspec.to_builtins(each.taint), "since": each.since.isoformat()}
        | ({} if each.reason is None else {"reason": each.reason})
        for each in timed
    ]


def timed_taints(row: AnyRow) -> list[TimedTaint]:
    """Return the taints in a node's row; one without a time is as old as the node."""
    return [
        TimedTaint(
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
    add: Sequence[TimedTaint] = (),
    remove: Sequence[tuple[str, Effect | None]] = (),
    now: datetime,
) -> bool:
    """Add taints, replacing those of the same key and effect, and remove some by key, of one effect or of all.

    A taint that is already set keeps its time. Return True if anything changed.
    """
    row = (await connection.execute(select(nodes).where(nodes.c.id == node_id).with_for_update())).one_or_none()
    if row is None:
        raise NotFound("the node was removed")
    before = {(each.taint.key, each.taint.effect): each for each in timed_taints(row)}
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
    event = events.NewEvent("node", node_id, row.generation + 1, "taints", node_id)
    await events.append(connection, [event], now)
    return True


def _is_removed(taint: Taint, remove: Sequence[tuple[str, Effect | None]]) -> bool:
    return any(taint.key == key and effect in (None, taint.effect) for key, effect in remove)
