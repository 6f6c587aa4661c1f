"""Run by path as `python -I [-S] <this file> TASK_FOLDER CONTAINER PARENT FAILURE PURPOSE WORD...`: enter a task.

It becomes another process of the task: a user's command (`run`, `terminal`), or one that reads or writes
files in the task's folder (`fetch`, `store`). Errors before that are written to the descriptor FAILURE.
"""

# ruff: noqa: PTH100, PTH112, PTH118, PTH120
from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import termios

sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 5)))

from mooring.agent.runtimes.process.supervisor import (
    child,
    namespaces,
    privileges,
    record,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from mooring.agent.runtimes.process.supervisor.record import ContainerSpec, TaskSpec

_FILES_MEMORY_BYTES = 512 * 1024 * 1024
_NOT_STARTED = 126
_OUTSIDE = 0
"""The parent's pid as seen by a child in another PID namespace."""
_HANG_UP_SECONDS = 1.5
"""Shorter than the time after which the agent kills."""


def main(folder: str, index: int, parent: int, failure: int, purpose: str, words: list[str]) -> None:
    os.set_inheritable(failure, False)
    task = record.spec(folder)
    container: ContainerSpec = dict(task["containers"][index])  # type: ignore[assignment]
    if container["cgroup"] is not None and not os.path.isdir(container["cgroup"]):
        # The task has ended; only its files can be accessed.
        container["cgroup"] = None
    try:
        if purpose in ("run", "terminal"):
            program = child.syscall_filter(task)
            if task["namespaces"]:
                parent = _enter_namespaces(folder, index, task, parent, failure)
            _run(task, container, parent, program, words, terminal=purpose == "terminal")
        else:
            _move_files(task, container, parent, failure, purpose, words[0])
    except child.StartFailed as failed:
        child.report_failure(failure, failed)


def _enter_namespaces(folder: str, index: int, task: TaskSpec, parent: int, failure: int) -> int:
    """Return in a process inside the task's namespaces, with the number of its parent as seen there.

    This process stays outside, passes signals on, and ends as the other one does.
    """
    try:
        namespaces.enter(_namespaces(folder, index, task))
        privileges.die_with_parent()
        if os.getppid() != parent:
            os._exit(_NOT_STARTED)
        pid = os.fork()
    except OSError as error:
        raise child.StartFailed(_NOT_STARTED, f"cannot enter the task: {error.strerror or error}") from error
    if pid != 0:
        os.close(failure)
        _follow(pid)
    os.setsid()
    return _OUTSIDE


def _namespaces(folder: str, index: int, task: TaskSpec) -> list[int]:
    """Open the namespaces of PID 1 of the container."""
    state = record.read(f"{folder}/{record.STATE}") or {}
    inits = state.get("inits") or []
    known = inits[index] if index < len(inits) else None
    if known is None:
        raise ProcessLookupError(errno.ESRCH, "its process does not run at the moment")
    opened = namespaces.open_all(known["pid"], task)
    # Checked after opening: the start times differ if the pid was reused before.
    if record.start_time(known["pid"]) != known["start_time"]:
        raise ProcessLookupError(errno.ESRCH, "its process does not run at the moment")
    return opened


def _follow(pid: int) -> NoReturn:
    """Represent the command to the parent: pass signals on, and exit with its exit code."""

    def pass_on(number: int, _: object) -> None:
        _kill_group(pid, number)
        if number == signal.SIGHUP:
            # The agent kills this process soon; children of the command must not outlive it.
            signal.setitimer(signal.ITIMER_REAL, _HANG_UP_SECONDS)

    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGALRM, lambda *_: _kill_group(pid, signal.SIGKILL))
    for descriptor in range(3):
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _kill_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _run(
    task: TaskSpec,
    container: ContainerSpec,
    parent: int,
    program: bytes | None,
    command: list[str],
    *,
    terminal: bool,
) -> None:
    environment = container["environment"]
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        environment = child.terminal_environment(environment)
        if task["uid"] is not None:
            os.fchown(0, task["uid"], task["gid"])
    child.become_task_process(task, container, parent, program)
    child.execute(container, command, environment)


def _move_files(task: TaskSpec, container: ContainerSpec, parent: int, failure: int, purpose: str, path: str) -> None:
    # Imported before the change of user, who may not be able to read Python's files.
    from mooring.agent.runtimes.process.supervisor import files

    root = task["work_folder"]
    if container["memory_bytes"] is None or container["memory_bytes"] > _FILES_MEMORY_BYTES:
        container["memory_bytes"] = _FILES_MEMORY_BYTES
    confined = task["uid"] is not None
    child.become_task_process(task, container, parent, child.syscall_filter(task), chroot_to=root if confined else None)
    if confined:
        root = "/"
    os.chdir(root)
    os.close(failure)
    try:
        (files.fetch if purpose == "fetch" else files.store)(root, path)
    except files.Refused as refusal:
        reason = str(refusal)
    except (OSError, MemoryError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or "out of memory"
    else:
        os._exit(0)
    os.write(2, reason.encode("utf-8", "replace")[:4000])
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6:])
