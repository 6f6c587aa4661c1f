"""Idempotency keys: a request repeated with the same key by the same user gets the first response again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.core.batch_sql import Statement, Writes, insert
from mooring.store.core.types import decode_json
from mooring.store.tables import submissions


class Key(NamedTuple):
    user_id: UUID
    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    request_hash: str
    answer: Mapping[str, Any]


ANSWERED = Statement(
    """
    SELECT i.ordinal, s.request_hash, s.answer FROM {rows} i
    JOIN submissions s ON s.user_id = i.user_id AND s.idempotency_key = i.idempotency_key
    """,
    {"user_id": "uuid", "idempotency_key": "text"},
)


async def answered(connection: AsyncConnection, keys: Iterable[Key]) -> dict[Key, Answered]:
    """Return the responses stored under those of these keys that were used before."""
    asked = sorted(set(keys))
    return by_key(asked, await ANSWERED.read(connection, asked) if asked else ())


def by_key(asked: Sequence[Key], rows: Sequence[Sequence[Any]]) -> dict[Key, Answered]:
    """Return the responses from the rows that ANSWERED gave for these keys."""
    return {asked[number]: Answered(request_hash, decode_json(answer)) for number, request_hash, answer in rows}


async def remember(connection: AsyncConnection, given: Sequence[tuple[Key, Answered]], now: datetime) -> None:
    """Store responses in the transaction of their submissions. A key that another server inserts concurrently violates
    the primary key: the transaction is then retried and finds the other server's response."""
    writes = Writes.on(connection)
    add(writes, given, now)
    await writes.execute(connection)


def add(writes: Writes, given: Sequence[tuple[Key, Answered]], now: datetime) -> None:
    """Add responses to the writes of a transaction; see `remember`."""
    insert(
        writes,
        submissions,
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
