"""Files of a task as tar, read and written by a process of the task's user within the task's folder."""

# ruff: noqa: PTH103, PTH118, PTH119, PTH120
from __future__ import annotations

import os
import sys

from mooring.compat.tarfile_filters import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

MAX_BYTES = 16 * 1024**3
MAX_ENTRIES = 100_000


class Refused(Exception):
    """The request leads out of the folder, or is too large."""


def fetch(root: str, path: str, out: BinaryIO | None = None) -> None:
    """Write a file or folder to standard output or `out`; only files, folders and links are included."""
    out = out or sys.stdout.buffer
    found = _within(root, path, follow=False)
    if not os.path.lexists(found):
        raise Refused(f"there is no {path!r}")
    name = os.path.basename(found.rstrip("/")) or "."
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        archive.add(found, arcname=name, filter=_plain)
    out.flush()


def store(root: str, path: str) -> None:
    """Unpack standard input into a folder, which is created if missing."""
    target = _within(root, path, follow=True)
    os.makedirs(target, exist_ok=True)
    total = entries = 0
    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            for member in archive:
                total, entries = total + member.size, entries + 1
                if total > MAX_BYTES or entries > MAX_ENTRIES:
                    raise Refused(f"more than {MAX_BYTES // 1024**3} GiB or {MAX_ENTRIES} files at once")
                _check(member)
                archive.extract(member, target, filter="data")
    except tarfile.FilterError as error:
        raise Refused(f"{_named(error.tarinfo)} leads out of the folder") from error
    except tarfile.TarError as error:
        raise Refused(f"not a tar archive: {error}") from error


def _within(root: str, path: str, *, follow: bool) -> str:
    """Return the resolved path, which must be inside the task's folder; `follow`: the last component as well."""
    target = os.path.normpath(os.path.join(root, path))
    top = os.path.realpath(root)
    folder = os.path.realpath(target if follow or target == os.path.normpath(root) else os.path.dirname(target))
    if ".." in path.split("/") or os.path.commonpath([top, folder]) != top:
        raise Refused(f"{path!r} leads out of the task's folder")
    return target


def _check(member: tarfile.TarInfo) -> None:
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise Refused(f"{_named(member)} leads out of the folder")
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise Refused(f"{_named(member)} is a device or a pipe; only files, folders and links are accepted")


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return the member without user and group names and ids of the node."""
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _named(member: tarfile.TarInfo) -> str:
    return repr(member.name[:200])
