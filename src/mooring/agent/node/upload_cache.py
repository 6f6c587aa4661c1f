"""Uploads on this node: each chunk is downloaded once, verified, and kept for the next tasks that need it.

A chunk counts as present by its size; its content is verified again whenever it is unpacked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import UUID

import structlog

from mooring.agent.connection.uploads import DownloadFailed
from mooring.agent.files.safe_files import Folder
from mooring.agent.files.unpacking import DamagedChunk, chunk_content
from mooring.concurrency import backoff
from mooring.concurrency.workers import uninterrupted
from mooring.model.errors import MooringError, Unavailable
from mooring.wire.workloads.uploads import MAX_CHUNKS_PER_REQUEST, Chunk, Manifest, read_manifest, runs

log = structlog.get_logger(__name__)

_REQUEST_BYTES = 32 * 1024**2
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 15.0
_ATTEMPTS = 12
"""Attempts without a new chunk, within about two minutes, after which the server is taken not to have the files."""
_FOLDER = "uploads"


class Source(Protocol):
    """The server's side."""

    async def manifest(self, upload_id: UUID) -> bytes: ...

    def chunks(self, upload_id: UUID, positions: str) -> AsyncIterator[bytes]: ...


@dataclass(slots=True)
class Fetching:
    """The progress of a download."""

    done_bytes: int = 0
    total_bytes: int = 0
    stored_chunks: int = 0


class UploadCache:
    """The folder of chunks is private to the agent. Tasks get copies."""

    def __init__(self, root: Path, source: Source, *, max_bytes: int, changed: Callable[[], None]) -> None:
        with Folder.open(root.resolve()) as own, own.make(_FOLDER) as folder:
            self._folder = folder.path
        self._source = source
        self._max_bytes = max_bytes
        self._changed = changed
        self._locks: dict[UUID, asyncio.Lock] = {}
        self._users: Counter[UUID] = Counter()
        self._fetching: dict[UUID, Fetching] = {}

    @contextlib.asynccontextmanager
    async def fetched(self, upload_id: UUID) -> AsyncIterator[Manifest]:
        """Download the missing content of an upload, and hold it in the cache for the block.

        MooringError if the server does not send it. While no server serves requests, it waits: nobody could receive
        the task's failure either.
        """
        lock = self._locks.setdefault(upload_id, asyncio.Lock())
        self._users[upload_id] += 1
        try:
            async with lock:
                manifest = await self._fetch_until_there(upload_id)
            yield manifest
        finally:
            self._users[upload_id] -= 1
            if not self._users[upload_id]:
                del self._users[upload_id], self._locks[upload_id]

    async def repair(self, upload_id: UUID, manifest: Manifest) -> None:
        """Verify the chunks of a fetched upload, and download those again that are damaged or missing."""
        async with self._locks[upload_id]:
            chunks = await asyncio.to_thread(manifest.chunks)
            removed = await asyncio.to_thread(self._remove_damaged, chunks)
            log.warning("damaged files of an upload are downloaded again", upload=str(upload_id), chunks=removed)
            await self._fetch_until_there(upload_id)

    def path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest

    def progress(self, upload_id: UUID) -> Fetching | None:
        return self._fetching.get(upload_id)

    async def clean_up(self) -> None:
        """Remove the chunks used longest ago while all together are too large and no task needs any."""
        if not self._users:
            await asyncio.to_thread(self._evict)

    async def _fetch_until_there(self, upload_id: UUID) -> Manifest:
        failures = 0
        for delay in backoff.delays(_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS):
            progress = self._fetching[upload_id] = Fetching()
            try:
                return await self._fetch(upload_id, progress)
            except DownloadFailed as problem:
                failures = 0 if progress.stored_chunks else failures + 1
                if failures == _ATTEMPTS:
                    raise MooringError(
                        f"the uploaded files could not be downloaded in {failures} attempts: {problem.message}",
                        code="files-unavailable",
                    ) from problem
                log.info("upload not downloaded yet", upload=str(upload_id), reason=problem.message, failures=failures)
            except Unavailable as problem:
                log.info("upload not downloaded yet", upload=str(upload_id), reason=problem.message)
            finally:
                self._fetching.pop(upload_id, None)
            await asyncio.sleep(delay)
        raise AssertionError

    async def _fetch(self, upload_id: UUID, progress: Fetching) -> Manifest:
        manifest = await asyncio.to_thread(read_manifest, await self._source.manifest(upload_id))
        chunks = await asyncio.to_thread(manifest.chunks)
        missing = await asyncio.to_thread(self._missing, chunks)
        progress.total_bytes = sum(chunks[position].size for position in missing)
        for batch in _batches(chunks, missing):
            await self._download(upload_id, batch, chunks, progress)
        return manifest

    async def _download(
        self, upload_id: UUID, batch: Sequence[int], chunks: Sequence[Chunk], progress: Fetching
    ) -> None:
        wanted = iter(chunks[position] for position in batch)
        arriving = _Arriving(self, wanted)
        try:
            async for piece in self._source.chunks(upload_id, runs(batch)):
                await uninterrupted(arriving.add, piece)
                progress.done_bytes += len(piece)
                self._changed()
        finally:
            progress.stored_chunks += arriving.stored
            arriving.close()
        if not arriving.complete:
            raise DownloadFailed("the server ended the download early")

    def _missing(self, chunks: Sequence[Chunk]) -> list[int]:
        return [position for position, chunk in enumerate(chunks) if not self._has(chunk)]

    def _has(self, chunk: Chunk) -> bool:
        path = self.path(chunk.digest)
        try:
            found = path.lstat()
            if found.st_size != chunk.size or not stat.S_ISREG(found.st_mode):
                return False
            os.utime(path)
        except OSError:
            return False
        return True

    def _remove_damaged(self, chunks: Sequence[Chunk]) -> int:
        """Remove the damaged chunks, and return the number of those that are missing now."""
        missing = 0
        for chunk in chunks:
            path = self.path(chunk.digest)
            try:
                for _ in chunk_content(path, chunk.digest):
                    pass
            except DamagedChunk:
                path.unlink(missing_ok=True)
                missing += 1
        return missing

    def _evict(self) -> None:
        """A task that begins to need a chunk meanwhile finds it missing, and downloads it again."""
        found: list[tuple[os.stat_result, Path]] = []
        for entry in self._folder.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):
                found.append((entry.lstat(), entry))
        total = sum(status.st_size for status, _ in found)
        for status, entry in sorted(found, key=lambda each: each[0].st_mtime):
            if total <= self._max_bytes:
                return
            entry.unlink(missing_ok=True)
            total -= status.st_size


