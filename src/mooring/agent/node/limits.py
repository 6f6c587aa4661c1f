"""Enforcement of limits: cgroup v2 if it is usable, otherwise rlimits. Names contain ids only.

A task's cgroup is `mooring-<node id>/<task id>`, with one below it per container and one for its supervisor. If the
v2 hierarchy has no controllers (a hybrid machine), cgroups still identify and kill the processes of a task.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import UUID

import structlog

log = structlog.get_logger(__name__)

_PERIOD_MICROSECONDS = 100_000
_MIN_QUOTA_MICROSECONDS = 1_000  # the kernel's minimum
_CAP_SYS_RESOURCE = 24
TMPFS_DEFAULT_BYTES = 256 * 1024 * 1024
"""Private /tmp, /var/tmp and /dev/shm of all containers of a task that requests no memory."""
_TMPFS_DIVISOR = 4
"""Without a memory controller, this part of a task's memory is for its private temporary folders."""
_SMALLEST_TMPFS_BYTES = 4096
"""One page. The kernel takes a size of 0 for no limit."""
_WANTED = ("cpu", "io", "memory", "pids")
"""`io` is only used for its counters."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The folder of this agent's cgroups, and the controllers available there."""

    base: Path
    controllers: frozenset[str]

    def create(self, task_id: UUID, containers: Sequence[Mapping[str, int]], max_processes: int) -> list[Path]:
        """Create and return a cgroup per container with the limits of its slots."""
        task = self.base / str(task_id)
        folders = [task / str(index) for index in range(len(containers))]
        task.mkdir(parents=True, exist_ok=True)
        _enable(task, self.controllers)
        (task / "supervisor").mkdir(exist_ok=True)
        for folder, slots in zip(folders, containers, strict=True):
            folder.mkdir(exist_ok=True)
            for name, value in settings(slots, max_processes, self.controllers).items():
                _set(folder / name, value)
        return folders


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits of one container."""

    data_bytes: int | None
    """RLIMIT_DATA of each process; None if a cgroup limits the memory, or nothing does."""
    tmpfs_bytes: int
    """Size of the private temporary folders, which are always bounded."""


def memory_limits(
    containers: Sequence[Mapping[str, int]], *, charged: bool, private_folders: bool
) -> list[MemoryLimits]:
    """Divide the memory of a task between the data of its processes and its private temporary folders.

    `charged`: a cgroup charges the task for files in memory, so that a tmpfs may be as large as the container's memory.
    Otherwise the two limits are independent of each other, and so are those of the containers: only a division of the
    task's memory keeps their sum within it. A task without private folders needs all of its memory for data.
    """
    memory = [slots.get("memory") or 0 for slots in containers]
    if charged or not any(memory):
        default = TMPFS_DEFAULT_BYTES // len(containers)
        return [MemoryLimits(None, _tmpfs(each or default)) for each in memory]
    parts = [each // _TMPFS_DIVISOR if private_folders else 0 for each in memory]
    tmpfs = _tmpfs(sum(parts) // len(containers))
    return [MemoryLimits(each - part or None, tmpfs) for each, part in zip(memory, parts, strict=True)]


def _tmpfs(size: int) -> int:
    return max(size, _SMALLEST_TMPFS_BYTES)


def enforcement(cgroups: Cgroups | None, *, agent_uid: int) -> dict[str, str]:
    """Return how the limit of each slot is enforced, for the node's facts."""
    controllers = cgroups.controllers if cgroups is not None else frozenset()
    return {
        "cpu": "cgroup" if "cpu" in controllers else "none",
        "memory": "cgroup" if "memory" in controllers else "rlimit",
        # The rlimit counts all processes of a user: right for a tenant's uid, wrong for a whole desktop session.
        "pids": "cgroup" if "pids" in controllers else "rlimit" if agent_uid == 0 else "none",
        "storage": "none",
    }


def settings(slots: Mapping[str, int], max_processes: int, controllers: frozenset[str]) -> dict[str, str]:
    """Return the files of a container's cgroup and their values."""
    values: dict[str, str] = {}
    if "cpu" in controllers and slots.get("cpu"):
        quota = max(slots["cpu"] * _PERIOD_MICROSECONDS // 1000, _MIN_QUOTA_MICROSECONDS)
        values["cpu.max"] = f"{quota} {_PERIOD_MICROSECONDS}"
    if "memory" in controllers and slots.get("memory"):
        values["memory.max"] = str(slots["memory"])
        values["memory.swap.max"] = "0"
        values["memory.oom.group"] = "1"
    if "pids" in controllers:
        values["pids.max"] = str(max_processes)
    return values


@cache
def can_lower_oom_score() -> bool:
    """Return whether the agent may lower OOM scores of its children (CAP_SYS_RESOURCE)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def find(node_id: UUID, *, mounts: str | None = None, own: str | None = None) -> Cgroups | None:
    """Return the cgroup folder of this agent, created if missing; None if the system does not permit one."""
    mount = mount_point(mounts if mounts is not None else Path("/proc/self/mountinfo").read_text())
    if mount is None:
        return None
    parent = _delegated(mount, own_group(own if own is not None else Path("/proc/self/cgroup").read_text()))
    if parent is None:
        return None
    base = parent / f"mooring-{node_id}"
    try:
        base.mkdir(exist_ok=True)
        available = frozenset((parent / "cgroup.controllers").read_text().split()) & frozenset(_WANTED)
        _enable(parent, available)
        usable = frozenset((base / "cgroup.controllers").read_text().split()) & available
    except OSError as error:
        log.info("cgroups cannot be used; limits are enforced by rlimits", reason=str(error))
        return None
    return Cgroups(base, usable)


def mount_point(mountinfo: str) -> Path | None:
    """Return the mount point of the v2 hierarchy, unified or on a hybrid machine."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            return Path(before.split()[4].replace("\\040", " "))
    return None


def own_group(text: str) -> str:
    """Return the v2 cgroup of this process from /proc/self/cgroup."""
    return next((line[3:] for line in text.splitlines() if line.startswith("0::")), "/")


def _delegated(mount: Path, own: str) -> Path | None:
    """Return the outermost writable ancestor of our cgroup: the root for root, a user's slice for a user."""
    current = mount
    for part in ("", *own.strip("/").split("/")):
        current = current / part if part else current
        if os.access(current, os.W_OK) and os.access(current / "cgroup.procs", os.W_OK):
            return current
    return None


def _enable(folder: Path, controllers: frozenset[str]) -> None:
    # One at a time, so that an unavailable controller does not affect the others.
    for name in sorted(controllers):
        _set(folder / "cgroup.subtree_control", f"+{name}")


def _set(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        log.debug("cgroup setting refused", file=str(path), value=value, reason=str(error))


def remove(group: Path) -> None:
    """Remove a cgroup and its children if they are empty."""
    with contextlib.suppress(OSError):
        for folder in group.iterdir():
            if folder.is_dir():
                with contextlib.suppress(OSError):
                    folder.rmdir()
        group.rmdir()
