"""Uploads of folders: a client declares a manifest, sends the chunks that are missing, and submits work with it.

A workload may use an upload of its own project only, and the server knows no chunk by its digest alone: the content of
other projects is neither used nor revealed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from mooring.clock import now
from mooring.concurrency.workers import off_loop, uninterrupted
from mooring.model.errors import Conflict, InvalidInput, Unavailable
from mooring.model.tenancy.access import Action, not_there, require
from mooring.model.tenancy.tenants import Principal
from mooring.services.acting_project import ActingProjects
from mooring.services.uploads.content import ContentFolder, Receiving, sync_all
from mooring.store.core.engine import Connection, Database
from mooring.store.uploads import chunks as stored_chunks
from mooring.store.uploads import uploads
from mooring.store.uploads.uploads import Declared, Quotas, Upload
from mooring.wire.workloads.uploads import (
    DAMAGED,
    MAX_REQUEST_BYTES,
    NOT_SHARED,
    Chunk,
    UploadView,
    digest_of,
    positions,
    read_manifest,
    runs,
)

MAX_LISTED = 1000
"""Uploads of one answer; the quota allows millions of small ones."""
_CACHED_MANIFESTS = 8
_REMOVED_AT_ONCE = 100
"""Files removed in one transaction, which on SQLite keeps all other writers waiting."""
_BUFFER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class UploadLimits:
    project_bytes: int = 20 * 10**9
    """Quota of a project for all of its uploads."""
    user_bytes: int = 10 * 10**9
    """Quota of a user for all uploads that the user declared, in all projects together."""
    upload_bytes: int = 5 * 10**9
    """Maximum size of one upload."""


class Uploads:
    def __init__(self, database: Database, content: ContentFolder, limits: UploadLimits) -> None:
        self.content = content
        self._database = database
        self._limits = limits
        self._acting_projects = ActingProjects(database)
        # Manifests never change, and an agent asks for the chunks of one in many requests.
        self._chunks = lru_cache(_CACHED_MANIFESTS)(_chunks_of)

    async def declare(self, principal: Principal, project: str | None, manifest: bytes) -> UploadView:
        """Accept the manifest of a folder; the answer names the chunks that the client has to send."""
        require(principal, Action.SUBMIT)
        submitter = await self._acting_projects.resolve(principal, project, create_keypair=False)
        store_id = await off_loop(self.content.store_id)
        declared, chunks = await off_loop(_declared, submitter.project_id, store_id, manifest)
        if declared.size > self._limits.upload_bytes:
            raise InvalidInput(
                f"the folder has {declared.size / 1e6:,.1f} MB, and an upload may have "
                f"{self._limits.upload_bytes / 1e6:,.1f} MB; leave files out with .mooringignore, or keep large data "
                "in a volume",
                code="upload-too-large",
            )
        quotas = Quotas(self._limits.project_bytes, self._limits.user_bytes)

        async def work(connection: Connection) -> Upload:
            return await uploads.declare(connection, declared, quotas=quotas, user_id=submitter.user_id, now=now())

        upload = await self._database.write(work, notify=False)
        return await self._checked(upload, chunks)

    async def find(self, principal: Principal, upload_id: UUID) -> Upload:
        """Return an upload of a project of the principal."""
        async with self._database.read() as connection:
            found = await uploads.find(connection, upload_id)
        own = {principal.project_id} if principal.by_keypair else principal.projects
        if found is None or found.project_id not in own:
            raise not_there(f"upload {upload_id}")
        return found

    async def listed(self, principal: Principal, project: str | None) -> list[UploadView]:
        submitter = await self._acting_projects.resolve(principal, project, create_keypair=False)
        async with self._database.read() as connection:
            return [_view(upload) for upload in await uploads.of_project(connection, submitter.project_id, MAX_LISTED)]

    async def complete(self, principal: Principal, upload_id: UUID) -> UploadView:
        """Check that all chunks have arrived; from then on workloads can use the upload."""
        require(principal, Action.SUBMIT)
        upload = await self.find(principal, upload_id)
        return await self._checked(upload, await self._chunks_of(upload))

    async def receive(self, principal: Principal, upload_id: UUID, asked: str, body: AsyncIterator[bytes]) -> None:
        """Store chunks as they arrive, one after the other; those that arrived in full stay if the rest does not."""
        require(principal, Action.SUBMIT)
        upload = await self.find(principal, upload_id)
        wanted = _selected(await self._chunks_of(upload), asked)
        await self._database.write(lambda c: uploads.used(c, upload.id, now()), notify=False)
        reader = _Reader(body)
        arrived: list[Receiving] = []
        try:
            try:
                for chunk in wanted:
                    await self._receive_chunk(reader, upload, chunk, arrived)
                if await reader.next(1):
                    raise InvalidInput("the body is longer than the chunks that it names", code="wrong-chunk")
            except Exception:
                await self._keep(upload, arrived)
                raise
            await self._keep(upload, arrived)
        finally:
            for receiving in arrived:
                receiving.close()

    async def remove(self, principal: Principal, upload_id: UUID) -> None:
        """Remove an upload that no workload uses."""
        require(principal, Action.SUBMIT)
        upload = await self.find(principal, upload_id)
        if not await remove(self._database, self.content, upload_id, before=None):
            await self.find(principal, upload_id)
            raise Conflict(f"a workload uses upload {upload.id}; it can be removed when that has ended", code="in-use")

    async def manifest_for_node(self, node_id: UUID, upload_id: UUID) -> bytes:
        """Return the manifest of an upload that a task on the node uses."""
        async with self._database.read() as connection:
            found = await uploads.for_node(connection, upload_id, node_id)
            content = None if found is None else await uploads.manifest(connection, upload_id)
        if content is None:
            raise not_there(f"upload {upload_id}")
        return content

    async def content_for_node(self, node_id: UUID, upload_id: UUID, asked: str) -> AsyncIterator[bytes]:
        """Return the content of some chunks, one after the other, of an upload that a task on the node uses."""
        async with self._database.read() as connection:
            found = await uploads.for_node(connection, upload_id, node_id)
        if found is None:
            raise not_there(f"upload {upload_id}")
        wanted = _selected(await self._chunks_of(found), asked)
        lost = await off_loop(self.content.missing, found.project_id, wanted)
        if lost:
            # The client finds it missing and sends it again.
            await self._database.write(lambda c: uploads.used(c, found.id, now(), complete=False), notify=False)
            raise Unavailable("parts of the upload are missing; upload the folder again", code=DAMAGED)
        return self._pieces(found.project_id, wanted)

    async def _pieces(self, project_id: UUID, chunks: Sequence[Chunk]) -> AsyncIterator[bytes]:
        for chunk in chunks:
            pieces = self.content.read(project_id, chunk)
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece

    async def _receive_chunk(self, reader: _Reader, upload: Upload, chunk: Chunk, arrived: list[Receiving]) -> None:
        """Receive a chunk, and add it to `arrived` once its content is verified."""
        receiving = await uninterrupted(self.content.receive, upload.project_id, chunk)
        try:
            left = chunk.size
            while left:
                piece = await reader.next(min(left, _BUFFER_BYTES))
                if not piece:
                    raise InvalidInput("the body ends before the chunks that it names", code="wrong-chunk")
                await uninterrupted(receiving.add, piece)
                left -= len(piece)
            await uninterrupted(receiving.finish)
        except BaseException:
            receiving.close()
            raise
        arrived.append(receiving)

    async def _keep(self, upload: Upload, arrived: Sequence[Receiving]) -> None:
        """Write chunks to disk, then name them while the upload is locked against removal: content without an upload
        would be charged to nobody. Raise NotFound if the upload was removed.
        """

        async def work(connection: Connection) -> bool:
            there = await uploads.used(connection, upload.id, now())
            if there:
                await uninterrupted(_keep_all, arrived)
            return there

        await uninterrupted(sync_all, arrived)
        if arrived and not await self._database.write(work, notify=False):
            raise not_there(f"upload {upload.id}")

    async def _checked(self, upload: Upload, chunks: Sequence[Chunk]) -> UploadView:
        """Return the upload with the chunks that are missing, and store whether it is complete."""
        if upload.store_id != await off_loop(self.content.store_id):
            raise _elsewhere()
        missing = await off_loop(self.content.missing, upload.project_id, chunks)
        complete = not missing
        if complete != (upload.completed_at is not None):
            if complete:
                await asyncio.to_thread(self.content.sync, upload.project_id, chunks)
            if not await self._database.write(
                lambda c: uploads.used(c, upload.id, now(), complete=complete), notify=False
            ):
                raise not_there(f"upload {upload.id}")
        return _view(upload, complete=complete, missing=await off_loop(runs, missing))

    async def _chunks_of(self, upload: Upload) -> tuple[Chunk, ...]:
        if upload.store_id != await off_loop(self.content.store_id):
            raise _elsewhere()
        async with self._database.read() as connection:
            content = await uploads.manifest(connection, upload.id)
        if content is None:
            raise not_there(f"upload {upload.id}")
        return await off_loop(self._chunks, content)


async def remove(database: Database, content: ContentFolder, upload_id: UUID, *, before: datetime | None) -> bool:
    """Remove an upload and the chunks that no other upload of its project has; return False if it is in use."""
    async with database.read() as connection:
        manifest = await uploads.manifest(connection, upload_id)
    if manifest is None:
        return True
    digests = await off_loop(_digests_of, manifest)

    async def work(connection: Connection) -> UUID | None:
        return await uploads.remove(connection, upload_id, digests, before=before)

    project_id = await database.write(work, notify=False)
    if project_id is not None:
        await remove_unused(database, content, project_id)
    return project_id is not None


async def remove_unused(database: Database, content: ContentFolder, project_id: UUID) -> None:
    """Remove the content of unused chunks of a project, then their rows, so that content is charged while it exists.

    The project is locked meanwhile: no upload can begin to use a chunk whose content is being removed.
    """

    async def work(connection: Connection) -> int:
        digests = await stored_chunks.unused(connection, project_id, _REMOVED_AT_ONCE)
        if digests:
            await uninterrupted(content.remove, project_id, digests)
            await stored_chunks.forget(connection, project_id, digests)
        return len(digests)

    while await database.write(work, notify=False):
        pass


class _Reader:
    """Reads a body in pieces of the sizes that are asked for."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._rest = memoryview(b"")

    async def next(self, most: int) -> bytes | memoryview:
        """Return up to this many bytes; empty at the end."""
        while not self._rest:
            try:
                self._rest = memoryview(await anext(self._body))
            except StopAsyncIteration:
                return b""
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece


