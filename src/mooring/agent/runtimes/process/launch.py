"""Start a task's supervisor exactly once, and identify it by lock, boot id, pid and start time."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mooring.agent.runtimes.process.supervisor import record

_SUPERVISOR = Path(__file__).parent / "supervisor" / "__main__.py"
_LOCK_DESCRIPTOR = 3


def launch(folder: Path, lock: int, reserved: Sequence[int] = ()) -> int:
    """Start the supervisor in its own session; it inherits only the lock and the reservations of the task's ports."""
    messages = str(folder / "supervisor.log")
    inherited = (lock, *reserved)
    # Different numbers than in the supervisor: duplicating a descriptor onto itself would leave it close-on-exec.
    above = _LOCK_DESCRIPTOR + len(inherited)
    sources = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in inherited]
    arguments = [str(_SUPERVISOR), str(folder), str(_LOCK_DESCRIPTOR), str(len(reserved))]
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", *arguments],
            {"LANG": "C.UTF-8", "PATH": os.defpath},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                *((os.POSIX_SPAWN_DUP2, source, _LOCK_DESCRIPTOR + at) for at, source in enumerate(sources)),
            ],
            setsid=True,
            setsigmask=[signal.SIGTERM, signal.SIGHUP, signal.SIGINT],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE],
        )
    finally:
        for source in sources:
            os.close(source)


def lock(folder: Path) -> int | None:
    """Return the task's lock, or None if a supervisor holds it."""
    descriptor = os.open(folder / record.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def locked(folder: Path) -> bool:
    if not (folder / record.LOCK).exists():
        return False
    descriptor = lock(folder)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def open_process(pid: int, start_time: int | None) -> int | None:
    """Return a pidfd of the process with that start time; None if it is gone, even if its pid was reused."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    # Checked after opening: the start times differ if the pid was reused before.
    if start_time is not None and record.start_time(pid) == start_time:
        return descriptor
    os.close(descriptor)
    return None
