"""Chunks of uploads: their uses, their charges, and the removal of unused ones.

The server's folder has no content of a chunk without a row here, and a row stays, with its charge, until the content is
removed. `uses` counts the uploads that contain the chunk, in the transactions that write and delete those. Every change
of a project's rows locks the project's row first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.core.batch_sql import Statement, Writes
from mooring.store.core.chunks import chunks as parts
from mooring.store.tables import projects, upload_chunks, uploads

BLOCK_BYTES = 4096
"""Least charge of a chunk or manifest: small ones occupy a block of the disk and a row."""
_PART = 2000
"""Rows of one statement: the event loop runs other work in between."""
_own = upload_chunks.c
_KEY = {"digest": "text"}
_PRESENT = Statement(
    "SELECT c.digest FROM {rows} i JOIN upload_chunks c ON c.project_id = {project} AND c.digest = i.digest",
    _KEY,
    project="uuid",
)
_USE = Statement(
    """
    INSERT INTO upload_chunks (project_id, digest, charged_bytes, charged_to, uses)
    SELECT {project}, i.digest, i.charge, {user}, 1 FROM {rows} i WHERE true
    ON CONFLICT (project_id, digest) DO UPDATE SET uses = upload_chunks.uses + 1
    """,
    {"digest": "text", "charge": "integer"},
    project="uuid",
    user="uuid",
)
_RELEASE = Statement(
    """
    UPDATE upload_chunks AS c SET uses = c.uses - 1 FROM {rows} i
    WHERE c.project_id = {project} AND c.digest = i.digest
    """,
    _KEY,
    project="uuid",
)
_FORGET = Statement(
    """
    DELETE FROM upload_chunks WHERE project_id = {project} AND uses = 0
    AND digest IN (SELECT i.digest FROM {rows} i)
    """,
    _KEY,
    project="uuid",
)


def charge(size: int) -> int:
    """Return the bytes that a chunk or manifest of this size is charged for."""
    return max(size, BLOCK_BYTES)


async def lock_project(connection: AsyncConnection, project_id: UUID) -> None:
    locked = select(projects.c.id).where(projects.c.id == project_id)
    await connection.execute(locked.with_for_update(key_share=True))


async def charge_of_new(connection: AsyncConnection, project_id: UUID, chunks: Sequence[tuple[str, int]]) -> int:
    """Return the bytes that the chunks (digest and size) are charged for that the project does not have."""
    total = 0
    for part in parts(chunks, _PART):
        present = await _present(connection, project_id, [digest for digest, _ in part])
        total += sum(charge(size) for digest, size in part if digest not in present)
    return total


async def absent(connection: AsyncConnection, project_id: UUID, digests: Sequence[str]) -> list[str]:
    """Return those of these chunks that the project does not have."""
    found: list[str] = []
    for part in parts(digests, _PART):
        present = await _present(connection, project_id, part)
        found += [digest for digest in part if digest not in present]
    return found


async def use(
    connection: AsyncConnection, project_id: UUID, chunks: Sequence[tuple[str, int]], *, user_id: UUID
) -> None:
    """Count one more use of each chunk (digest and size); those that are new are charged to the user."""
    for part in parts(chunks, _PART):
        rows = [(digest, charge(size)) for digest, size in part]
        await _execute(connection, _USE, rows, project=project_id, user=user_id)


async def release(connection: AsyncConnection, project_id: UUID, digests: Sequence[str]) -> None:
    """Count one use less of each chunk."""
    for part in parts(digests, _PART):
        await _execute(connection, _RELEASE, [(digest,) for digest in part], project=project_id)


async def unused(connection: AsyncConnection, project_id: UUID, limit: int) -> list[str]:
    """Return chunks that no upload contains; none can be used again before the transaction ends."""
    await lock_project(connection, project_id)
    rows = await connection.execute(
        select(_own.digest).where(_own.project_id == project_id, _own.uses == 0).limit(limit)
    )
    return list(rows.scalars())


async def forget(connection: AsyncConnection, project_id: UUID, digests: Sequence[str]) -> None:
    """Delete unused chunks whose content is removed, with their charge."""
    await _execute(connection, _FORGET, [(digest,) for digest in digests], project=project_id)


async def projects_with_unused(connection: AsyncConnection) -> list[UUID]:
    return list((await connection.execute(select(_own.project_id).where(_own.uses == 0).distinct())).scalars())


async def known_projects(connection: AsyncConnection, ids: Iterable[UUID]) -> set[UUID]:
    """Return those of these projects that exist."""
    found: set[UUID] = set()
    for part in parts(list(ids)):
        found.update((await connection.execute(select(projects.c.id).where(projects.c.id.in_(part)))).scalars())
    return found


async def charged_to_project(connection: AsyncConnection, project_id: UUID) -> int:
    """Return the bytes that count against the project's quota."""
    content = select(func.coalesce(func.sum(_own.charged_bytes), 0)).where(_own.project_id == project_id)
    manifests = select(func.coalesce(func.sum(uploads.c.manifest_bytes), 0)).where(uploads.c.project_id == project_id)
    return int((await connection.execute(content)).scalar_one()) + int(
        (await connection.execute(manifests)).scalar_one()
    )


async def charged_to_user(connection: AsyncConnection, user_id: UUID) -> int:
    """Return the bytes that count against the user's quota, in all projects together."""
    content = select(func.coalesce(func.sum(_own.charged_bytes), 0)).where(_own.charged_to == user_id)
    manifests = select(func.coalesce(func.sum(uploads.c.manifest_bytes), 0)).where(uploads.c.created_by == user_id)
    return int((await connection.execute(content)).scalar_one()) + int(
        (await connection.execute(manifests)).scalar_one()
    )


async def _present(connection: AsyncConnection, project_id: UUID, digests: Sequence[str]) -> set[str]:
    rows = await _PRESENT.read(connection, [(digest,) for digest in digests], project=project_id)
    return {digest for (digest,) in rows}


async def _execute(
    connection: AsyncConnection, statement: Statement, rows: Sequence[tuple[Any, ...]], **values: Any
) -> None:
    writes = Writes.on(connection)
    writes.add(statement, rows, **values)
    await writes.execute(connection)
