"""Was a container ended for want of memory? Docker says so; for Podman on cgroup v1 the kernel is asked.

The kernel tells through a descriptor when a group is out of memory, and once more when the group is removed: so two
tidings, or one while the group is there, mean that memory was short, however late they are read. Of what ended while
nobody listened its log tells, as far as that goes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from mooring.agent.use import cgroup_of

log = structlog.get_logger(__name__)

_LONGEST_MESSAGE_BYTES = 8192
_CLOCKS_APART_SECONDS = 0.5
"""By which the kernel's clock may be behind; a container is started again a second after its end at the earliest."""


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

    async def starved(self, container: str, started_at: float) -> bool:
        """Whether memory was short in its run that began then."""
        watch = self._watches.get(container)
        if watch is None:
            return await asyncio.to_thread(_logged, container, started_at)
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


def _logged(container: str, started_at: float) -> bool:
    """Whether the kernel's log says that it ended a process of the container since then for the container's limit."""
    booted_at = time.time() - time.monotonic()
    limit = re.compile(rf"oom-kill:constraint=CONSTRAINT_MEMCG,.*,task_memcg=[^,]*{re.escape(container)}")
    return any(
        booted_at + seconds > started_at - _CLOCKS_APART_SECONDS for seconds, text in _messages() if limit.match(text)
    )


def _messages() -> Iterator[tuple[float, str]]:
    """What the kernel has said, each with the seconds since its start; nothing where we may not read it."""
    try:
        file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        while True:
            try:
                message = os.read(file, _LONGEST_MESSAGE_BYTES)
            except BrokenPipeError:  # what came next has just been written over
                continue
            except OSError:
                return
            head, _, text = message.decode(errors="replace").partition(";")
            yield int(head.split(",")[2]) / 1e6, text
    finally:
        os.close(file)
