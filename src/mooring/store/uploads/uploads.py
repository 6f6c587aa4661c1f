"""Uploads of projects: declaration with the charge for new chunks, use by workloads, and expiry.

The chunks of a project belong to it alone, so that knowing a digest gives no access. Whatever adds or removes chunks
locks the project's row first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, exists, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.store.core.batch_sql import among
from mooring.store.core.chunks import chunks as parts
from mooring.store.core.ids import new_id
from mooring.store.tables import projects, tasks, upload_chunks, uploads, workloads

_BLOCK_BYTES = 4096
"""Least charge of a chunk: small files occupy a block of the disk and a row."""
_DIGEST = re.compile(rb'"([0-9a-f]{64})"')
_own = uploads.c


@dataclass(frozen=True, slots=True)
class Upload:
    id: UUID
    project_id: UUID
    digest: str
    store_id: str
    size: int
    files: int
    created_at: datetime
    completed_at: datetime | None
    used_at: datetime


_COLUMNS = [_own[name] for name in Upload.__dataclass_fields__]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A folder to upload, as its manifest describes it. `chunks`: its distinct digests and their sizes."""

    project_id: UUID
    digest: str
    manifest: bytes
    store_id: str
    size: int
    files: int
    chunks: Mapping[str, int]


async def declare(
    connection: AsyncConnection, new: Declared, *, quota_bytes: int, user_id: UUID, now: datetime
) -> Upload:
    """Write the upload and charge its new chunks to the project, or mark an upload of the same content as used.

    Raise Conflict if the quota is exceeded.
    """
    await _lock_project(connection, new.project_id)
    present = await _present(connection, new.project_id, new.chunks)
    coming = {digest: max(size, _BLOCK_BYTES) for digest, size in new.chunks.items() if digest not in present}
    same = (_own.project_id == new.project_id, _own.digest == new.digest)
    found = (await connection.execute(update(uploads).where(*same).values(used_at=now).returning(_own.id))).scalar()
    charge = sum(coming.values()) + (0 if found is not None else len(new.manifest))
    if charge:
        await _check_quota(connection, new.project_id, charge, quota_bytes)
    for part in parts([*coming.items()], 5000):
        rows = [{"project_id": new.project_id, "digest": digest, "charged_bytes": size} for digest, size in part]
        await connection.execute(insert(upload_chunks), rows)
    if found is None:
        values: dict[str, Any] = {
            "id": new_id(),
            "project_id": new.project_id,
            "digest": new.digest,
            "manifest": new.manifest,
            "manifest_bytes": len(new.manifest),
            "store_id": new.store_id,
            "size": new.size,
            "files": new.files,
            "created_by": user_id,
            "created_at": now,
            "used_at": now,
        }
        await connection.execute(insert(uploads).values(**values))
    upload = await find(connection, found or values["id"])
    assert upload is not None
    return upload


async def find(connection: AsyncConnection, upload_id: UUID) -> Upload | None:
    row = (await connection.execute(select(*_COLUMNS).where(_own.id == upload_id))).one_or_none()
    return None if row is None else Upload(**row._mapping)


async def of_project(connection: AsyncConnection, project_id: UUID) -> list[Upload]:
    """Return the uploads of a project, the last used first."""
    rows = await connection.execute(
        select(*_COLUMNS).where(_own.project_id == project_id).order_by(_own.used_at.desc(), _own.id)
    )
    return [Upload(**row._mapping) for row in rows]


async def manifest(connection: AsyncConnection, upload_id: UUID) -> bytes | None:
    return (await connection.execute(select(_own.manifest).where(_own.id == upload_id))).scalar()


async def used(connection: AsyncConnection, upload_id: UUID, now: datetime, *, complete: bool | None = None) -> None:
    """Mark the upload as used; `complete`: whether all chunks are there, if that is known."""
    values: dict[str, Any] = {"used_at": now}
    if complete is not None:
        values["completed_at"] = func.coalesce(_own.completed_at, now) if complete else None
    await connection.execute(update(uploads).where(_own.id == upload_id).values(**values))


async def take(connection: AsyncConnection, ids: Collection[UUID], now: datetime) -> dict[UUID, UUID]:
    """Return the projects of those of these uploads that workloads can use; they do not expire meanwhile."""
    if not ids:
        return {}
    rows = await connection.execute(
        update(uploads)
        .where(among(_own.id, ids), _own.completed_at.is_not(None))
        .values(used_at=now)
        .returning(_own.id, _own.project_id)
    )
    return {row.id: row.project_id for row in rows}


async def for_node(connection: AsyncConnection, upload_id: UUID, node_id: UUID) -> Upload | None:
    """Return the upload if a task that is on the node uses it."""
    there = exists().where(
        tasks.c.node_id == node_id,
        tasks.c.freed_at.is_(None),
        tasks.c.workload_id == workloads.c.id,
        workloads.c.upload_id == upload_id,
    )
    row = (await connection.execute(select(*_COLUMNS).where(_own.id == upload_id, there))).one_or_none()
    return None if row is None else Upload(**row._mapping)


