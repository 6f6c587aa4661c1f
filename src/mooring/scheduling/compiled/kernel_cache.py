"""Compiler options of the kernels, and the directory that keeps their machine code between processes.

Code in the cache is executed when it is loaded, so the directory must be writable by its owner only. Its name contains
a hash of all sources of this package: the compiler itself notices a change only in the file of the function that it
loads, not in the functions and constants that were inlined from other files.

`_nrt=False` (no reference counting, hence no allocation) is the difference between one and twenty microseconds per
decision; the benchmark `placement` shows a regression.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def cache_directory() -> str | None:
    """Return a directory for compiled code that nobody else can write to, creating it if needed; None if there is none.

    `NUMBA_CACHE_DIR` comes first, then the user's cache directory, then the directory for temporary files, for services
    without a home directory. Every directory from the one with the user's id down must be private.
    """
    sources = source_hash(Path(__file__).parent)
    if sources is None:
        return None
    configured, user_cache = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):
        user_cache = user_cache or str(Path("~/.cache").expanduser())
    for parent in (configured, user_cache, tempfile.gettempdir()):
        if parent:
            of_user = Path(parent) / f"mooring-{os.getuid()}"
            directory = of_user / f"kernels-{sources}"
            with contextlib.suppress(OSError):
                Path(parent).mkdir(parents=True, exist_ok=True)
                if _ensure_private(of_user) and _ensure_private(directory):
                    return str(directory)
    return None


def source_hash(package: Path) -> str | None:
    """Return a hash of the names and contents of a package's modules; None if it was installed without sources."""
    digest = hashlib.blake2b(digest_size=8)
    modules = sorted(package.rglob("*.py"))
    for module in modules:
        source = module.read_bytes()
        digest.update(f"{module.relative_to(package)}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest() if modules else None


def _ensure_private(directory: Path) -> bool:
    """Create a directory that only its owner can write to. False if it exists with another owner, type or mode."""
    directory.mkdir(exist_ok=True, mode=0o700)
    found = directory.lstat()
    closed = not stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and closed and os.access(directory, os.W_OK)


CACHE_DIRECTORY = cache_directory()
_DISPATCHERS: list[Any] = []


def cache_is_filled() -> bool:
    """Return whether a process with this interpreter and compiler version has compiled all kernels before."""
    return CACHE_DIRECTORY is not None and _filled_marker().exists()


def mark_cache_filled() -> None:
    if CACHE_DIRECTORY is not None:
        with contextlib.suppress(OSError):
            _filled_marker().touch()


def disable_cache() -> None:
    """Neither read nor write compiled code from now on."""
    for dispatcher in _DISPATCHERS:
        dispatcher._cache.disable()


def _filled_marker() -> Path:
    return Path(CACHE_DIRECTORY or "") / f"filled-{sys.implementation.cache_tag}-numba-{numba.__version__}"


def compiled(function: _Function, **further: Any) -> _Function:
    """Compile a kernel at its first call, or load it from the cache."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False, "_nrt": False, **further}
    options["cache"] = CACHE_DIRECTORY is not None
    # Numba reads the directory when it creates the dispatcher. Other users of the compiler in this process keep theirs.
    settings: Any = numba.config
    previous, settings.CACHE_DIR = settings.CACHE_DIR, CACHE_DIRECTORY or ""
    try:
        dispatcher: _Function = numba.njit(**options)(function)
    finally:
        settings.CACHE_DIR = previous
    _DISPATCHERS.append(dispatcher)
    return dispatcher


def inlined(function: _Function) -> _Function:
    """Compile a small function that LLVM inlines into every caller."""
    return compiled(function, forceinline=True)


def merged(function: _Function) -> _Function:
    """Merge a large function into its only caller before compilation, so that it is not compiled twice."""
    return compiled(function, inline="always")
