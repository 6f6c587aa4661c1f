"""One task of containers, kept on its course from its order until nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

import msgspec
import structlog

from mooring.agent import hugepages, limits
from mooring.agent.containers import reaching
from mooring.agent.containers import record as records
from mooring.agent.containers.course import (
    Seen,
    Send,
    Start,
    decided,
    is_final,
    network_holder,
    next_steps,
    passed,
    sidecars,
)
from mooring.agent.containers.engine import Engine, EngineGone, EngineRefused
from mooring.agent.containers.memory import MemoryWatch
from mooring.agent.containers.networks import Networks
from mooring.agent.containers.output import keep_output
from mooring.agent.containers.places import Places
from mooring.agent.containers.probes import Kind, Probing
from mooring.agent.containers.pulls import Images
from mooring.agent.containers.record import Stopping, TaskRecord
from mooring.agent.containers.specification import NODE, TASK, Place, Role, configuration, name_of
from mooring.agent.logs import CHUNK, read_log
from mooring.agent.options import Options
from mooring.agent.outcome import outcome
from mooring.agent.records import ExitRecord
from mooring.agent.runtime import Observed, Reached, StopCause
from mooring.agent.use import cgroup_of
from mooring.model.errors import MooringError, NotFound
from mooring.wire.agent import ContainerSpec, DesiredTask, EndWarning, Purpose

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 2.0
_LOOK_SECONDS = 0.2
_AT_ONCE = 4
"""Containers that are made and started at the same time on one node."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """What the tasks of a node have in common."""

    node_id: UUID
    options: Options
    places: Places
    networks: Networks
    changed: Callable[[], None]
    term: Callable[[], int]
    memory_bytes: int
    memory: MemoryWatch = field(default_factory=MemoryWatch)
    engine: Engine | None = None
    fetcher: Images | None = None
    workloads: Callable[[], Iterator[UUID]] = lambda: iter(())
    """Of all tasks that are not over yet."""
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def reached(self) -> Engine:
        if self.engine is None:
            raise EngineGone("the container engine of this node does not answer")
        return self.engine

    def images(self) -> Images:
        if self.fetcher is None:
            raise EngineGone("the container engine of this node does not answer")
        return self.fetcher


class Keeper:
    def __init__(self, shared: Shared, record: TaskRecord, order: DesiredTask | None = None) -> None:
        self.record = record
        self.seen: dict[str, Seen] = {}
        self._shared = shared
        self._order = order if order is not None else record.task
        """With its secrets and logins, until they were used."""
        self._wake = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._cleared = asyncio.Event()
        if record.removed:
            self._cleared.set()
        self._loop: asyncio.Task[None] | None = None
        self._cut_off = list(record.commands)
        """Commands in its containers that nobody is connected with any more, and that are to end."""
        self._probing = Probing(shared.reached, self._told)

    @property
    def task_id(self) -> UUID:
        return self.record.task.task_id

    def begin(self) -> None:
        self._loop = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Let go; the containers go on."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self._probing.close()

    def wake(self) -> None:
        self._wake.set()

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
        self.wake()
        self._save()

    def warn(self, warning: EndWarning) -> None:
        if self.record.outcome is None:
            self.record.warning = warning
            self._save()
            self.wake()

    def running(self) -> set[str]:
        """The ids of its containers that run, as it knows."""
        return {found.id for found in self.seen.values() if found.status == "running"}

    def pids(self) -> list[int]:
        """The first processes of its containers that run."""
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
            seen = outcome(record.outcome, gone=record.removed, acknowledged=record.acknowledged)
        else:
            fetcher = None if record.began else self._shared.fetcher
            seen = Observed(
                status="RUNNING" if record.ran else "PREPARING",
                reason="" if fetcher is None else fetcher.progress_of(record.task),
                ran=record.ran,
                restarts=sum(record.restarts.values()),
                stop_grace_seconds=stop.grace_seconds if stop is not None else None,
                ready=record.ran and all(self._ready(each) for each in lasting),
                warning=record.warning,
            )
        name = record.task.workload_name
        return replace(seen, workload_name=name, digests=record.digests, address=record.address)

    def containers(self) -> tuple[ContainerSpec, ...]:
        return (*self.record.task.init_containers, *self.record.task.containers)

    def _ready(self, container: ContainerSpec) -> bool:
        """Whether it runs and its probe, if it has one, says so of this run; not looked at yet, it is as it was."""
        since, found = self.record.ready.get(container.name, 0.0), self.seen.get(container.name)
        runs = found is None or found.status == "running"
        if container.readiness is None:
            return runs or is_final(self.record, container, self.seen)
        return since > 0 and runs and (found is None or found.started_at == since)

    async def _told(self, name: str, kind: Kind, well: bool) -> None:
        """What a probe says."""
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
                log.warning("container is not alive: killed", task=str(self.task_id), container=name)
                record.unhealthy.append(name)
                self._save()
            await self._shared.reached().signal(name_of(self.task_id, name), "SIGKILL")

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

    async def logs(self, name: str, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        """What a container has said; of one that is started again, of all its runs."""
        container, _ = self.container(name)
        since: float | None = None
        while self.record.outcome is None:
            found = self.seen.get(name)
            if found is not None and found.started_at > (since or 0.0):
                engine, full = self._shared.reached(), name_of(self.task_id, name)
                first = since is None
                async for data in engine.output(
                    full,
                    terminal=container.terminal,
                    tail=tail if first else None,
                    follow=follow,
                    since=None if first else found.started_at,
                ):
                    for begin in range(0, len(data), CHUNK):
                        yield data[begin : begin + CHUNK]
                since, tail = found.started_at, 0 if tail is not None else None
                if not follow:
                    return
            elif not follow:
                return
            await asyncio.sleep(_LOOK_SECONDS)
        if since is not None and follow:
            return
        path = self._shared.places.output(self.task_id, name)
        await self._cleared.wait()
        async for data in read_log(path, self._shared.options.log_files, tail=tail, follow=False, ended=lambda: True):
            yield data

    async def reach(self, name: str | None, purpose: Purpose) -> Reached:
        """A way into a container that runs; without a name into the first."""
        task = self.record.task
        container, _ = self.container(name or task.containers[0].name)
        seen = reaching.running(self.seen.get(container.name), container.name)
        ports = [port for each in task.containers for port in each.ports] or task.ports
        full = name_of(self.task_id, container.name)
        return await reaching.reach(self._shared.reached(), full, seen, container, ports, purpose, self)

    def command_begun(self, command: str) -> None:
        self.record.commands.append(command)
        self._save()

    def command_left(self, command: str, *, ended: bool) -> None:
        if ended:
            self.record.commands.remove(command)
            self._save()
        else:
            self._cut_off.append(command)
            self.wake()

    # The course

    async def _keep(self) -> None:
        while not self._cleared.is_set():
            self._wake.clear()
            due: float | None = time.time() + _RETRY_SECONDS
            try:
                due = await self._turn()
            except EngineGone as problem:
                log.debug("a task waits for the engine", task=str(self.task_id), reason=problem.message)
            except Exception:  # one task must not end the agent, and nothing of it may be forgotten
                log.exception("a task could not be looked after", task=str(self.task_id))
            self._shared.changed()
            if self._cleared.is_set():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(due - time.time(), 0)):
                    await self._wake.wait()

    async def _turn(self) -> float | None:
        """Look, and take the steps that are due; when the next may be."""
        engine = self._shared.reached()
        record = self.record
        if record.outcome is None and record.stop is None and not record.began:
            await self._make_ready(engine)
        if record.outcome is None:
            await self._look(engine)
            step = next_steps(record, self.seen, time.time())
            if step.stopping is not None:
                record.stop, record.failed = step.stopping, step.failed
                self._save()
                return time.time()
            if step.outcome is None:
                await self._take(engine, step.steps)
                return time.time() if any(isinstance(each, Start) for each in step.steps) else step.due
            record.outcome = step.outcome
            await self._probing.close()
            self._save()
            self._shared.changed()
        return await self._clear(engine)

    async def _make_ready(self, engine: Engine) -> None:
        """Images, volumes and secrets: all that a start needs and that can fail. An order to stop ends the wait."""
        record, places = self.record, self._shared.places
        fetching = asyncio.create_task(self._shared.images().of_task(self._order))
        stopped = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({fetching, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done():
                return
            pulled = await fetching
            record.images = {name: image.id for name, image in pulled.items()}
            record.digests = {name: image.digest for name, image in pulled.items()}
            places.write_secrets(self._order)
            places.make_volumes(record.task)
        except EngineGone:
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

    async def _look(self, engine: Engine) -> None:
        record, task = self.record, self.record.task
        found: dict[str, Seen] = {}
        for each in self.containers():
            seen = await engine.seen(name_of(task.task_id, each.name))
            if seen is not None and seen.labels.get(NODE) == str(self._shared.node_id):
                found[each.name] = seen
        self.seen = found
        for command in list(self._cut_off):
            await reaching.end_cut_off(command, [seen.pid for seen in found.values()])
            self._cut_off.remove(command)
            self.command_left(command, ended=True)
        before = msgspec.json.encode(record)
        for name, seen in found.items():
            if seen.status == "running" and seen.pid:
                self._shared.memory.follow(seen.id, seen.pid)
            if seen.started_at and name not in record.started:
                record.started.append(name)
            unknown = seen.exit_code and not seen.out_of_memory and name not in record.starved
            if unknown and await self._shared.memory.starved(seen.id, seen.started_at):
                record.starved.append(name)
        record.passed = passed(record, found)
        record.ran = record.ran or all(each.name in record.started for each in task.containers)
        holder = found.get(network_holder(record))
        record.address = holder.address if holder is not None and holder.address else record.address
        if msgspec.json.encode(record) != before:
            self._save()
        self._probing.follow(self.containers(), found)

    async def _take(self, engine: Engine, steps: tuple[Start | Send, ...]) -> None:
        record = self.record
        for step in steps:
            full = name_of(self.task_id, step.name)
            if isinstance(step, Start):
                async with self._shared.starts:
                    await self._start(engine, step, full)
            else:
                await engine.signal(full, f"SIG{step.signal}")
                if record.stop is not None:
                    record.stop.told.append(step.name)
                elif record.warning is not None:
                    record.warned_at = record.warning.at
            self._save()

    async def _start(self, engine: Engine, step: Start, full: str) -> None:
        """Made before it is started: whoever comes after a crash in between finds it and goes on."""
        record = self.record
        container, role = self.container(step.name)
        if step.again:
            record.restarts[step.name] = record.restarts.get(step.name, 0) + 1
            record.starved = [name for name in record.starved if name != step.name]
            record.unhealthy = [name for name in record.unhealthy if name != step.name]
            self._save()
        try:
            await self._run(engine, container, role, full)
        except EngineRefused as refusal:
            log.info("container not started", task=str(self.task_id), container=step.name, reason=refusal.message)
            record.errors[step.name] = refusal.message
        except MooringError as problem:
            if isinstance(problem, EngineGone):
                raise
            record.errors[step.name] = problem.message
        else:
            if step.name not in record.started:
                record.started.append(step.name)
            record.rejoin = [name for name in record.rejoin if name != step.name]
            if step.again and step.name == network_holder(record):
                await self._end_sharers(engine, step.name)

    async def _run(self, engine: Engine, container: ContainerSpec, role: Role, full: str) -> None:
        left = self.seen.get(container.name)
        if left is None:
            await self._create(engine, container, role, full)
        try:
            await self._launch(engine, container, full)
        except EngineRefused:
            if left is None or left.status != "created":
                raise
            # Of a start that was cut short, as by the end of the engine: what that has left may be in the way.
            await engine.remove(full)
            await self._create(engine, container, role, full)
            await self._launch(engine, container, full)

    async def _launch(self, engine: Engine, container: ContainerSpec, full: str) -> None:
        if await engine.initialise(full):
            await self._hold(engine, container, full)
            await engine.start(full)
        else:
            await engine.start(full)
            await self._hold(engine, container, full)

    async def _hold(self, engine: Engine, container: ContainerSpec, full: str) -> None:
        """What engines do not do: watch its memory, and hold it to its huge pages."""
        made = await engine.seen(full)
        if made is not None and made.pid:
            self._shared.memory.begin(made.id, made.pid)
            with contextlib.suppress(OSError):
                hugepages.hold(cgroup_of(made.pid), {**container.slots, **container.limits})

    async def _end_sharers(self, engine: Engine, holder: str) -> None:
        """One that is started again has another network: those that share it come back into that."""
        for name, found in self.seen.items():
            if name != holder and found.status == "running":
                self.record.rejoin.append(name)
                await engine.signal(name_of(self.task_id, name), "SIGKILL")

    async def _create(self, engine: Engine, container: ContainerSpec, role: Role, full: str) -> None:
        shared, task = self._shared, self.record.task
        place = Place(
            node_id=shared.node_id,
            term=shared.term(),
            memory_bytes=shared.memory_bytes,
            spares=limits.may_spare(),
            image=self.record.images[container.name],
            folders=shared.places.make_volumes(task),
            secrets=shared.places.secrets(task.task_id, container.name) if container.secrets else None,
            network=await self._network(engine, container.name, role),
        )
        config = configuration(task, container, role, place, engine.abilities, shared.options)
        try:
            await engine.create(full, config)
        except EngineRefused:
            made = await engine.seen(full)
            if made is None:
                # Podman does not know of one that it was killed over, and yet its name is taken until it is removed.
                await engine.remove(full)
                await engine.create(full, config)
            elif made.labels.get(TASK) != str(task.task_id):
                raise

    async def _network(self, engine: Engine, name: str, role: Role) -> str:
        holder = network_holder(self.record)
        if role == "init" or name == holder:
            return await self._shared.networks.join(engine, self.record.task.workload_id)
        found = await engine.seen(name_of(self.task_id, holder))
        if found is None or found.status != "running":
            return await self._shared.networks.join(engine, self.record.task.workload_id)
        return f"container:{found.id}"

    # The end

    async def _clear(self, engine: Engine) -> float | None:
        """Keep what was said, then remove everything, those that others depend on last."""
        record, task = self.record, self.record.task
        for each in reversed(self.containers()):
            full = name_of(task.task_id, each.name)
            found = await engine.seen(full)
            if found is not None and found.labels.get(TASK) == str(task.task_id):
                try:
                    path = self._shared.places.output(task.task_id, each.name)
                    await keep_output(engine, full, path, self._shared.options, terminal=each.terminal)
                except OSError as error:  # a full disk is not to keep what fills it
                    log.warning("what a container said is lost", container=full, reason=str(error))
                self._shared.memory.end(found.id)
                try:
                    await engine.remove(full)
                except EngineRefused as refusal:
                    log.warning("container not removed yet", container=full, reason=refusal.message)
                    return time.time() + _RETRY_SECONDS
        await asyncio.to_thread(self._shared.places.remove_private, task.task_id)
        record.removed = True
        self._save()
        self._cleared.set()
        await self._shared.networks.tidy(engine, self._shared.workloads)
        return None

    def _save(self) -> None:
        records.write(self._shared.places.record(self.task_id), self.record)
