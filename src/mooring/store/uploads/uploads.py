"""Uploads of projects: declaration with the charge for new chunks, use by workloads, and expiry.

The chunks of a project belong to it alone, so that knowing a digest gives no access. Every addition or removal of an
upload locks the project's row first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, delete, exists, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.store.core.batch_sql import among
from mooring.store.core.ids import new_id
from mooring.store.tables import tasks, uploads, users, workloads
from mooring.store.uploads import chunks

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


@dataclass(frozen=True, slots=True)
class Quotas:
    """Maximum bytes that all uploads together are charged for."""

    project_bytes: int
    user_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A folder to upload, as its manifest describes it. `chunks`: its distinct digests with their sizes."""

    project_id: UUID
    digest: str
    manifest: bytes
    store_id: str
    size: int
    files: int
    chunks: Sequence[tuple[str, int]]


async def declare(
    connection: AsyncConnection, new: Declared, *, quotas: Quotas, user_id: UUID, now: datetime
) -> Upload:
    """Write the upload and charge its new chunks to the project and the user, or mark an upload of the same content
    as used.

    Raise Conflict if a quota is exceeded.
    """
    await chunks.lock_project(connection, new.project_id)
    same = (_own.project_id == new.project_id, _own.digest == new.digest)
    found = (await connection.execute(update(uploads).where(*same).values(used_at=now).returning(_own.id))).scalar()
    if found is None:
        manifest_bytes = chunks.charge(len(new.manifest))
        charge = manifest_bytes + await chunks.charge_of_new(connection, new.project_id, new.chunks)
        await _check_quotas(connection, new.project_id, user_id, charge, quotas)
        await chunks.use(connection, new.project_id, new.chunks, user_id=user_id)
        found = new_id()
        values: dict[str, Any] = {
            "id": found,
            "project_id": new.project_id,
            "digest": new.digest,
            "manifest": new.manifest,
            "manifest_bytes": manifest_bytes,
            "store_id": new.store_id,
            "size": new.size,
            "files": new.files,
            "created_by": user_id,
            "created_at": now,
            "used_at": now,
        }
        await connection.execute(insert(uploads).values(**values))
    upload = await find(connection, found)
    assert upload is not None
    return upload


async def find(connection: AsyncConnection, upload_id: UUID) -> Upload | None:
    row = (await connection.execute(select(*_COLUMNS).where(_own.id == upload_id))).one_or_none()
    return None if row is None else Upload(**row._mapping)


async def of_project(connection: AsyncConnection, project_id: UUID, limit: int) -> list[Upload]:
    """Return the uploads of a project, the last used first."""
    rows = await connection.execute(
        select(*_COLUMNS).where(_own.project_id == project_id).order_by(_own.used_at.desc(), _own.id).limit(limit)
    )
    return [Upload(**row._mapping) for row in rows]


async def manifest(connection: AsyncConnection, upload_id: UUID) -> bytes | None:
    return (await connection.execute(select(_own.manifest).where(_own.id == upload_id))).scalar()


async def used(connection: AsyncConnection, upload_id: UUID, now: datetime, *, complete: bool | None = None) -> bool:
    """Mark the upload as used and lock it against removal; return False if it was removed.

    `complete`: whether all chunks are there, if that is known.
    """
    values: dict[str, Any] = {"used_at": now}
    if complete is not None:
        values["completed_at"] = func.coalesce(_own.completed_at, now) if complete else None
    marked = update(uploads).where(_own.id == upload_id).values(**values)
    return (await connection.execute(marked.returning(_own.id))).scalar() is not None


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


async def remove(
    connection: AsyncConnection, upload_id: UUID, digests: Sequence[str], *, before: datetime | None
) -> UUID | None:
    """Delete an upload and release its chunks (`digests`); return its project.

    Return None if there is no such upload, a workload uses it, or it was used after `before`.
    """
    project_id: UUID | None = (await connection.execute(select(_own.project_id).where(_own.id == upload_id))).scalar()
    if project_id is None:
        return None
    await chunks.lock_project(connection, project_id)
    # A submission in progress has locked the row by `take`. Its workload is visible only to statements that begin after
    # its commit, so the lock and the check are two statements.
    await connection.execute(select(_own.id).where(_own.id == upload_id).with_for_update())
    unused: list[ColumnElement[bool]] = [_own.id == upload_id, ~_in_use()]
    if before is not None:
        unused.append(_own.used_at < before)
    if (await connection.execute(delete(uploads).where(*unused).returning(_own.id))).scalar() is None:
        return None
    await chunks.release(connection, project_id, digests)
    return project_id


def _in_use() -> ColumnElement[bool]:
    return exists().where(workloads.c.upload_id == _own.id, workloads.c.ended_at.is_(None))


async def _check_quotas(
    connection: AsyncConnection, project_id: UUID, user_id: UUID, charge: int, quotas: Quotas
) -> None:
    # The user may declare another upload in another project at the same time.
    await connection.execute(select(users.c.id).where(users.c.id == user_id).with_for_update(key_share=True))
    of_user = await chunks.charged_to_user(connection, user_id)
    if of_user + charge > quotas.user_bytes:
        raise _exceeded("your uploads in all projects", of_user, charge, quotas.user_bytes, code="upload-user-quota")
    of_project = await chunks.charged_to_project(connection, project_id)
    if of_project + charge > quotas.project_bytes:
        raise _exceeded("the uploads of the project", of_project, charge, quotas.project_bytes, code="upload-quota")


def _exceeded(owner: str, charged: int, charge: int, quota_bytes: int, *, code: str) -> Conflict:
    return Conflict(
        f"the upload needs {_mb(charge)} MB more, and {owner} have {_mb(charged)} of {_mb(quota_bytes)} MB; "
        "remove some with `mooring upload remove`, leave files out with .mooringignore, or keep large data in a volume",
        code=code,
        details={"needed_bytes": charge, "charged_bytes": charged, "quota_bytes": quota_bytes},
    )


def _mb(count: int) -> str:
    return f"{count / 1e6:,.1f}"
