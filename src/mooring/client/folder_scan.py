"""The files of a local folder for an upload: selected by ignore files, and described by a manifest.

Other users or running tasks may write in the folder. So everything in it is opened by the descriptor of its own folder
and never through a link: a link that takes the place of a file or folder meanwhile ends the upload with an error,
instead of uploading some other file of the user.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from pathspec import GitIgnoreSpec

from mooring.model.errors import InvalidInput
from mooring.wire.workloads.uploads import (
    CHUNK_BYTES,
    MAX_DEPTH,
    MAX_ENTRIES,
    Entry,
    encode_manifest,
    leads_out,
    read_manifest,
)

IGNORE_FILES = (".gitignore", ".mooringignore")
"""The patterns of the last count most: `!data/` there includes what Git ignores."""
_ALWAYS_IGNORED = (".git/",)
_PIECE_BYTES = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Without blocking, should a named pipe be in its place."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file below a folder of this machine."""

    root: Path
    path: str
    named: bool = False
    """The user named the file itself, which may be a link."""

    def open(self) -> FileIO:
        """Open the file; raise OSError where a link or anything but a file has taken its place."""
        *folders, name = self.path.split("/")
        parent = os.open(self.root, _FOLDER)
        try:
            for folder in folders:
                below = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
                os.close(parent)
                parent = below
            descriptor = os.open(name, _FILE if self.named else _FILE | os.O_NOFOLLOW, dir_fd=parent)
        finally:
            os.close(parent)
        return _regular(descriptor, self.path)

    def __str__(self) -> str:
        return str(self.root / self.path)


@dataclass(frozen=True, slots=True)
class Piece:
    """The place of a chunk's content on this machine."""

    file: LocalFile
    offset: int
    size: int


@dataclass(slots=True)
class Scan:
    """Files, folders and links to upload, with paths relative to the folder."""

    root: Path
    files: dict[str, os.stat_result] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Links that lead out of the folder, and entries other than files, folders and links."""
    single: bool = False
    """The user named one file, not a folder."""

    def file(self, path: str) -> LocalFile:
        return LocalFile(self.root, path, named=self.single)

    @property
    def size(self) -> int:
        return sum(found.st_size for found in self.files.values())


def scan(path: Path) -> Scan:
    """Return the contents of a folder without those that its ignore files name, or one file."""
    if path.is_file():
        return Scan(path.parent, files={path.name: path.stat()}, single=True)
    if not path.is_dir():
        raise InvalidInput(f"{str(path)!r} is not a file or folder of this machine", code="no-such-folder")
    found = Scan(path)
    try:
        _walk(found, os.open(path, _FOLDER), "", [("", GitIgnoreSpec.from_lines(_ALWAYS_IGNORED))])
    except OSError as error:
        raise _unreadable(path, error) from None
    return found


def _walk(found: Scan, descriptor: int, below: str, rules: Sequence[tuple[str, GitIgnoreSpec]]) -> None:
    """Add the contents of an open folder, `below` the root, and close it."""
    try:
        if below.count("/") > MAX_DEPTH:
            raise InvalidInput(f"{below[:200]!r} is nested deeper than {MAX_DEPTH} folders", code="too-deep")
        _add_contents(found, descriptor, below, rules)
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else ""
        raise _unreadable(found.root / below / name, error) from None
    finally:
        os.close(descriptor)


def _add_contents(found: Scan, descriptor: int, below: str, rules: Sequence[tuple[str, GitIgnoreSpec]]) -> None:
    with os.scandir(descriptor) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    names = {entry.name for entry in entries}
    for name in IGNORE_FILES:
        if name in names:
            with _regular(os.open(name, _FILE, dir_fd=descriptor), name) as file:
                lines = file.readall().decode(errors="replace").splitlines()
            rules = [*rules, (below, GitIgnoreSpec.from_lines(lines))]
    for entry in entries:
        path = f"{below}{entry.name}"
        folder = entry.is_dir(follow_symlinks=False)
        if _ignored(f"{path}/" if folder else path, rules):
            continue
        if len(found.files) + len(found.folders) + len(found.links) > MAX_ENTRIES:
            raise InvalidInput(
                f"{str(found.root)!r} has more than {MAX_ENTRIES} files; exclude files in .mooringignore",
                code="too-many-files",
            )
        if entry.is_symlink():
            target = os.readlink(entry.name, dir_fd=descriptor)
            if leads_out(path, target):
                found.left_out.append(path)
            else:
                found.links[path] = target
        elif folder:
            found.folders.append(path)
            inside = os.open(entry.name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            _walk(found, inside, f"{path}/", rules)
        elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
            found.files[path] = status
        else:
            found.left_out.append(path)


def _regular(descriptor: int, name: str) -> FileIO:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return FileIO(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", name)


def _ignored(path: str, rules: Sequence[tuple[str, GitIgnoreSpec]]) -> bool:
    """Return the decision of the last rule that matches; rules of inner folders come last."""
    decided = False
    for below, spec in rules:
        found = spec.check_file(path.removeprefix(below)).include
        decided = decided if found is None else found
    return decided


@dataclass(frozen=True, slots=True)
class Described:
    manifest: bytes
    pieces: list[Piece]
    """One per distinct chunk, in the manifest's order."""


def describe(found: Scan, progress: Callable[[int], None] = lambda _: None) -> Described:
    """Read all files and return their manifest; `progress` receives the number of bytes read so far."""
    entries = [Entry(path=path, kind="folder") for path in found.folders]
    entries += [Entry(path=path, kind="link", target=target) for path, target in found.links.items()]
    pieces: dict[str, Piece] = {}
    done = 0
    for path, status in found.files.items():
        size, digests = 0, []
        for digest, count in _digests(found.file(path)):
            pieces.setdefault(digest, Piece(found.file(path), size, count))
            digests.append(digest)
            size += count
            progress(done + size)
        done += size
        entries.append(Entry(path=path, size=size, chunks=digests, executable=bool(status.st_mode & stat.S_IXUSR)))
    manifest = encode_manifest(entries)
    return Described(manifest, [pieces[chunk.digest] for chunk in read_manifest(manifest).chunks()])


def _digests(local: LocalFile) -> Iterator[tuple[str, int]]:
    """Yield the digest and size of each chunk of a file."""
    try:
        with local.open() as file:
            while True:
                hashed, left = hashlib.sha256(), CHUNK_BYTES
                while left and (piece := file.read(min(left, _PIECE_BYTES))):
                    hashed.update(piece)
                    left -= len(piece)
                if left == CHUNK_BYTES:
                    return
                yield hashed.hexdigest(), CHUNK_BYTES - left
                if left:
                    return
    except OSError as error:
        raise _unreadable(local, error) from None


def _unreadable(path: Path | LocalFile, error: OSError) -> InvalidInput:
    return InvalidInput(f"cannot read {str(path)!r}: {error.strerror}", code="unreadable-file")
