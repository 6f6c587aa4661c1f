"""How limits are kept on this machine: cgroup v2 where it can be used, otherwise rlimits; names are ids only.

A task's cgroup is `mooring-<node id>/<task id>`, with one below it per container and one for its supervisor. Where the
v2 hierarchy has no controllers (a hybrid machine) cgroups still tell what belongs to a task and end it as one.
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
_SHORTEST_QUOTA_MICROSECONDS = 1_000  # the kernel takes no less
_CAP_SYS_RESOURCE = 24
_WANTED = ("cpu", "io", "memory", "pids")
"""Of the second nothing is limited: it counts."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The folder below which this agent makes its cgroups, and the controllers that work there."""

    base: Path
    controllers: frozenset[str]

    def create(self, task_id: UUID, containers: Sequence[Mapping[str, int]], max_processes: int) -> list[Path]:
        """A cgroup per container with the limits of its slots."""
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


def enforcement(cgroups: Cgroups | None, *, agent_uid: int) -> dict[str, str]:
    """Per slot how a limit is kept, as the node's facts tell it."""
    controllers = cgroups.controllers if cgroups is not None else frozenset()
    return {
        "cpu": "cgroup" if "cpu" in controllers else "none",
        "memory": "cgroup" if "memory" in controllers else "rlimit",
        # The rlimit counts all processes of a user: right for a tenant's uid, wrong for a person's whole desktop.
        "pids": "cgroup" if "pids" in controllers else "rlimit" if agent_uid == 0 else "none",
        "storage": "none",
    }


def settings(slots: Mapping[str, int], max_processes: int, controllers: frozenset[str]) -> dict[str, str]:
    """The files of a container's cgroup and what is written to them."""
    values: dict[str, str] = {}
    if "cpu" in controllers and slots.get("cpu"):
        quota = max(slots["cpu"] * _PERIOD_MICROSECONDS // 1000, _SHORTEST_QUOTA_MICROSECONDS)
        values["cpu.max"] = f"{quota} {_PERIOD_MICROSECONDS}"
    if "memory" in controllers and slots.get("memory"):
        values["memory.max"] = str(slots["memory"])
        values["memory.swap.max"] = "0"
        values["memory.oom.group"] = "1"
    if "pids" in controllers:
        values["pids.max"] = str(max_processes)
    return values


@cache
def may_spare() -> bool:
    """Whether what we start may be ended later than other processes where memory runs short (CAP_SYS_RESOURCE)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def find(node_id: UUID, *, mounts: str | None = None, own: str | None = None) -> Cgroups | None:
    """The cgroup folder for this agent, made if need be; None where the system does not let it have one."""
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
        log.info("cgroups cannot be used, rlimits take their place", reason=str(error))
        return None
    return Cgroups(base, usable)


def mount_point(mountinfo: str) -> Path | None:
    """Where the v2 hierarchy is mounted: the unified one, or the v2 half of a hybrid machine."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            return Path(before.split()[4].replace("\\040", " "))
    return None


def own_group(text: str) -> str:
    """The v2 cgroup of this process from /proc/self/cgroup."""
    return next((line[3:] for line in text.splitlines() if line.startswith("0::")), "/")


def _delegated(mount: Path, own: str) -> Path | None:
    """The outermost cgroup on the way to our own that we may change: the root for root, a user's slice for a user."""
    current = mount
    for part in ("", *own.strip("/").split("/")):
        current = current / part if part else current
        if os.access(current, os.W_OK) and os.access(current / "cgroup.procs", os.W_OK):
            return current
    return None


def _enable(folder: Path, controllers: frozenset[str]) -> None:
    # One by one: a controller that cannot be had must not cost the others.
    for name in sorted(controllers):
        _set(folder / "cgroup.subtree_control", f"+{name}")


def _set(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        log.debug("cgroup setting refused", file=str(path), value=value, reason=str(error))


def remove(group: Path) -> None:
    """Take a cgroup and those right below it away, as far as they are empty."""
    with contextlib.suppress(OSError):
        for folder in group.iterdir():
            if folder.is_dir():
                with contextlib.suppress(OSError):
                    folder.rmdir()
        group.rmdir()
