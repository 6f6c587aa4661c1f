"""Slot types: the table that says what a slot counts, for people who query the amounts."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.slots import BUILT_IN
from mooring.store.inserts import insert_new
from mooring.store.tables import slot_types


async def ensure_built_in(connection: AsyncConnection) -> None:
    known = set((await connection.execute(select(slot_types.c.name))).scalars())
    for slot in BUILT_IN:
        if slot.name not in known:
            values = {"name": slot.name, "kind": slot.kind, "description": slot.description}
            await insert_new(connection, slot_types, values)