def _declared(project_id: UUID, store_id: str, manifest: bytes) -> tuple[Declared, list[Chunk]]:
    read = read_manifest(manifest)
    chunks = read.chunks()
    declared = Declared(
        project_id=project_id,
        digest=digest_of(manifest),
        manifest=manifest,
        store_id=store_id,
        size=read.size,
        files=read.files,
        chunks=[(chunk.digest, chunk.size) for chunk in chunks],
    )
    return declared, chunks


def _chunks_of(manifest: bytes) -> tuple[Chunk, ...]:
    return tuple(read_manifest(manifest).chunks())


def _digests_of(manifest: bytes) -> list[str]:
    return [chunk.digest for chunk in _chunks_of(manifest)]


def _keep_all(arrived: Sequence[Receiving]) -> None:
    for receiving in arrived:
        receiving.keep()


def _selected(chunks: Sequence[Chunk], asked: str) -> list[Chunk]:
    wanted = [chunks[position] for position in positions(asked, len(chunks))]
    if sum(chunk.size for chunk in wanted) > MAX_REQUEST_BYTES:
        raise InvalidInput(f"a request has at most {MAX_REQUEST_BYTES >> 20} MiB of chunks", code="invalid-chunks")
    return wanted


def _view(upload: Upload, *, complete: bool | None = None, missing: str = "") -> UploadView:
    return UploadView(
        id=upload.id,
        digest=upload.digest,
        size=upload.size,
        files=upload.files,
        complete=upload.completed_at is not None if complete is None else complete,
        missing=missing,
        created_at=upload.created_at,
        used_at=upload.used_at,
    )


def _elsewhere() -> Unavailable:
    return Unavailable(
        "another server has the content of this upload in a folder of its own; several servers need one shared folder: "
        "an admin sets `uploads_folder`",
        code=NOT_SHARED,
    )
