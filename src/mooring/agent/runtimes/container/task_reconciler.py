"""The reconciler of one container task, from its order until nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from uuid import UUID

import msgspec
import structlog

from mooring.agent.access import archives
from mooring.agent.access.logs import CHUNK, Line, LogSelection, joined, read_lines, read_log
from mooring.agent.node import host_ports
from mooring.agent.runtimes import outcome as outcomes
from mooring.agent.runtimes.container import access
from mooring.agent.runtimes.container import record as records
from mooring.agent.runtimes.container.container_start import start_container
from mooring.agent.runtimes.container.engine import (
    Engine,
    EngineRefused,
    EngineTransient,
    EngineUnavailable,
)
from mooring.agent.runtimes.container.output import (
    after,
    save_output,
    timed_output,
    unread_lines,
    unread_output,
    untimed,
)
from mooring.agent.runtimes.container.probes import Kind, Probing
from mooring.agent.runtimes.container.record import Stopping, TaskRecord
from mooring.agent.runtimes.container.shared_state import SharedState
from mooring.agent.runtimes.container.specification import (
    NODE,
    TASK,
    Role,
    name_of,
    working_folder,
)
from mooring.agent.runtimes.container.state_machine import (
    ContainerState,
    Send,
    Start,
    crashes,
    crashes_of,
    decided,
    exit_of,
    is_final,
    last_exit,
    network_holder,
    next_steps,
    passed,
    sidecars,
)
from mooring.agent.runtimes.contract import Observed, StopCause, TaskChannel
from mooring.agent.runtimes.records import ExitRecord
from mooring.model.errors import MooringError, NotFound
from mooring.model.workloads.output import OutputPosition
from mooring.wire.agents.agent_protocol import FetchFiles, Purpose, StoreFiles
from mooring.wire.agents.desired_tasks import ContainerSpec, DesiredTask, EndWarning
from mooring.wire.workloads.uploads import WORKSPACE

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 2.0
_POLL_SECONDS = 0.2
_MAX_TRANSIENT_ERRORS = 30
"""Consecutive transient errors of the engine after which a container counts as not startable."""


class TaskReconciler:
    def __init__(
        self,
        shared: SharedState,
        record: TaskRecord,
        order: DesiredTask | None = None,
        reserved: contextlib.ExitStack | None = None,
    ) -> None:
        """`reserved`: the reservations of the task's ports, to be released when nothing of the task is left."""
        self.record = record
        self.seen: dict[str, ContainerState] = {}
        self._shared = shared
        self._order = order if order is not None else record.task
        """The order with its secrets and logins, until they are used."""
        self._signal = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._cleared = asyncio.Event()
        if record.removed:
            self._cleared.set()
        self._loop: asyncio.Task[None] | None = None
        self._disconnected = list(record.commands)
        """Commands whose user has disconnected and that have to be ended."""
        self._transient_errors = 0
        """Consecutive failures of the engine to answer about the task."""
        self._probing = Probing(shared.connected_engine, self._probed)
        self._reserved = reserved if reserved is not None else contextlib.ExitStack()

    @property
    def task_id(self) -> UUID:
        return self.record.task.task_id

    def begin(self) -> None:
        self._loop = asyncio.create_task(self._run_until_cleared())

    async def close(self) -> None:
        """Stop reconciling; the containers continue."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self._probing.close()
        self._reserved.close()

    def notify(self) -> None:
        self._signal.set()

    def stop(self, grace_seconds: int | None, cause: StopCause) -> None:
        record = self.record
        if record.outcome is not None:
            return
        grace = record.task.grace_seconds if grace_seconds is None else grace_seconds
        kill_at = time.time() + max(grace, 0)
        if record.stop is None:
            record.stop = Stopping(kill_at=kill_at, cause="" if decided(record, self.seen) else cause)
        record.stop.kill_at = min(kill_at, record.stop.kill_at)
        record.stop.grace_seconds = grace
        self._stop_asked.set()
        self.notify()
        self._save()

    def warn(self, warning: EndWarning) -> None:
        if self.record.outcome is None:
            self.record.warning = warning
            self._save()
            self.notify()

    def running(self) -> set[str]:
        """Return the ids of its running containers, as last seen."""
        return {found.id for found in self.seen.values() if found.status == "running"}

    def pids(self) -> list[int]:
        """Return the first processes of its running containers."""
        return [found.pid for found in self.seen.values() if found.status == "running" and found.pid]

    def ids(self) -> set[str]:
        return {found.id for found in self.seen.values()}

    def acknowledge(self) -> None:
        self.record.acknowledged = True
        self._save()

    def observed(self) -> Observed:
        record, stop = self.record, self.record.stop
        lasting = (*sidecars(record), *record.task.containers)
        if record.outcome is not None:
            seen = outcomes.outcome(record.outcome, gone=record.removed, acknowledged=record.acknowledged)
        else:
            fetcher = None if record.began else self._shared.fetcher
            seen = Observed(
                status="RUNNING" if record.ran else "PREPARING",
                reason="" if fetcher is None else fetcher.progress_of(record.task),
                ran=record.ran,
                restarts=sum(record.restarts.values()),
                crashes=crashes(record, self.seen),
                last_exit=None if (ended := last_exit(record, self.seen)) is None else outcomes.last_exit(ended),
                stop_grace_seconds=stop.grace_seconds if stop is not None else None,
                ready=record.ran and all(self._ready(each) for each in lasting),
                warning=record.warning,
            )
        name = record.task.workload_name
        return replace(seen, workload_name=name, digests=record.digests, address=record.address)

    def containers(self) -> tuple[ContainerSpec, ...]:
        return (*self.record.task.init_containers, *self.record.task.containers)

    def _ready(self, container: ContainerSpec) -> bool:
        """Return whether the container runs and is ready in this run; before the first look, as recorded."""
        since, found = self.record.ready.get(container.name, 0.0), self.seen.get(container.name)
        runs = found is None or found.status == "running"
        if container.readiness is None:
            return runs or is_final(self.record, container, self.seen)
        return since > 0 and runs and (found is None or found.started_at == since)

    async def _probed(self, name: str, kind: Kind, well: bool) -> None:
        """Handle the result of a probe."""
        record, found = self.record, self.seen.get(name)
        if found is None or record.outcome is not None:
            return
        if kind == "readiness" and well is not self._ready(self.container(name)[0]):
            log.info("readiness of a container", task=str(self.task_id), container=name, ready=well)
            record.ready = {**record.ready, name: found.started_at if well else 0.0}
            self._save()
            self._shared.changed()
        elif kind == "liveness" and not well:
            if name not in record.unhealthy:
                log.warning("container killed: its liveness probe failed", task=str(self.task_id), container=name)
                record.unhealthy.append(name)
                self._save()
            await self._shared.connected_engine().signal(name_of(self.task_id, name), "SIGKILL")

    def container(self, name: str) -> tuple[ContainerSpec, Role]:
        task = self.record.task
        for each in task.containers:
            if each.name == name:
                return each, "main"
        for each in task.init_containers:
            if each.name == name:
                return each, "sidecar" if each.sidecar else "init"
        names = ", ".join(each.name for each in self.containers())
        raise NotFound(f"the task has no container {name!r}; there are: {names}", code="unknown-container")

    async def logs(self, name: str, selection: LogSelection) -> AsyncIterator[bytes]:
        """Yield the output of a container, including that of its earlier runs."""
        if not selection.timestamps:
            async for line in self._lines(name, selection):
                for piece in _pieces(line.data):
                    yield piece
            return
        async for line in self._lines(name, selection):
            for piece in joined([line]):
                yield piece

    async def _lines(self, name: str, selection: LogSelection) -> AsyncIterator[Line]:
        """Yield the output; without times asked for, in pieces of any size."""
        container, _ = self.container(name)
        terminal, tail, since = container.terminal, selection.tail, selection.since
        from_start, timed = tail is None and since is None, selection.timestamps or since is not None
        position, last_start = OutputPosition(), 0.0
        while self.record.outcome is None:
            found = self.seen.get(name)
            if found is not None and found.started_at > last_start:
                engine, full = self._shared.connected_engine(), name_of(self.task_id, name)
                output: AsyncIterator[Line]
                if last_start:
                    unread = unread_lines if timed else unread_output
                    output = unread(engine, full, position, terminal=terminal, from_start=from_start)
                elif timed:
                    output = timed_output(
                        engine, full, terminal=terminal, tail=tail, follow=selection.follow, since=since
                    )
                else:
                    output = untimed(engine.output(full, terminal=terminal, tail=tail, follow=selection.follow))
                async for line in output:
                    position = position.after(line.data)
                    yield line
                last_start = found.started_at
            if not selection.follow:
                return
            await asyncio.sleep(_POLL_SECONDS)
        await self._cleared.wait()
        if not last_start:
            async for line in self._saved(name, selection):
                yield line
            return
        # Podman ends the stream of a container before its last lines.
        saved = [line async for line in self._saved(name, LogSelection(timestamps=selection.timestamps))]
        begin = position.found_in(b"".join(line.data for line in saved), from_start=from_start)
        if begin is not None:
            for line in after(begin, saved):
                yield line

    async def _saved(self, name: str, selection: LogSelection) -> AsyncIterator[Line]:
        """Yield the output that was saved before the container was removed."""
        path, files = self._shared.paths.output(self.task_id, name), self._shared.options.log_files
        tail, since = selection.tail, selection.since
        if selection.timestamps:
            stored = read_lines(path, files, tail=tail, follow=False, ended=lambda: True, since=since)
            async for portion in stored:
                for line in portion:
                    yield line
        else:
            pieces = read_log(path, files, tail=tail, follow=False, ended=lambda: True, since=since)
            async for line in untimed(pieces):
                yield line

    async def reach(self, name: str | None, purpose: Purpose) -> TaskChannel:
        """Open a channel into a running container, by default the first."""
        task = self.record.task
        container, _ = self.container(name or task.containers[0].name)
        if isinstance(purpose, FetchFiles | StoreFiles) and (folder := working_folder(task, container)):
            purpose = msgspec.structs.replace(purpose, path=posixpath.join(folder, purpose.path))
        if isinstance(purpose, FetchFiles) and task.upload_id is not None and self.record.removed:
            path = archives.within(WORKSPACE, purpose.path)
            return archives.FolderArchive(self._shared.paths.workspace(task.task_id), path)
        seen = access.running(self.seen.get(container.name), container.name)
        ports = [port for each in task.containers for port in each.ports] or task.ports
        full = name_of(self.task_id, container.name)
        return await access.reach(self._shared.connected_engine(), full, seen, container, ports, purpose, self)

    def command_started(self, command: str) -> None:
        self.record.commands.append(command)
        self._save()

    def command_detached(self, command: str, *, ended: bool) -> None:
        if ended:
            self.record.commands.remove(command)
            self._save()
        else:
            self._disconnected.append(command)
            self.notify()

    # State machine

    async def _run_until_cleared(self) -> None:
        while not self._cleared.is_set():
            self._signal.clear()
            due: float | None = time.time() + _RETRY_SECONDS
            try:
                due = await self._advance()
                self._transient_errors = 0
            except EngineUnavailable as problem:
                log.debug("a task waits for the engine", task=str(self.task_id), reason=problem.message)
            except EngineRefused as refusal:
                self._transient_errors += 1
                log_refusal = log.warning if self._transient_errors == 1 else log.debug
                log_refusal(
                    "the engine does not answer about a task; trying again",
                    task=str(self.task_id),
                    reason=refusal.message,
                    attempt=self._transient_errors,
                )
            except Exception:  # an error of one task must not end the agent, and is retried
                log.exception("a task could not be reconciled", task=str(self.task_id))
            self._shared.changed()
            if self._cleared.is_set():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(due - time.time(), 0)):
                    await self._signal.wait()

    async def _advance(self) -> float | None:
        """Observe the containers, take the steps that are due, and return the time of the next look."""
        engine = self._shared.connected_engine()
        record = self.record
        if record.outcome is None and record.stop is None and not record.began:
            await self._make_ready(engine)
        if record.outcome is None:
            await self._observe(engine)
            step = next_steps(record, self.seen, time.time())
            if step.stopping is not None:
                record.stop, record.failed = step.stopping, step.failed
                self._save()
                return time.time()
            if step.outcome is None:
                await self._take_steps(engine, step.steps)
                return time.time() if any(isinstance(each, Start) for each in step.steps) else step.due
            record.outcome = step.outcome
            await self._probing.close()
            self._save()
            self._shared.changed()
        return await self._clear(engine)

    async def _make_ready(self, engine: Engine) -> None:
        """Prepare images, volumes and secrets, everything that can fail. An order to stop ends the wait."""
        record, paths = self.record, self._shared.paths
        fetching = asyncio.create_task(self._shared.images().of_task(self._order))
        stopped = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({fetching, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done():
                return
            pulled = await fetching
            record.images = {name: image.id for name, image in pulled.items()}
            record.digests = {name: image.digest for name, image in pulled.items()}
            paths.write_secrets(self._order)
            paths.write_scripts(record.task)
            paths.make_volumes(record.task)
            # Something else may have taken a port while an image was pulled.
            await asyncio.to_thread(host_ports.check, host_ports.ports_of(record.task))
        except (EngineUnavailable, EngineTransient):
            raise
        except (MooringError, OSError) as problem:
            code = problem.code if isinstance(problem, MooringError) else "start-failed"
            text = problem.message if isinstance(problem, MooringError) else f"cannot prepare the task: {problem}"
            record.outcome = ExitRecord(ended_at=time.time(), failure=code, error=text)
        finally:
            stopped.cancel()
            fetching.cancel()
        self._order = record.task
        record.began = True
        self._save()

    async def _observe(self, engine: Engine) -> None:
        record, task = self.record, self.record.task
        found: dict[str, ContainerState] = {}
        for each in self.containers():
            seen = await engine.seen(name_of(task.task_id, each.name))
            if seen is not None and seen.labels.get(NODE) == str(self._shared.node_id):
                found[each.name] = seen
        self.seen = found
        for command in list(self._disconnected):
            await access.end_disconnected(command, [seen.pid for seen in found.values()])
            self._disconnected.remove(command)
            self.command_detached(command, ended=True)
        before = msgspec.json.encode(record)
        for name, seen in found.items():
            if seen.status == "running" and seen.pid:
                self._shared.memory.follow(seen.id, seen.pid)
            if seen.started_at and name not in record.started:
                record.started.append(name)
            unknown = seen.exit_code and not seen.out_of_memory and name not in record.starved
            if unknown and await self._shared.memory.oom_killed(seen.id, seen.started_at):
                record.starved.append(name)
        record.passed = passed(record, found)
        record.ran = record.ran or all(each.name in record.started for each in task.containers)
        holder = found.get(network_holder(record))
        record.address = holder.address if holder is not None and holder.address else record.address
        if msgspec.json.encode(record) != before:
            self._save()
        self._probing.follow(self.containers(), found)

    async def _take_steps(self, engine: Engine, steps: tuple[Start | Send, ...]) -> None:
        record = self.record
        for step in steps:
            full = name_of(self.task_id, step.name)
            if isinstance(step, Start):
                async with self._shared.starts:
                    await self._start(engine, step)
            else:
                await engine.signal(full, f"SIG{step.signal}")
                if record.stop is not None:
                    record.stop.signalled.append(step.name)
                elif record.warning is not None:
                    record.warned_at = record.warning.at
            self._save()

    async def _start(self, engine: Engine, step: Start) -> None:
        """Create a container before it is started, so that after a crash in between the next agent continues."""
        record = self.record
        container, role = self.container(step.name)
        crashed_before = dict(record.crashes)
        if step.again:
            if (left := self.seen.get(step.name)) is not None:
                record.crashes[step.name] = crashes_of(record, step.name, left)
                record.last_exit = exit_of(record, step.name, left)
            record.restarts[step.name] = record.restarts.get(step.name, 0) + 1
            record.starved = [name for name in record.starved if name != step.name]
            record.unhealthy = [name for name in record.unhealthy if name != step.name]
            self._save()
        try:
            await start_container(engine, self._shared, record, container, role, left=self.seen.get(step.name))
        except EngineRefused as refusal:
            if isinstance(refusal, EngineTransient) and self._transient_errors < _MAX_TRANSIENT_ERRORS:
                if step.again:  # the next look shows whether it was started
                    record.restarts[step.name] -= 1
                    record.crashes = crashed_before
                raise
            log.info("container not started", task=str(self.task_id), container=step.name, reason=refusal.message)
            record.errors[step.name] = refusal.message
        except MooringError as problem:
            if isinstance(problem, EngineUnavailable):
                raise
            record.errors[step.name] = problem.message
        else:
            if step.name not in record.started:
                record.started.append(step.name)
            record.rejoin = [name for name in record.rejoin if name != step.name]
            if step.again and step.name == network_holder(record):
                await self._end_sharers(engine, step.name)

    async def _end_sharers(self, engine: Engine, holder: str) -> None:
        """Restart the containers that share the network of a restarted one, which has a new network."""
        for name, found in self.seen.items():
            if name != holder and found.status == "running":
                self.record.rejoin.append(name)
                await engine.signal(name_of(self.task_id, name), "SIGKILL")

    # End

    async def _clear(self, engine: Engine) -> float | None:
        """Save the output, then remove all containers, those that others depend on last."""
        record, task = self.record, self.record.task
        for each in reversed(self.containers()):
            full = name_of(task.task_id, each.name)
            found = await engine.seen(full)
            if found is not None and found.labels.get(TASK) == str(task.task_id):
                try:
                    path = self._shared.paths.output(task.task_id, each.name)
                    await save_output(engine, full, path, self._shared.options, terminal=each.terminal)
                except OSError as error:  # a full disk must not prevent the removal
                    log.warning("what a container said is lost", container=full, reason=str(error))
                self._shared.memory.end(found.id)
                try:
                    await engine.remove(full)
                except EngineRefused as refusal:
                    log.warning("container not removed yet", container=full, reason=refusal.message)
                    return time.time() + _RETRY_SECONDS
        await asyncio.to_thread(self._shared.paths.remove_private, task.task_id)
        self._reserved.close()
        record.removed = True
        self._save()
        self._cleared.set()
        await self._shared.networks.clean_up(engine, self._shared.workloads)
        return None

    def _save(self) -> None:
        records.write(self._shared.paths.record(self.task_id), self.record)


def _pieces(data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), CHUNK):
        yield data[begin : begin + CHUNK]