class _Arriving:
    """Chunks that arrive one after the other; each is kept once its content is verified."""

    def __init__(self, cache: UploadCache, chunks: Iterator[Chunk]) -> None:
        self._cache = cache
        self._chunks = chunks
        self._chunk = next(chunks, None)
        self._left = 0 if self._chunk is None else self._chunk.size
        self._hashed = hashlib.sha256()
        self._temporary: Path | None = None
        self._descriptor: int | None = None
        self.stored = 0

    @property
    def complete(self) -> bool:
        return self._chunk is None

    def add(self, data: bytes) -> None:
        piece = memoryview(data)
        while piece:
            if self._chunk is None:
                raise _damaged()
            part, piece = piece[: self._left], piece[self._left :]
            self._write(self._chunk, part)
            self._left -= len(part)
            if not self._left:
                self._finish(self._chunk)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None

    def _write(self, chunk: Chunk, part: memoryview) -> None:
        if self._descriptor is None:
            folder = self._cache.path(chunk.digest).parent
            folder.mkdir(mode=0o700, exist_ok=True)
            self._descriptor, name = tempfile.mkstemp(dir=folder)
            self._temporary = Path(name)
            self._hashed = hashlib.sha256()
        self._hashed.update(part)
        while part:
            part = part[os.write(self._descriptor, part) :]

    def _finish(self, chunk: Chunk) -> None:
        if self._hashed.hexdigest() != chunk.digest:
            raise _damaged()
        assert self._temporary is not None
        self._temporary.replace(self._cache.path(chunk.digest))
        self._temporary = None
        self.stored += 1
        self.close()
        self._chunk = next(self._chunks, None)
        self._left = 0 if self._chunk is None else self._chunk.size


def _batches(chunks: Sequence[Chunk], missing: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for position in missing:
        if batch and (len(batch) == MAX_CHUNKS_PER_REQUEST or size + chunks[position].size > _REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(position)
        size += chunks[position].size
    if batch:
        yield batch


def _damaged() -> MooringError:
    return MooringError(
        "the server sent content that does not match the upload's manifest; upload the folder again",
        code="files-damaged",
    )
