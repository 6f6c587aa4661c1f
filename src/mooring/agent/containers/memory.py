"""Was a container ended for want of memory? Docker says so; for Podman on cgroup v1 the kernel is asked.

The kernel tells through a descriptor when a group is out of memory, and once more when the group is removed: so two
tidings, or one while the group is there, mean that memory was short, however late they are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import structlog

from mooring.agent.use import cgroup_of

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Watch:
    tidings: int
    """The descriptor that the kernel writes to."""
    group: Path
    count: int = 0
    starved: bool = False


class MemoryWatch:
    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}

    def begin(self, container: str, pid: int) -> None:
        """Listen for the group of this process, under the container's id."""
        self.end(container)
        group = cgroup_of(pid).get("memory")
        if group is None:
            return
        try:
            tidings = _listen(group)
        except OSError as error:
            log.debug("memory cannot be watched", group=str(group), reason=str(error))
            return
        self._watches[container] = _Watch(tidings, group)
        asyncio.get_running_loop().add_reader(tidings, self._told, container)

    def follow(self, container: str, pid: int) -> None:
        """Listen, unless somebody does: an agent before this one may have started the container."""
        if container not in self._watches:
            self.begin(container, pid)

    def starved(self, container: str) -> bool:
        watch = self._watches.get(container)
        if watch is None:
            return False
        self._told(container)
        return watch.starved

    def end(self, container: str) -> None:
        watch = self._watches.pop(container, None)
        if watch is not None:
            asyncio.get_running_loop().remove_reader(watch.tidings)
            os.close(watch.tidings)

    def close(self) -> None:
        for container in list(self._watches):
            self.end(container)

    def _told(self, container: str) -> None:
        watch = self._watches[container]
        with contextlib.suppress(BlockingIOError):
            watch.count += os.eventfd_read(watch.tidings)
            watch.starved = watch.count > 1 or watch.group.exists()


def _listen(group: Path) -> int:
    tidings = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        control = os.open(group / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            (group / "cgroup.event_control").write_text(f"{tidings} {control}")
        finally:
            os.close(control)
    except OSError:
        os.close(tidings)
        raise
    return tidings
