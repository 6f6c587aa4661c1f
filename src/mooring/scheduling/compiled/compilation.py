"""Compilation of the kernels in the background: until they are ready, the NumPy path makes the same decisions.

One thread per process, started by the first scheduler. The compiled code is kept between processes (`kernel_cache`), so
only the first start takes long. A separate process with a low priority compiles then: the compiler holds the
interpreter's lock for a tenth of a second at a time, and does not return its memory.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

_done = threading.Event()
_started = threading.Lock()
_failure: list[BaseException] = []

_LOW_PRIORITY = 10


def start(*, urgent: bool = False) -> None:
    """Start compiling, once per process. Unless `urgent`, the compiler runs with a low priority."""
    if _started.acquire(blocking=False):
        threading.Thread(target=_compile, args=(urgent,), name="mooring-kernels", daemon=True).start()


def ready() -> bool:
    """Return whether the kernels are compiled."""
    return _done.is_set() and not _failure


def wait(timeout_seconds: float | None = None) -> bool:
    """Start compiling if needed, and wait. Return False on timeout or if this machine cannot compile."""
    start(urgent=True)
    _done.wait(timeout_seconds)
    return ready()


def failure() -> BaseException | None:
    """Return the error that kept the kernels from being compiled; the NumPy path is used then."""
    return _failure[0] if _failure else None


def fill_cache(niceness: int) -> None:
    """Compile into the cache. This runs in the separate process, which ends with the process that waits for it."""
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()
    os.nice(niceness)
    from mooring.scheduling.compiled import kernel_cache, warm_up

    if kernel_cache.CACHE_DIRECTORY is None:
        return
    # Servers that start together wait for one of them to compile.
    with (Path(kernel_cache.CACHE_DIRECTORY) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kernel_cache.cache_is_filled():
            warm_up.warm_up()
            kernel_cache.mark_cache_filled()


def _compile(urgent: bool) -> None:
    try:
        # Imported here, since the compiler itself takes a while to import.
        from mooring.scheduling.compiled import kernel_cache, warm_up

        if kernel_cache.CACHE_DIRECTORY is not None and not kernel_cache.cache_is_filled():
            _fill_cache_in_subprocess(0 if urgent else _LOW_PRIORITY)
        try:
            warm_up.warm_up()
        except OSError:
            # The cache is no longer writable: compile for this process only.
            kernel_cache.disable_cache()
            warm_up.warm_up()
        kernel_cache.mark_cache_filled()
    except BaseException as error:
        _failure.append(error)
    finally:
        _done.set()


def _fill_cache_in_subprocess(niceness: int) -> None:
    """Wait for a separate process to compile. If it fails, this process compiles and gets the error itself."""
    if not sys.executable or getattr(sys, "frozen", False):
        return
    program = f"from mooring.scheduling.compiled.compilation import fill_cache; fill_cache({niceness})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder)}
    try:
        # Nothing is written to its standard input; the end of file tells the separate process that this one is gone.
        with subprocess.Popen(
            # -P: modules in the working directory do not come before all others.
            [sys.executable, "-P", "-c", program],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            process.wait()
    except OSError:
        return


def _exit_at_end_of_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
