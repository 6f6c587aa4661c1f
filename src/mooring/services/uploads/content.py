"""The folder with the content of uploads: a file per chunk, named by project and digest. Blocking.

A chunk is present when its file has its size; a file appears under its name only after its content was verified.
Nothing is synced to disk: content that a power failure damages is found when it is read, and is missing from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from uuid import UUID, uuid4

from mooring.model.errors import InvalidInput, Unavailable
from mooring.wire.workloads.uploads import Chunk

_PIECE_BYTES = 256 * 1024
_ID = "store-id"
_PARTIAL = ".partial-"


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
        except FileNotFoundError:
            raise _lost() from None
        if hashed.hexdigest() != chunk.digest:
            path.unlink(missing_ok=True)
            raise _lost()

    def remove(self, project_id: UUID, digests: Iterable[str]) -> None:
        for digest in digests:
            self._path(project_id, digest).unlink(missing_ok=True)

    def clean_up(self, projects: Collection[UUID], partial_before: float) -> None:
        """Remove the folders of projects that have no uploads, and what is left of interrupted requests."""
        for folder in self._root.iterdir():
            with contextlib.suppress(ValueError, OSError):
                if UUID(folder.name) not in projects and folder.stat().st_mtime < partial_before:
                    shutil.rmtree(folder)
                    continue
                for partial in folder.glob(f"*/{_PARTIAL}*"):
                    if partial.stat().st_mtime < partial_before:
                        partial.unlink(missing_ok=True)

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
        self._file.write(piece)

    def finish(self) -> None:
        """Keep the chunk; raise InvalidInput if it is not the announced content."""
        self._file.close()
        if self._hashed.hexdigest() != self._chunk.digest:
            raise InvalidInput("the content of a chunk is not the one that the manifest names", code="wrong-chunk")
        self._temporary.replace(self._path)

    def close(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def _lost() -> Unavailable:
    return Unavailable(
        "a part of the upload is missing in the server's folder or is damaged; upload the folder again",
        code="upload-damaged",
    )
