"""File operations below folders that a task or another local user can write, safe against links and renames.

The kernel resolves a path at every call, so a check by path says nothing about the next call by path: in between a
task can put a link in place of a folder, and a root agent would write, chown or delete wherever it points. Therefore a
folder is opened once, one component at a time and never through a link; everything else is done by its descriptor, and
owner and mode are those of the open folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mooring.model.errors import MooringError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For components of a path, which need not be readable."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT_GROUP = 0
_MAX_LINKS = 40


class UnsafePath(MooringError):
    """The object at a path is a link, or another user created, owns or can replace it."""

    code = "unsafe-path"


class Folder:
    """An open folder. Names are single components; no method follows a link. Close it, or use it in a `with`."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self.path = path
        """For messages and for programs that need a path."""

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Open the folder at an absolute path without links; UnsafePath where one of its components is a link."""
        step = os.open("/", _STEP)
        try:
            for number, name in enumerate(path.parts[1:], 2):
                step = _replace(step, _open(step, _checked(name), _STEP, Path(*path.parts[:number])))
            return cls(os.open(".", _FOLDER, dir_fd=step), path)
        finally:
            os.close(step)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def enter(self, name: str) -> Folder:
        """Open the folder of that name regardless of its owner."""
        path = self.path / _checked(name)
        return Folder(_open(self.descriptor, name, _FOLDER, path), path)

    def make(self, name: str, mode: int = 0o700) -> Folder:
        """Open the agent's own folder of that name, made if need be; UnsafePath where it is or was another user's."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(_checked(name), 0o700, dir_fd=self.descriptor)
        folder = self.enter(name)
        try:
            found = os.fstat(folder.descriptor)
            if found.st_uid != os.geteuid():
                raise UnsafePath(f"{folder.path} belongs to uid {found.st_uid}, not to the agent (uid {os.geteuid()})")
            if found.st_mode & ~mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise UnsafePath(f"other users can write {folder.path} (mode {stat.S_IMODE(found.st_mode):04o})")
            os.fchmod(folder.descriptor, mode)
        except BaseException:
            os.close(folder.descriptor)
            raise
        return folder

    def make_shared(self, name: str) -> Folder:
        """Open or create a folder that everyone who reaches it may write; a task may own it."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(_checked(name), 0o700, dir_fd=self.descriptor)
        folder = self.enter(name)
        os.fchmod(folder.descriptor, 0o777)
        return folder

    def write(self, name: str, data: bytes, mode: int) -> None:
        """Write a new file; FileExistsError where anything has that name, even a link."""
        descriptor = self.create(name)
        try:
            while data:
                data = data[os.write(descriptor, data) :]
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def create(self, name: str) -> int:
        """Return the descriptor of a new private file; FileExistsError where anything has that name, even a link."""
        return os.open(_checked(name), _NEW_FILE, 0o600, dir_fd=self.descriptor)

    def link(self, name: str, target: str) -> None:
        """Make a symbolic link; FileExistsError where anything has that name."""
        os.symlink(target, _checked(name), dir_fd=self.descriptor)

    def move(self, name: str, new_name: str) -> None:
        """Rename an entry of this folder."""
        os.rename(_checked(name), _checked(new_name), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def give(self, uid: int, gid: int) -> None:
        """Make the folder itself another user's."""
        os.fchown(self.descriptor, uid, gid)

    def remove(self, name: str) -> None:
        """Remove the entry of this name with everything below it. Raise OSError or UnsafePath if something remains."""
        _checked(name)
        problem: Exception | None = None
        try:
            with self.enter(name) as folder:
                for entry in _entries(folder.descriptor):
                    try:
                        entry.remove()
                    except OSError as error:
                        problem = problem or error
        except (UnsafePath, OSError) as error:
            problem = problem or error
        try:
            os.rmdir(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            os.unlink(name, dir_fd=self.descriptor)
        except OSError as error:
            raise problem or error from None

    def size_bytes(self) -> int:
        """Return the disk space of everything below, as far as it can be read."""
        total = 0
        with contextlib.suppress(UnsafePath, OSError):
            for entry in _entries(self.descriptor):
                total += entry.size_bytes()
        return total


def make_trusted(path: Path, mode: int) -> None:
    """Make a folder of the agent's own with all that is missing above it; see `check_trusted` for the rest."""
    missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    if missing:
        above = missing[-1].parent
        if os.geteuid() == 0:
            _check_path(above)
        current = Folder.open(above.resolve())
        for folder in reversed(missing):
            with current as parent:
                closed = 0o711 if os.geteuid() == 0 else 0o700
                current = parent.make(folder.name, mode if folder == path else closed)
        os.close(current.descriptor)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if os.geteuid() == 0:
        check_trusted(path)


def check_trusted(path: Path) -> None:
    """Raise UnsafePath unless the agent owns the folder and no other user can write it or change the way to it.

    The owner of a folder above it is trusted: the agent runs no task as that user.
    """
    found, real = _check_path(path)
    if found.st_uid != os.geteuid():
        raise _not_own(real, found.st_uid)
    if _open_to_others(found):
        raise UnsafePath(f"other users can write {real}; run: chmod go-w {real}")


def _check_path(path: Path) -> tuple[os.stat_result, Path]:
    """Follow a path and all links on it; UnsafePath where another user could replace a folder or a link.

    Return the status of the folder that it leads to, and the path of that without links.
    """
    here, step = Path("/"), os.open("/", _STEP)
    names = list(reversed(path.absolute().parts[1:]))
    links = 0
    try:
        while names:
            name = names.pop()
            writable = _writable(step, here)
            found = os.stat(name, dir_fd=step, follow_symlinks=False)
            # In a sticky folder everybody can create, and only the owner of an entry can replace it.
            if writable and found.st_uid not in (0, os.geteuid()):
                raise _not_own(here / name, found.st_uid)
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _MAX_LINKS:
                    raise UnsafePath(f"{path} leads through more than {_MAX_LINKS} links")
                target = Path(os.readlink(name, dir_fd=step))
                if target.is_absolute():
                    here, step = Path("/"), _replace(step, os.open("/", _STEP))
                names.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))
                continue
            step = _replace(step, _open(step, name, _STEP, here / name))
            here = here.parent if name == ".." else here / name
        return os.fstat(step), here
    finally:
        os.close(step)


