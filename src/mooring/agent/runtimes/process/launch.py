"""Start a task's supervisor exactly once, and know it again: by its lock, its boot, its pid and its start time."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path

from mooring.agent.supervisor import record

_SUPERVISOR = Path(__file__).parent / "supervisor" / "__main__.py"
_LOCK_DESCRIPTOR = 3


def launch(folder: Path, lock: int) -> int:
    """Start the supervisor in a session of its own, with nothing of the agent but the lock."""
    messages = str(folder / "supervisor.log")
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", str(_SUPERVISOR), str(folder), str(_LOCK_DESCRIPTOR)],
        {"LANG": "C.UTF-8", "PATH": os.defpath},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, lock, _LOCK_DESCRIPTOR),
        ],
        setsid=True,
        setsigmask=[signal.SIGTERM, signal.SIGHUP, signal.SIGINT],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE],
    )


def lock(folder: Path) -> int | None:
    """The task's lock, or None when a supervisor has it."""
    opened = os.open(folder / record.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # Away from the number that the supervisor gets it under: duplicating onto itself would keep it closed there.
    descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _LOCK_DESCRIPTOR + 1)
    os.close(opened)
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
    """A descriptor of the process that began at that time; None when it is gone, even if its number was given anew."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    # Looked at after opening: had the number passed to another process before, the times would differ now.
    if start_time is not None and record.start_time(pid) == start_time:
        return descriptor
    os.close(descriptor)
    return None
