"""Files of a task as tar, read and written by a process that is the task's user and stays within the task's folder."""

# ruff: noqa: PTH103, PTH118, PTH119, PTH120
from __future__ import annotations

import os
import sys
import tarfile

MOST_BYTES = 16 * 1024**3
MOST_ENTRIES = 100_000


class Refused(Exception):
    """What was asked leads out of the folder, or is too much."""


def fetch(root: str, path: str) -> None:
    """Write a file or folder to standard output; what is neither file, folder nor link is left out."""
    found = _within(root, path, follow=False)
    if not os.path.lexists(found):
        raise Refused(f"there is no {path!r}")
    name = os.path.basename(found.rstrip("/")) or "."
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        archive.add(found, arcname=name, filter=_plain)
    sys.stdout.buffer.flush()


def store(root: str, path: str) -> None:
    """Take what comes on standard input apart in a folder, which is made if it is not there."""
    target = _within(root, path, follow=True)
    os.makedirs(target, exist_ok=True)
    total = entries = 0
    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            for member in archive:
                total, entries = total + member.size, entries + 1
                if total > MOST_BYTES or entries > MOST_ENTRIES:
                    raise Refused(f"more than {MOST_BYTES // 1024**3} GiB or {MOST_ENTRIES} files at once")
                _check(member)
                archive.extract(member, target, filter="data")
    except tarfile.FilterError as error:
        raise Refused(f"{_named(error.tarinfo)} leads out of the folder") from error
    except tarfile.TarError as error:
        raise Refused(f"this is no tar archive: {error}") from error


def _within(root: str, path: str, *, follow: bool) -> str:
    """The place that is meant, which no link leads out of the task's folder; `follow`: also not the place itself."""
    place = os.path.normpath(os.path.join(root, path))
    inside = os.path.realpath(root)
    folder = os.path.realpath(place if follow or place == os.path.normpath(root) else os.path.dirname(place))
    if ".." in path.split("/") or os.path.commonpath([inside, folder]) != inside:
        raise Refused(f"{path!r} leads out of the task's folder")
    return place


def _check(member: tarfile.TarInfo) -> None:
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise Refused(f"{_named(member)} leads out of the folder")
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise Refused(f"{_named(member)} is a device or a pipe; only files, folders and links are taken")


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without the names and numbers of the node's users."""
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _named(member: tarfile.TarInfo) -> str:
    return repr(member.name[:200])