async def expired(
    connection: AsyncConnection, store_id: str, *, before: datetime, incomplete_before: datetime
) -> list[UUID]:
    """Return the uploads of a store that nothing uses and that were last used before these times."""
    rows = await connection.execute(
        select(_own.id).where(
            _own.store_id == store_id,
            or_(_own.used_at < before, (_own.used_at < incomplete_before) & _own.completed_at.is_(None)),
            ~_in_use(),
        )
    )
    return list(rows.scalars())


async def remove_some(
    connection: AsyncConnection, upload_id: UUID, digests: Collection[str], *, before: datetime | None, limit: int
) -> tuple[UUID, list[str]] | None:
    """Remove the rows of some chunks that only this upload has, or the upload itself when none is left.

    `digests`: the chunks of its manifest. Return its project and the removed chunks, whose content the caller deletes
    within this transaction. None: a workload uses the upload, or it was used after `before`.
    """
    project_id = (await connection.execute(select(_own.project_id).where(_own.id == upload_id))).scalar()
    if project_id is None:
        return None
    await _lock_project(connection, project_id)
    unused: list[ColumnElement[bool]] = [_own.id == upload_id, ~_in_use()]
    if before is not None:
        unused.append(_own.used_at < before)
    # From here on no workload can take it.
    taken = await connection.execute(update(uploads).where(*unused).values(completed_at=None).returning(_own.id))
    if taken.scalar() is None:
        return None
    present = await _present(connection, project_id, digests)
    gone = sorted(present - await _elsewhere(connection, project_id, upload_id, present))[:limit] if present else []
    for part in parts(gone):
        await connection.execute(
            delete(upload_chunks).where(upload_chunks.c.project_id == project_id, upload_chunks.c.digest.in_(part))
        )
    if not gone:
        await connection.execute(delete(uploads).where(_own.id == upload_id))
    return project_id, gone


async def _elsewhere(
    connection: AsyncConnection, project_id: UUID, upload_id: UUID, digests: Collection[str]
) -> set[str]:
    """Return those of these digests that occur in other manifests of the project."""
    wanted = {digest.encode() for digest in digests}
    found: set[bytes] = set()
    others = await connection.execute(select(_own.id).where(_own.project_id == project_id, _own.id != upload_id))
    for (other,) in others.all():
        content = await manifest(connection, other) or b""
        # A file whose name looks like a digest only keeps a chunk of its own project for longer.
        found |= wanted.intersection(_DIGEST.findall(content))
    return {digest.decode() for digest in found}


async def charged_bytes(connection: AsyncConnection, project_id: UUID) -> int:
    """Return the bytes that count against the project's quota."""
    charged = select(func.coalesce(func.sum(upload_chunks.c.charged_bytes), 0)).where(
        upload_chunks.c.project_id == project_id
    )
    described = select(func.coalesce(func.sum(_own.manifest_bytes), 0)).where(_own.project_id == project_id)
    return int((await connection.execute(charged)).scalar_one()) + int(
        (await connection.execute(described)).scalar_one()
    )


async def projects_of_store(connection: AsyncConnection) -> set[UUID]:
    """Return the projects that have uploads."""
    return set((await connection.execute(select(_own.project_id).distinct())).scalars())


def _in_use() -> ColumnElement[bool]:
    return exists().where(workloads.c.upload_id == _own.id, workloads.c.ended_at.is_(None))


async def _lock_project(connection: AsyncConnection, project_id: UUID) -> None:
    locked: Select[Any] = select(projects.c.id).where(projects.c.id == project_id)
    await connection.execute(locked.with_for_update(key_share=True))


async def _present(connection: AsyncConnection, project_id: UUID, digests: Iterable[str]) -> set[str]:
    found: set[str] = set()
    every: Sequence[str] = list(digests)
    for part in parts(every):
        rows = await connection.execute(
            select(upload_chunks.c.digest).where(
                upload_chunks.c.project_id == project_id, upload_chunks.c.digest.in_(part)
            )
        )
        found.update(rows.scalars())
    return found


async def _check_quota(connection: AsyncConnection, project_id: UUID, charge: int, quota_bytes: int) -> None:
    charged = await charged_bytes(connection, project_id)
    if charged + charge > quota_bytes:
        raise Conflict(
            f"the upload needs {_mb(charge)} MB more, and the uploads of the project have {_mb(charged)} of "
            f"{_mb(quota_bytes)} MB; remove some with `mooring upload remove`, leave files out with .mooringignore, "
            "or keep large data in a volume",
            code="upload-quota",
            details={"needed_bytes": charge, "charged_bytes": charged, "quota_bytes": quota_bytes},
        )


def _mb(count: int) -> str:
    return f"{count / 1e6:,.1f}"
