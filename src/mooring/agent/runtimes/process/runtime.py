"""The process runtime: blocking work runs in a thread, and changes are noticed without polling."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Set
from typing import TypeVar
from uuid import UUID
from weakref import WeakSet

from mooring.agent import folders
from mooring.agent.access.commands import Command
from mooring.agent.access.logs import read_log
from mooring.agent.node import limits
from mooring.agent.node.measurement import Meter
from mooring.agent.runtimes.contract import (
    Observed,
    RuntimeContext,
    StopCause,
    TaskChannel,
    Unpack,
)
from mooring.agent.runtimes.process import isolation
from mooring.agent.runtimes.process.access import ProcessAccess
from mooring.agent.runtimes.process.tasks import Processes
from mooring.model.errors import NotFound
from mooring.wire.agents.agent_protocol import Purpose, TaskMeasure
from mooring.wire.agents.desired_tasks import DesiredTask, EndWarning

Result = TypeVar("Result")

_PORTION = 50
_ENDED_POLL_SECONDS = 0.1
"""Interval for checking the remaining processes of a killed supervisor."""


class ProcessRuntime:
    """Supervisors report changes through a named pipe, a pidfd shows their death, and a slow scan is a safety net."""

    name = "process"

    def __init__(self, context: RuntimeContext) -> None:
        agent_uid = os.getuid()
        options = context.options
        self._folders = folders.prepare(context.root, context.node_id, options.shared_work_root, agent_uid=agent_uid)
        cgroups = limits.find(context.node_id)
        self.enforces: Mapping[str, str] = limits.enforcement(cgroups, agent_uid=agent_uid)
        self._processes = Processes(self._folders, options, cgroups)
        self._agent_uid = agent_uid
        self._options = options
        self._changed = context.changed
        self._one_at_a_time = asyncio.Lock()
        self._due: set[UUID] = set()
        self._scan_at = 0.0
        self._over: set[UUID] = set()
        self._watched: dict[UUID, int] = {}
        self._commands: dict[UUID, WeakSet[Command]] = {}
        """Commands that users run in tasks. Without cgroups nothing else would end them with the task."""
        self._notify: int | None = None
        self._meter = Meter()

    @property
    def isolation(self) -> isolation.Isolation:
        return self._processes.isolation

    async def open(self) -> None:
        self._processes.isolation = await asyncio.to_thread(
            isolation.find,
            self._folders.root,
            agent_uid=self._agent_uid,
            tenant_uid=self._options.uid_range[0],
            network=self._options.task_network,
        )
        path = self._folders.notify
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        os.mkfifo(path, 0o600)
        # Also open for writing, since the pipe would otherwise be at its end whenever no supervisor has it open.
        self._notify = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(self._notify, self._notified)
        await self._do(self._processes.adopt)
        self._watch()

    async def prepare(self, task: DesiredTask) -> None:
        await self._do(lambda: self._processes.prepare(task))

    async def place_files(self, task: DesiredTask, unpack: Unpack) -> None:
        # Concurrently: nothing else concerns a task that is not started.
        await asyncio.to_thread(self._processes.place_files, task, unpack)

    async def start(self, task: DesiredTask) -> None:
        await self._do(lambda: self._processes.start(task))
        self._watch()

    async def stop(self, task_id: UUID, grace_seconds: int | None, cause: StopCause) -> None:
        await self._do(lambda: self._processes.stop(task_id, grace_seconds, cause))

    async def warn(self, task_id: UUID, warning: EndWarning) -> None:
        await self._do(lambda: self._processes.warn(task_id, warning))

    async def observe(self, listed: Set[UUID]) -> Mapping[UUID, Observed]:
        now = time.monotonic()
        due: set[UUID] | None = self._due
        over, self._due, self._over = self._over, set(), set()
        if now >= self._scan_at:
            self._scan_at = now + self._options.scan_seconds
            due = None

        def refresh() -> dict[UUID, Observed]:
            self._processes.refresh(due)
            for task_id in over:
                self._processes.release(task_id)
            return self._processes.observed(listed)

        observed = await self._do(refresh)
        self._watch()
        not_gone = {task_id for task_id, seen in observed.items() if seen.ended and not seen.gone}
        if not_gone:
            self._due |= not_gone
            asyncio.get_running_loop().call_later(_ENDED_POLL_SECONDS, self._changed)
        return observed

    async def acknowledge(self, task_id: UUID) -> None:
        await self._do(lambda: self._processes.acknowledge(task_id))

    async def tidy(self, keep: Set[UUID]) -> None:
        # In portions, so that orders do not wait for a long cleanup.
        while await self._do(lambda: self._processes.measure(_PORTION)):
            pass
        while await self._do(lambda: self._processes.clean_up(keep, time.time(), _PORTION)):
            pass

    async def logs(
        self,
        task_id: UUID,
        container: str,
        tail: int | None,
        follow: bool,
        *,
        since: float | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[bytes]:
        found = self._processes.log_file(task_id, container)
        if found is None:
            raise NotFound(f"this node keeps no output of container {container!r} of task {task_id}")
        path, count = found
        output = read_log(
            path,
            count,
            tail=tail,
            follow=follow,
            ended=lambda: self._ended(task_id),
            since=since,
            timestamps=timestamps,
        )
        async for data in output:
            yield data

    async def measures(self) -> list[TaskMeasure]:
        # Concurrently, so that nothing else waits for it.
        uses = await asyncio.to_thread(self._processes.uses)
        return self._meter.measures(uses, time.monotonic())

    async def reach(self, task_id: UUID, container: str | None, purpose: Purpose) -> TaskChannel:
        known = self._processes.find(task_id)
        if known is None or known.spec is None:
            raise NotFound(f"this node has no task {task_id}")
        running = known.observed.status == "RUNNING"
        reached = await ProcessAccess(self._folders.task(task_id), known.spec, running).reach(container, purpose)
        if isinstance(reached, Command):
            self._commands.setdefault(task_id, WeakSet()).add(reached)
        return reached

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        for descriptor in self._watched.values():
            loop.remove_reader(descriptor)
        self._watched.clear()
        if self._notify is not None:
            loop.remove_reader(self._notify)
            os.close(self._notify)
            self._notify = None
        await self._do(self._processes.close)

    async def _do(self, work: Callable[[], Result]) -> Result:
        async with self._one_at_a_time:
            return await asyncio.to_thread(work)

    def _ended(self, task_id: UUID) -> bool:
        known = self._processes.known.get(task_id)
        return known is None or known.observed.ended

    def _notified(self) -> None:
        assert self._notify is not None
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self._notify, 65536).decode("ascii", "replace").splitlines():
                with contextlib.suppress(ValueError):
                    self._due.add(UUID(line))
        self._changed()

    def _watch(self) -> None:
        """Watch the pidfd of every supervisor that is not watched yet."""
        loop = asyncio.get_running_loop()
        for task_id, known in list(self._processes.known.items()):
            if known.pidfd is not None and task_id not in self._watched and task_id not in self._over:
                self._watched[task_id] = known.pidfd
                loop.add_reader(known.pidfd, self._supervisor_ended, task_id)

    def _supervisor_ended(self, task_id: UUID) -> None:
        asyncio.get_running_loop().remove_reader(self._watched.pop(task_id))
        for command in self._commands.pop(task_id, ()):
            command.kill()
        self._due.add(task_id)
        self._over.add(task_id)
        self._changed()
