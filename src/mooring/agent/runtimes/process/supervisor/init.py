"""PID 1 of a task's PID namespace: sets up the namespaces, starts the command, reaps, and reports the exit status.

The kernel kills every other process of the namespace when this one ends, and this one ends with its supervisor.
"""

from __future__ import annotations

import os
import select
import signal

from mooring.agent.runtimes.process.supervisor import namespaces, privileges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from mooring.agent.runtimes.process.supervisor.record import TaskSpec

_HIGHEST_DESCRIPTOR = 4096


class Init:
    """The supervisor's handle of PID 1. `status`: the pipe for the command's wait status."""

    def __init__(self, pid: int, status: int, alive: int) -> None:
        self.pid = pid
        self.status = status
        self._alive = alive

    def started(self) -> None:
        """Close the pipe that proved to PID 1 that its supervisor lives, once the command has started or failed."""
        os.close(self._alive)

    def exit_status(self) -> int | None:
        """Return the wait status of the command after PID 1 has ended; None if PID 1 was killed before."""
        with os.fdopen(self.status, "rb") as file:
            text = file.read()
        return int(text) if text else None


def spawn(
    task: TaskSpec,
    tmpfs_bytes: int,
    descriptors: list[int],
    command: Callable[[], NoReturn],
    failed: Callable[[Exception], NoReturn],
) -> Init:
    """Start PID 1 of new namespaces, which runs `command` as its child or, when it cannot, `failed`.

    A process in between unshares, so that the supervisor stays in the machine's namespaces. It ends at once, and PID 1
    falls to the supervisor, its nearest subreaper. `descriptors` are those that the command needs.
    """
    status, status_end = os.pipe2(os.O_CLOEXEC)
    pids, pids_end = os.pipe2(os.O_CLOEXEC)
    alive_end, alive = os.pipe2(os.O_CLOEXEC)
    between = os.fork()
    if between == 0:
        try:
            namespaces.unshare(task)
            pid = os.fork()
        except Exception as error:
            failed(error)
        if pid == 0:
            _close_all_but([*descriptors, alive_end, status_end])
            _be_init(task, tmpfs_bytes, descriptors, alive_end, status_end, command, failed)
        os.write(pids_end, str(pid).encode())
        os._exit(0)
    for descriptor in (status_end, pids_end, alive_end):
        os.close(descriptor)
    with os.fdopen(pids, "rb") as file:
        text = file.read()
    os.waitpid(between, 0)
    # Only now is PID 1 a child of this process, and can set its parent-death signal.
    if text:
        os.write(alive, b"!")
    return Init(int(text or 0), status, alive)


def _be_init(
    task: TaskSpec,
    tmpfs_bytes: int,
    descriptors: list[int],
    alive: int,
    status: int,
    command: Callable[[], NoReturn],
    failed: Callable[[Exception], NoReturn],
) -> NoReturn:
    if not os.read(alive, 1):
        os._exit(1)
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        privileges.die_with_parent()
        # The signal is not sent for a supervisor that died before; its end of the pipe is closed then.
        if _hung_up(alive):
            os._exit(1)
        # Parents of the work folder can be traversed but not listed, as on the machine.
        os.umask(0o066)
        namespaces.mount_private(task, tmpfs_bytes)
        main = os.fork()
        if main == 0:
            command()
        for descriptor in (*descriptors, alive):
            os.close(descriptor)
        privileges.hide_memory()
        privileges.drop()
    except Exception as error:
        failed(error)
    while True:
        pid, ended = os.waitpid(-1, 0)
        if pid == main:
            os.write(status, str(ended).encode())
            os._exit(0)


def _hung_up(pipe: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def _close_all_but(descriptors: list[int]) -> None:
    """Close all inherited descriptors but these and the standard ones: lock, logs and pipes of the supervisor."""
    before = 2
    for descriptor in [*sorted(descriptors), _HIGHEST_DESCRIPTOR]:
        os.closerange(before + 1, descriptor)
        before = descriptor
