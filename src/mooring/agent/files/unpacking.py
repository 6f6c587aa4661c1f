"""Unpacking of an upload into a folder that is private to the agent until the last step.

The manifest comes from a tenant. Every entry is created by the descriptor of its folder and never through a link, so
that nothing is written anywhere else even if the checks of the manifest were wrong.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mooring.agent.files.safe_files import Folder
from mooring.wire.workloads.uploads import TEMPORARY, Entry, Manifest

_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of unpacked files, and whether other users can write them: those of container images are not known."""

    uid: int | None = None
    """None: the agent's user."""
    gid: int = 0
    shared: bool = False

    def mode(self, *, executable: bool) -> int:
        return (0o777 if executable else 0o666) if self.shared else (0o755 if executable else 0o644)


def unpack(manifest: Manifest, chunk: Callable[[str], Path], top: Folder, ownership: Ownership) -> None:
    """Create the entries of a manifest in an empty folder; `chunk` returns the file with the content of a digest."""
    folders: set[str] = set()
    where, current = "", contextlib.ExitStack()
    with contextlib.ExitStack() as stack:
        stack.push(lambda *_: current.close())
        parent = top
        for entry in sorted(manifest.entries, key=lambda each: each.path):
            above, _, name = entry.path.rpartition("/")
            if above != where:
                current.close()
                parent = current.enter_context(_made(top, above)) if above else top
                where = above
                folders.update(_with_parents(above))
            match entry.kind:
                case "folder":
                    folders.add(entry.path)
                    with parent.make(name):
                        pass
                case "file":
                    _write(parent, name, entry, chunk, ownership)
                case "link":
                    parent.link(name, entry.target)
                    if ownership.uid is not None:
                        os.chown(name, ownership.uid, ownership.gid, dir_fd=parent.descriptor, follow_symlinks=False)
    # Deepest first: a folder is the agent's own until everything in it is done.
    for path in sorted(folders, reverse=True):
        with _made(top, path) as folder:
            os.fchmod(folder.descriptor, ownership.mode(executable=True))
            # The runtime gives the folder for temporary files, which it makes if there is none.
            if ownership.uid is not None and path != TEMPORARY:
                folder.give(ownership.uid, ownership.gid)


@contextlib.contextmanager
def _made(top: Folder, path: str) -> Iterator[Folder]:
    """Open a folder below `top`, made with its parents if need be."""
    current = top
    for name in path.split("/"):
        try:
            below = current.make(name)
        finally:
            if current is not top:
                os.close(current.descriptor)
        current = below
    with current:
        yield current


def _with_parents(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


def _write(parent: Folder, name: str, entry: Entry, chunk: Callable[[str], Path], ownership: Ownership) -> None:
    descriptor = parent.create(name)
    try:
        for digest in entry.chunks:
            with chunk(digest).open("rb", buffering=0) as content:
                while piece := memoryview(content.read(_PIECE_BYTES)):
                    while piece:
                        piece = piece[os.write(descriptor, piece) :]
        os.fchmod(descriptor, ownership.mode(executable=entry.executable))
        if ownership.uid is not None:
            os.fchown(descriptor, ownership.uid, ownership.gid)
    finally:
        os.close(descriptor)
