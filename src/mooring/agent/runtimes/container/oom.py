"""Detection of OOM kills. Docker reports them; for Podman on cgroup v1 the kernel is asked.

The kernel signals through a descriptor when a group is out of memory, and once more when the group is removed: two
signals, or one while the group exists, mean an OOM, however late they are read. For kills while no agent listened, the
kernel log is read, as far as it goes back.
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

from mooring.agent.node.usage_counters import cgroup_of

log = structlog.get_logger(__name__)

_MAX_MESSAGE_BYTES = 8192
_CLOCKS_APART_SECONDS = 0.5
"""Tolerance for the kernel's clock. A container is restarted a second after its end at the earliest."""


@dataclass(slots=True)
class _Watch:
    event_fd: int
    """Descriptor that the kernel writes to."""
    group: Path
    count: int = 0
    oom_killed: bool = False


class MemoryWatch:
    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}

    def begin(self, container: str, pid: int) -> None:
        """Listen for OOM events of the group of this process, under the container's id."""
        self.end(container)
        group = cgroup_of(pid).get("memory")
        if group is None:
            return
        try:
            event_fd = _listen(group)
        except OSError as error:
            log.debug("OOM kills cannot be watched", group=str(group), reason=str(error))
            return
        self._watches[container] = _Watch(event_fd, group)
        asyncio.get_running_loop().add_reader(event_fd, self._on_event, container)

    def follow(self, container: str, pid: int) -> None:
        """Listen unless already done: an earlier agent may have started the container."""
        if container not in self._watches:
            self.begin(container, pid)

    async def oom_killed(self, container: str, started_at: float) -> bool:
        """Return whether the container was OOM-killed in the run that began then."""
        if (watch := self._watches.get(container)) is not None:
            self._on_event(container)
            if watch.oom_killed:
                return True
        # An agent that has just started may have begun to listen after the kill and before the group was removed.
        return await asyncio.to_thread(_logged, container, started_at)

    def end(self, container: str) -> None:
        watch = self._watches.pop(container, None)
        if watch is not None:
            asyncio.get_running_loop().remove_reader(watch.event_fd)
            os.close(watch.event_fd)

    def close(self) -> None:
        for container in list(self._watches):
            self.end(container)

    def _on_event(self, container: str) -> None:
        watch = self._watches[container]
        with contextlib.suppress(BlockingIOError):
            watch.count += os.eventfd_read(watch.event_fd)
            watch.oom_killed = watch.count > 1 or watch.group.exists()


def _listen(group: Path) -> int:
    event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        control = os.open(group / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            (group / "cgroup.event_control").write_text(f"{event_fd} {control}")
        finally:
            os.close(control)
    except OSError:
        os.close(event_fd)
        raise
    return event_fd


def _logged(container: str, started_at: float) -> bool:
    """Return whether the kernel log has an OOM kill for the container's limit since then."""
    booted_at = time.time() - time.monotonic()
    limit = re.compile(rf"oom-kill:constraint=CONSTRAINT_MEMCG,.*,task_memcg=[^,]*{re.escape(container)}")
    return any(
        booted_at + seconds > started_at - _CLOCKS_APART_SECONDS for seconds, text in _messages() if limit.match(text)
    )


def _messages() -> Iterator[tuple[float, str]]:
    """Yield the messages of the kernel log with their seconds since boot; none without permission."""
    try:
        file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        while True:
            try:
                message = os.read(file, _MAX_MESSAGE_BYTES)
            except BrokenPipeError:  # the next message has just been overwritten
                continue
            except OSError:
                return
            head, _, text = message.decode(errors="replace").partition(";")
            yield int(head.split(",")[2]) / 1e6, text
    finally:
        os.close(file)
