"""Run by path as `python -I -S <this file> TASK_FOLDER CONTAINER PARENT FAILURE PURPOSE WORD...`: enter a task.

Becomes another process of the task: a command of somebody who may (`run`, `terminal`), or one that reads or writes
files in the task's folder (`fetch`, `store`). What goes wrong before that is written to the descriptor FAILURE.
"""

# ruff: noqa: PTH100, PTH112, PTH118, PTH120
from __future__ import annotations

import fcntl
import os
import sys
import termios

sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))

from mooring.agent.supervisor import child, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mooring.agent.supervisor.record import ContainerSpec, TaskSpec

_FILES_MEMORY_BYTES = 512 * 1024 * 1024
_TERMINAL = "xterm-256color"


def main(folder: str, index: int, parent: int, failure: int, purpose: str, words: list[str]) -> None:
    os.set_inheritable(failure, False)
    task: TaskSpec | Any = record.read(f"{folder}/{record.SPEC}")
    container: ContainerSpec = dict(task["containers"][index])  # type: ignore[assignment]
    if container["cgroup"] is not None and not os.path.isdir(container["cgroup"]):
        # Of a task that has ended; only its files are left to reach.
        container["cgroup"] = None
    try:
        if purpose in ("run", "terminal"):
            _run(task, container, parent, words, terminal=purpose == "terminal")
        else:
            _move_files(task, container, parent, failure, purpose, words[0])
    except child.StartFailed as failed:
        child.tell(failure, failed)


def _run(task: TaskSpec, container: ContainerSpec, parent: int, command: list[str], *, terminal: bool) -> None:
    environment = container["environment"]
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        environment = {"TERM": _TERMINAL, **environment}
        if task["uid"] is not None:
            os.fchown(0, task["uid"], task["gid"])
    child.take_on(task, container, parent)
    child.execute(container, command, environment)


def _move_files(task: TaskSpec, container: ContainerSpec, parent: int, failure: int, purpose: str, path: str) -> None:
    # Before the change of user, who may not be able to read Python's own files.
    from mooring.agent.supervisor import files

    root = task["work_folder"]
    if container["memory_bytes"] is None or container["memory_bytes"] > _FILES_MEMORY_BYTES:
        container["memory_bytes"] = _FILES_MEMORY_BYTES
    confined = task["uid"] is not None
    child.take_on(task, container, parent, inside=root if confined else None)
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
