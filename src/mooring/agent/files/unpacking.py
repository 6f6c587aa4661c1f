"""Unpacking of an upload into a folder that is private to the agent until the last step.

The manifest comes from a tenant. Every entry is created by the descriptor of its folder and never through a link, so
that nothing is written anywhere else even if the checks of the manifest were wrong.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from mooring.agent.files.safe_files import Folder
from mooring.model.errors import MooringError
from mooring.wire.workloads.uploads import TEMPORARY, Entry, Manifest

_PIECE_BYTES = 1024 * 1024
_CHUNK_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of unpacked files, and whether other users can write them: those of container images are not known."""

    uid: int | None = None
    """None: the agent's user."""
    gid: int = 0
    shared: bool = False

    def mode(self, *, executable: bool) -> int:
        return (0o777 if executable else 0o666) if self.shared else (0o755 if executable else 0o644)


class DamagedChunk(MooringError):
    """A chunk on this node is missing, or has other content than its digest says."""

    code = "files-damaged"


def unpack(manifest: Manifest, chunk: Callable[[str], Path], top: Folder, ownership: Ownership) -> None:
    """Create the entries of a manifest in an empty folder; `chunk` returns the file with the content of a digest.

    Raise DamagedChunk for a file with other content: the folder is incomplete then.
    """
    path: list[str] = []
    opened = [top]  # the folders on the path; the last is the current one

    def leave() -> None:
        """Everything in the current folder is done, so it need not be the agent's own any more."""
        with opened.pop() as folder:
            os.fchmod(folder.descriptor, ownership.mode(executable=True))
            # The runtime gives the folder for temporary files, which it makes if there is none.
            if ownership.uid is not None and path != [TEMPORARY]:
                folder.give(ownership.uid, ownership.gid)
        path.pop()

    try:
        # In the order of a walk, so that each folder is opened once.
        for names, entry in sorted(((each.path.split("/"), each) for each in manifest.entries), key=itemgetter(0)):
            inside = names if entry.kind == "folder" else names[:-1]
            while path != inside[: len(path)]:
                leave()
            for name in inside[len(path) :]:
                opened.append(opened[-1].make(name))
                path.append(name)
            if entry.kind == "file":
                _write(opened[-1], names[-1], entry, chunk, ownership)
            elif entry.kind == "link":
                _link(opened[-1], names[-1], entry, ownership)
        while path:
            leave()
    finally:
        for folder in opened[1:]:
            os.close(folder.descriptor)


def _link(parent: Folder, name: str, entry: Entry, ownership: Ownership) -> None:
    parent.link(name, entry.target)
    if ownership.uid is not None:
        os.chown(name, ownership.uid, ownership.gid, dir_fd=parent.descriptor, follow_symlinks=False)


def _write(parent: Folder, name: str, entry: Entry, chunk: Callable[[str], Path], ownership: Ownership) -> None:
    descriptor = parent.create(name)
    try:
        for digest in entry.chunks:
            for piece in chunk_content(chunk(digest), digest):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
        os.fchmod(descriptor, ownership.mode(executable=entry.executable))
        if ownership.uid is not None:
            os.fchown(descriptor, ownership.uid, ownership.gid)
    finally:
        os.close(descriptor)


def chunk_content(path: Path, digest: str) -> Iterator[bytes]:
    """Yield the content of a chunk; raise DamagedChunk, at the end at the latest, if it is not that of the digest.

    The digest is computed from the bytes that are used, each time. It is not enough that they were right when they were
    downloaded: a disk or a crash may damage them later, and so may a task of the agent's user if that is not root.
    """
    hashed = hashlib.sha256()
    try:
        with os.fdopen(os.open(path, _CHUNK_FILE), "rb", buffering=0) as file:
            while piece := file.read(_PIECE_BYTES):
                hashed.update(piece)
                yield piece
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.EIO):
            raise
        raise _damaged() from error
    if hashed.hexdigest() != digest:
        raise _damaged()


def _damaged() -> DamagedChunk:
    return DamagedChunk("downloaded files are damaged on this node; check its disk")
