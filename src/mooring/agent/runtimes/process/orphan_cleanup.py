"""Cleanup of orphans, whose supervisor died: found by cgroup, or by the task's id in their environment."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

from mooring.agent.runtimes.process.supervisor import tree


def end(task_id: UUID, cgroup: str | None, uid: int | None) -> bool:
    """Kill remaining processes; return True if there were none."""
    if cgroup is not None and tree.populated(cgroup):
        tree.kill_cgroup(cgroup)
        return False
    left = marked(task_id, os.getuid() if uid is None else uid)
    tree.kill_processes(left)
    return not left


def marked(task_id: UUID, uid: int) -> list[int]:
    """Return the living processes of the user that have the task's id in their environment, and their descendants."""
    marker = f"MOORING_TASK_ID={task_id}".encode()
    found: set[int] = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            # A tenant can forge the variable, so it only counts for processes of the tenant's user.
            mine = folder.stat().st_uid == uid and marker in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mine:
            found.add(int(folder.name))
            found.update(tree.descendants(int(folder.name)))
    return sorted(found)
