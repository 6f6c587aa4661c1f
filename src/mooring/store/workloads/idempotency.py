"""Idempotency keys: a request repeated with the same key by the same user gets the first response again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import delete, insert, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.core.chunks import chunks
from mooring.store.tables import submissions


class Key(NamedTuple):
    user_id: UUID
    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    request_hash: str
    answer: Mapping[str, Any]


async def answered(connection: AsyncConnection, keys: Iterable[Key]) -> dict[Key, Answered]:
    """Return the responses stored under those of these keys that were used before."""
    found: dict[Key, Answered] = {}
    for part in chunks(sorted(set(keys))):
        rows = await connection.execute(
            select(submissions).where(tuple_(submissions.c.user_id, submissions.c.idempotency_key).in_(part))
        )
        found.update((Key(row.user_id, row.idempotency_key), Answered(row.request_hash, row.answer)) for row in rows)
    return found


async def remember(connection: AsyncConnection, given: Sequence[tuple[Key, Answered]], now: datetime) -> None:
    """Store responses in the transaction of their submissions. A key that another server inserts concurrently violates
    the primary key: the transaction is then retried and finds the other server's response."""
    if given:
        await connection.execute(
            insert(submissions),
            [
                {
                    "user_id": key.user_id,
                    "idempotency_key": key.text,
                    "request_hash": answer.request_hash,
                    "answer": dict(answer.answer),
                    "created_at": now,
                }
                for key, answer in given
            ],
        )


async def purge(connection: AsyncConnection, before: datetime, limit: int) -> int:
    key = tuple_(*submissions.primary_key.columns)
    age = submissions.c.created_at
    oldest = select(*submissions.primary_key.columns).where(age < before).order_by(age).limit(limit)
    return (await connection.execute(delete(submissions).where(key.in_(oldest.correlate(None))))).rowcount
