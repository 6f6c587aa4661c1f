"""Compiling the kernels beside everything else: until they are ready, the NumPy face decides, and decides the same.

One thread per process, started by the first scheduler. The compiled code is kept between processes (`kernels` says
where), so that this takes long only once. That once happens in a process of its own with a low priority: the compiler
holds the interpreter's lock for a tenth of a second at a time, and its memory would stay.
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

_NICER_BY = 10


def start(*, urgent: bool = False) -> None:
    """Begin to compile, unless that was begun before. What is not urgent leaves the processor to others."""
    if _started.acquire(blocking=False):
        threading.Thread(target=_compile, args=(urgent,), name="mooring-kernels", daemon=True).start()


def ready() -> bool:
    """The kernels can be called without a pause."""
    return _done.is_set() and not _failure


def wait(timeout_seconds: float | None = None) -> bool:
    """Begin if need be, and wait for the end. False: it takes longer, or this machine cannot compile."""
    start(urgent=True)
    _done.wait(timeout_seconds)
    return ready()


def failure() -> BaseException | None:
    """Why the kernels cannot be had; the NumPy face serves then."""
    return _failure[0] if _failure else None


def fill_cache(nicer_by: int) -> None:
    """What the other process does: compile into the cache. It ends with the process that waits for it."""
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    os.nice(nicer_by)
    from mooring.scheduling import kernels, warming

    if kernels.CACHE_FOLDER is None:
        return
    # Servers that start together wait for one of them to compile.
    with (Path(kernels.CACHE_FOLDER) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kernels.cache_is_filled():
            warming.warm_up()
            kernels.mark_cache_filled()


def _compile(urgent: bool) -> None:
    try:
        # Imported here, since the compiler itself takes a while to import.
        from mooring.scheduling import kernels, warming

        if kernels.CACHE_FOLDER is not None and not kernels.cache_is_filled():
            _fill_cache_apart(0 if urgent else _NICER_BY)
        try:
            warming.warm_up()
        except OSError:
            # The cache cannot be written any more: what is compiled is for this process alone.
            kernels.leave_cache()
            warming.warm_up()
        kernels.mark_cache_filled()
    except BaseException as error:
        _failure.append(error)
    finally:
        _done.set()


def _fill_cache_apart(nicer_by: int) -> None:
    """Wait for another process to compile. If it cannot, this one compiles by itself and meets the reason."""
    if not sys.executable or getattr(sys, "frozen", False):
        return
    program = f"from mooring.scheduling.compilation import fill_cache; fill_cache({nicer_by})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder)}
    try:
        # Nothing is written to its standard input: that it closes tells the other process that this one is gone.
        with subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            process.wait()
    except OSError:
        return


def _end_with_standard_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
