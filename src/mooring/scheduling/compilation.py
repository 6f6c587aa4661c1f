"""Compiling the kernels beside everything else: until they are ready, the NumPy face decides, and decides the same.

One thread per process, started by the first scheduler. The compiled code is kept between processes (`kernels` says
where), so that this takes long only once.
"""

from __future__ import annotations

import threading

_done = threading.Event()
_started = threading.Lock()
_failure: list[BaseException] = []


def start() -> None:
    """Begin to compile, unless that was begun before."""
    if _started.acquire(blocking=False):
        threading.Thread(target=_compile, name="mooring-kernels", daemon=True).start()


def ready() -> bool:
    """The kernels can be called without a pause."""
    return _done.is_set() and not _failure


def wait(timeout_seconds: float | None = None) -> bool:
    """Begin if need be, and wait for the end. False: it takes longer, or this machine cannot compile."""
    start()
    _done.wait(timeout_seconds)
    return ready()


def failure() -> BaseException | None:
    """Why the kernels cannot be had; the NumPy face serves then."""
    return _failure[0] if _failure else None


def _compile() -> None:
    try:
        from mooring.scheduling.engine import warm_up

        warm_up()
    except BaseException as error:
        _failure.append(error)
    finally:
        _done.set()
