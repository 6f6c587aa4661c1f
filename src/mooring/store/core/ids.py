"""Ids are UUIDv7, so that newer rows sort after older ones."""

from __future__ import annotations

from uuid import UUID

from asyncpg.pgproto import pgproto
from uuid_utils import uuid7

_LOW_BITS = 2**32 - 1
"""The random bits of an id; the ids of an array's tasks differ from their workload's in these bits only."""


def new_id() -> UUID:
    # Compatible with Python's UUID, and faster to create, compare and hash.
    found: UUID = pgproto.UUID(uuid7().bytes)
    return found


def array_task_id(workload_id: UUID, index: int) -> UUID:
    """Return the id of the first attempt of an array's task; it is known before the task has a row."""
    number = workload_id.int
    low = (number + index + 1) & _LOW_BITS
    found: UUID = pgproto.UUID((number & ~_LOW_BITS | low).to_bytes(16, "big"))
    return found
