"""The folder with the content of uploads: a file per chunk, named by project and digest. Blocking.

A chunk is present when its file has its size. A file gets its name only after its content was verified and synced to
disk, and the names of an upload's files are synced before it counts as complete: a crash of the machine damages nothing
and loses nothing that was confirmed. Content that a disk damages is found when it is read, and is missing from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

from mooring.model.errors import InvalidInput, Unavailable
from mooring.wire.workloads.uploads import DAMAGED, Chunk

_PIECE_BYTES = 256 * 1024
_ID = "store-id"
_PARTIAL = ".partial-"
_syncing = ThreadPoolExecutor(max_workers=4, thread_name_prefix="upload-sync")
"""File systems commit concurrent syncs together, so that many small files take a fraction of the time."""


class ContentFolder:
    """Several servers may share one. Only the server's user can read it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._id: str | None = None

    def store_id(self) -> str:
        """Return the random id of this folder; it is made with the folder."""
        if self._id is None:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._root / _ID
            if not file.exists():
                self._create(file, uuid4().hex)
            self._id = file.read_text().strip()
        return self._id

    def missing(self, project_id: UUID, chunks: Sequence[Chunk]) -> list[int]:
        """Return the positions of the chunks that are not there."""
        return [position for position, chunk in enumerate(chunks) if not self._has(project_id, chunk)]

    def receive(self, project_id: UUID, chunk: Chunk) -> Receiving:
        path = self._path(project_id, chunk.digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Receiving(path, chunk)

    def read(self, project_id: UUID, chunk: Chunk) -> Iterator[bytes]:
        """Yield the content in pieces; raise Unavailable if it is missing, or at the end if it is damaged."""
        path = self._path(project_id, chunk.digest)
        hashed = hashlib.sha256()
        try:
            with path.open("rb", buffering=0) as file:
                while piece := file.read(_PIECE_BYTES):
                    hashed.update(piece)
                    yield piece
                if hashed.hexdigest() == chunk.digest:
                    return
                # Unless the chunk was uploaded again meanwhile.
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    path.unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        raise _lost()

    def sync(self, project_id: UUID, chunks: Iterable[Chunk]) -> None:
        """Write the names of these chunks to disk, so that a crash of the machine does not lose their files."""
        folders = {self._path(project_id, chunk.digest).parent for chunk in chunks}
        for folder in (*folders, self._root / str(project_id), self._root) if folders else ():
            _sync(folder)

    def remove(self, project_id: UUID, digests: Iterable[str]) -> None:
        for digest in digests:
            self._path(project_id, digest).unlink(missing_ok=True)

    def projects(self) -> list[UUID]:
        """Return the projects that have a folder here."""
        found: list[UUID] = []
        for folder in self._root.iterdir():
            with contextlib.suppress(ValueError):
                found.append(UUID(folder.name))
        return found

    def digests(self, project_id: UUID) -> list[str]:
        """Return the chunks of a project that have a file."""
        return [path.name for path in self._files(project_id) if not path.name.startswith(_PARTIAL)]

    def remove_partial(self, project_id: UUID, before: float) -> None:
        """Remove the remains of interrupted requests."""
        for path in self._files(project_id):
            with contextlib.suppress(FileNotFoundError):
                if path.name.startswith(_PARTIAL) and path.stat().st_mtime < before:
                    path.unlink()

    def remove_empty(self, project_id: UUID) -> None:
        """Remove the folders of a project that are empty; none must be in use."""
        own = self._root / str(project_id)
        for folder in (*own.glob("*"), own):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _files(self, project_id: UUID) -> Iterator[Path]:
        return (self._root / str(project_id)).glob("*/*")

    def _has(self, project_id: UUID, chunk: Chunk) -> bool:
        try:
            return self._path(project_id, chunk.digest).stat().st_size == chunk.size
        except OSError:
            return False

    def _path(self, project_id: UUID, digest: str) -> Path:
        return self._root / str(project_id) / digest[:2] / digest

    def _create(self, file: Path, text: str) -> None:
        """Write a file unless another server has just written it."""
        descriptor, temporary = tempfile.mkstemp(dir=self._root)
        try:
            os.write(descriptor, text.encode())
            os.fsync(descriptor)
            with contextlib.suppress(FileExistsError):
                os.link(temporary, file)
        finally:
            os.close(descriptor)
            Path(temporary).unlink()


class Receiving:
    """A chunk that arrives in pieces."""

    def __init__(self, path: Path, chunk: Chunk) -> None:
        self._path = path
        self._chunk = chunk
        self._hashed = hashlib.sha256()
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=_PARTIAL)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._temporary = Path(temporary)

    def add(self, piece: bytes | memoryview) -> None:
        self._hashed.update(piece)
        rest = memoryview(piece)
        while rest:
            rest = rest[self._file.write(rest) :]

    def finish(self) -> None:
        """Close the file; raise InvalidInput if it does not have the announced content."""
        self._file.close()
        if self._hashed.hexdigest() != self._chunk.digest:
            raise InvalidInput("the content of a chunk does not match the manifest", code="wrong-chunk")

    def sync(self) -> None:
        """Write the content to disk. The file is opened again: finished chunks hold no descriptors."""
        _sync(self._temporary)

    def keep(self) -> None:
        """Give the synced chunk its name; the second call changes nothing."""
        with contextlib.suppress(FileNotFoundError):
            self._temporary.replace(self._path)

    def close(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def sync_all(arrived: Iterable[Receiving]) -> None:
    """Write the content of finished chunks to disk."""
    for _ in _syncing.map(Receiving.sync, arrived):
        pass


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lost() -> Unavailable:
    return Unavailable(
        "a part of the upload is missing in the server's folder or is damaged; upload the folder again",
        code=DAMAGED,
    )
