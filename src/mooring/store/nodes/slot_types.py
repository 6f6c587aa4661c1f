"""Slot types: the table that describes each slot's unit, for users who query the amounts in SQL."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.resources.slots import BUILT_IN
from mooring.store.core.inserts import insert_new
from mooring.store.tables import slot_types


async def ensure_built_in(connection: AsyncConnection) -> None:
    known = set((await connection.execute(select(slot_types.c.name))).scalars())
    for slot in BUILT_IN:
        if slot.name not in known:
            values = {"name": slot.name, "kind": slot.kind, "description": slot.description}
            await insert_new(connection, slot_types, values)
