"""Unpacking of an archive that a task has sent, which is not trusted.

The archive is unpacked into a new folder next to its destination, where every link is one of the archive's own, and
nothing is written through a link. Only then its entries are moved: they replace files and links, and never follow them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from mooring.compat.tarfile_filters import tarfile
from mooring.model.errors import MooringError

_PREFIX = ".mooring-"


def unpack_archive(stream: IO[bytes], folder: Path, *, name: str | None) -> None:
    """Unpack a tar stream into a folder; `name`: the file or folder that was asked for, None for any.

    Raise MooringError if the archive has anything else, or anything that leads out of it; nothing is kept then.
    """
    arriving = Path(tempfile.mkdtemp(dir=folder, prefix=_PREFIX))
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                _check(member, arriving, name)
                archive.extract(member, arriving, filter="data")
        _merge(arriving, folder)
    except tarfile.TarError as problem:
        raise _refused(f"the files cannot be unpacked: {problem}") from problem
    except OSError as problem:
        where = str(problem.filename2 or problem.filename or folder)
        raise _refused(f"the files cannot be written to {where!r}: {problem.strerror or problem}") from problem
    finally:
        shutil.rmtree(arriving, ignore_errors=True)


def _check(member: tarfile.TarInfo, arriving: Path, name: str | None) -> None:
    """Raise MooringError for an entry that was not asked for or that leads through a link.

    The filter of `tarfile` resolves links, and versions of Python differ in how well (CVE-2025-4517, CVE-2025-4330).
    """
    parts = _parts(member.name)
    if name is not None and parts[:1] not in ([], [name]):
        raise _refused(f"the task sent {member.name[:200]!r}, and {name!r} was asked for; nothing was written")
    if _leads_through_link(arriving, parts[:-1]) or (
        member.islnk() and _leads_through_link(arriving, _parts(member.linkname))
    ):
        raise _refused(f"the task sent {member.name[:200]!r}, which leads through a link; nothing was written")
    path = arriving.joinpath(*parts)
    if parts and not member.isdir():
        # A later entry of the same name replaces the first, and is not written into it.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
            path.unlink()


def _leads_through_link(root: Path, parts: list[str]) -> bool:
    return ".." in parts or any(root.joinpath(*parts[:count]).is_symlink() for count in range(1, len(parts) + 1))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _merge(source: Path, target: Path) -> None:
    """Move the entries of one folder into another; folders that both have are merged."""
    folders = [(source, target)]
    while folders:
        source, target = folders.pop()
        for entry in list(os.scandir(source)):
            there = target / entry.name
            if entry.is_dir(follow_symlinks=False) and there.is_dir() and not there.is_symlink():
                folders.append((Path(entry.path), there))
            else:
                Path(entry.path).replace(there)


def _refused(reason: str) -> MooringError:
    return MooringError(reason, code="files-refused")