def _not_own(path: Path, owner: int) -> UnsafePath:
    return UnsafePath(
        f"{path} belongs to uid {owner}: an agent of uid {os.geteuid()} keeps nothing there; "
        "change its owner or choose another folder with --data"
    )


def _writable(descriptor: int, path: Path) -> bool:
    """Return whether other users can create entries in the folder; raise UnsafePath if they can replace entries."""
    found = os.fstat(descriptor)
    if not _open_to_others(found):
        return False
    if not found.st_mode & stat.S_ISVTX:
        raise UnsafePath(
            f"other users can replace files in {path} (mode {stat.S_IMODE(found.st_mode):04o}), "
            f"which is above the agent's folder; run: chmod go-w {path}, or choose another folder with --data"
        )
    return True


def _open_to_others(found: os.stat_result) -> bool:
    by_group = found.st_mode & stat.S_IWGRP and found.st_gid != _ROOT_GROUP
    return bool(found.st_mode & stat.S_IWOTH or by_group)


@dataclass(frozen=True, slots=True)
class _Entry:
    parent: int
    name: str
    folder: bool

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (os.rmdir if self.folder else os.unlink)(self.name, dir_fd=self.parent)

    def size_bytes(self) -> int:
        try:
            return os.stat(self.name, dir_fd=self.parent, follow_symlinks=False).st_blocks * 512
        except OSError:  # gone meanwhile
            return 0


@dataclass(frozen=True, slots=True)
class _Level:
    name: str
    identity: tuple[int, int]
    folders: list[str]


def _entries(top: int) -> Iterator[_Entry]:
    """Everything below a folder, each folder after its content; an entry is valid until the next is asked for.

    One descriptor goes down and up again, and nothing recurses: a tenant can nest folders deeper than the limits on
    open files and on Python's stack. On the way up `..` has to be the folder that it came from; UnsafePath where a
    folder was moved meanwhile.
    """
    current = os.open(".", _FOLDER, dir_fd=top)
    levels: list[_Level] = []
    try:
        name = ""
        while True:
            files, folders = _listed(current)
            for file in files:
                yield _Entry(current, file, folder=False)
            levels.append(_Level(name, _identity(current), folders))
            below = None
            while below is None:
                if levels[-1].folders:
                    name = levels[-1].folders.pop()
                    try:
                        below = os.open(name, _FOLDER, dir_fd=current)
                    except OSError:  # replaced or gone meanwhile, or closed to an agent that is not root
                        yield _Entry(current, name, folder=True)
                    continue
                left = levels.pop()
                if not levels:
                    return
                current = _replace(current, os.open("..", _FOLDER, dir_fd=current))
                if _identity(current) != levels[-1].identity:
                    raise UnsafePath(f"folder {left.name!r} was moved while it was being read")
                yield _Entry(current, left.name, folder=True)
            current = _replace(current, below)
    finally:
        os.close(current)


def _listed(descriptor: int) -> tuple[list[str], list[str]]:
    """Return the names of entries other than folders, and of folders."""
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    return files, folders


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _open(parent: int, name: str, flags: int, path: Path) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kind = "a link" if stat.S_ISLNK(found.st_mode) else "not a folder"
        raise UnsafePath(f"{path} is {kind} (of uid {found.st_uid}); it is not followed") from None


def _replace(descriptor: int, following: int) -> int:
    os.close(descriptor)
    return following


def _checked(name: str) -> str:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise UnsafePath(f"{name!r} is not a file name")
    return name
