"""Slot types: the table that says what a slot counts, for people who query the amounts."""

from __future__ import annotations

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.slots import BUILT_IN
from mooring.store.tables import slot_types


async def ensure_built_in(connection: AsyncConnection) -> None:
    known = set((await connection.execute(select(slot_types.c.name))).scalars())
    missing = [
        {"name": slot.name, "kind": slot.kind, "description": slot.description}
        for slot in BUILT_IN
        if slot.name not in known
    ]
    if missing:
        await connection.execute(insert(slot_types), missing)
