"""The container runtime: finds the engine, reconnects to it, and has a reconciler for every task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Set
from pathlib import Path
from uuid import UUID

import psutil
import structlog

from mooring.agent import folders
from mooring.agent.access.logs import LogSelection
from mooring.agent.node import host_ports, hugepages, retention
from mooring.agent.node.measurement import Meter
from mooring.agent.node.volumes import VolumeFolders
from mooring.agent.runtimes import records as files
from mooring.agent.runtimes.container import measurement, record, task_paths
from mooring.agent.runtimes.container.engine import (
    Engine,
    EngineRefused,
    EngineTransient,
    EngineUnavailable,
    addresses,
)
from mooring.agent.runtimes.container.networks import Networks
from mooring.agent.runtimes.container.private_images import PrivateImages
from mooring.agent.runtimes.container.pulls import Images
from mooring.agent.runtimes.container.record import TaskRecord
from mooring.agent.runtimes.container.shared_state import SharedState
from mooring.agent.runtimes.container.specification import (
    NODE,
    TASK,
    check,
    enforces,
)
from mooring.agent.runtimes.container.task_reconciler import TaskReconciler
from mooring.agent.runtimes.contract import (
    Observed,
    Progress,
    RuntimeContext,
    StopCause,
    TaskChannel,
    Unpack,
)
from mooring.agent.runtimes.process.supervisor.record import boot_id
from mooring.agent.runtimes.records import ExitRecord
from mooring.concurrency import backoff
from mooring.concurrency.background import BackgroundTasks
from mooring.model.errors import MooringError, NotFound
from mooring.wire.agents.agent_protocol import Purpose, TaskMeasure
from mooring.wire.agents.desired_tasks import DesiredTask, EndWarning

log = structlog.get_logger(__name__)

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 5.0
_MAX_TRANSIENT_ERRORS = 30
_MISSED_SECONDS = 15.0
"""Outage of the engine that is not reported to the server, such as during an update of the engine."""


class ContainerRuntime:
    """Engine events report changes, and a slow scan is a safety net. Tasks wait during an outage of the engine."""

    name = "container"

    def __init__(self, context: RuntimeContext) -> None:
        self.enforces: Mapping[str, str] = {}
        self._context = context
        self._options = context.options
        self._label = f"{NODE}={context.node_id}"
        self._reconcilers: dict[UUID, TaskReconciler] = {}
        """Living tasks, and those whose end the server has not stored yet."""
        self._over: dict[UUID, TaskReconciler] = {}
        """Acknowledged tasks, whose output is kept until it is removed."""
        sockets = [Path(each.removeprefix("unix://")) for each in addresses(self._options.engine) if "unix" in each]
        volumes = VolumeFolders(context.root, self._options.host_paths, tuple(sockets))
        self._paths = task_paths.make(context.root, context.node_id, volumes)
        self._shared = SharedState(
            node_id=context.node_id,
            options=self._options,
            paths=self._paths,
            networks=Networks(context.node_id, wanted=self._options.container_networks),
            changed=context.changed,
            term=context.term,
            memory_bytes=psutil.virtual_memory().total,
            workloads=self._workloads,
        )
        self._meter = Meter()
        self._private_images = PrivateImages(context.root / "private-images.json")
        self.background = BackgroundTasks()
        self._looked = asyncio.Event()
        self._lost_at: float | None = None
        """Time when the engine stopped answering."""

    @property
    def available(self) -> bool:
        """Return whether tasks can be started here, now or soon."""
        recently = self._lost_at is not None and time.monotonic() - self._lost_at < _MISSED_SECONDS
        return self._shared.engine is not None or recently

    async def open(self) -> None:
        for task_id in list(self._paths.known()):
            self._adopt(task_id)
        self._paths.pinned.clean_up(self._reconcilers.__contains__)
        self.background.start("container engine", self._stay_connected)
        await self._looked.wait()
        if not self.available:
            log.info("no container engine answers; until one does, this node runs no containers")
        for reconciler in self._reconcilers.values():
            reconciler.begin()

    async def prepare(self, task: DesiredTask) -> None:
        check(task)
        await asyncio.to_thread(host_ports.check, host_ports.ports_of(task))
        stumbles = 0
        while True:
            try:
                await self._shared.images().of_task(task)
                return
            except EngineUnavailable:
                if not self.available:
                    raise
            except EngineTransient:
                stumbles += 1
                if stumbles == _MAX_TRANSIENT_ERRORS:
                    raise
            await asyncio.sleep(_MIN_PAUSE_SECONDS)

    async def place_files(self, task: DesiredTask, unpack: Unpack) -> None:
        await asyncio.to_thread(self._paths.place_files, task, unpack)

    def progress(self, task: DesiredTask) -> Progress | None:
        fetcher = self._shared.fetcher
        heard = 0 if fetcher is None else fetcher.message_count(task)
        return Progress(fetcher.progress_of(task), heard) if fetcher is not None and heard else None

    async def start(self, task: DesiredTask) -> None:
        if task.task_id in self._reconcilers or task.task_id in self._over:
            return
        check(task)
        if not self.available:
            raise MooringError("no container engine answers on this node", code="runtime-missing")
        with contextlib.ExitStack() as reserving:
            ports = host_ports.ports_of(task)
            await asyncio.to_thread(reserving.enter_context, host_ports.reserved(ports))
            self._paths.task(task.task_id).mkdir(mode=0o700, exist_ok=True)
            stored = record.of(task, boot_id())
            record.write(self._paths.record(task.task_id), stored)
            reconciler = TaskReconciler(self._shared, stored, task, reserving.pop_all())
        self._reconcilers[task.task_id] = reconciler
        reconciler.begin()

    async def stop(self, task_id: UUID, grace_seconds: int | None, cause: StopCause) -> None:
        if (reconciler := self._reconcilers.get(task_id)) is not None:
            reconciler.stop(grace_seconds, cause)

    async def warn(self, task_id: UUID, warning: EndWarning) -> None:
        if (reconciler := self._reconcilers.get(task_id)) is not None:
            reconciler.warn(warning)

    async def observe(self, listed: Set[UUID]) -> Mapping[UUID, Observed]:
        over = {task_id: self._over[task_id].observed() for task_id in listed if task_id in self._over}
        return {**over, **{task_id: reconciler.observed() for task_id, reconciler in self._reconcilers.items()}}

    async def images(self) -> Mapping[str, int]:
        return await self._shared.images().present()

    async def measures(self) -> list[TaskMeasure]:
        running = {task_id: pids for task_id, reconciler in self._reconcilers.items() if (pids := reconciler.pids())}
        uses, network = await asyncio.to_thread(measurement.of_tasks, running)
        return self._meter.measures(uses, time.monotonic(), network)

    async def acknowledge(self, task_id: UUID) -> None:
        reconciler = self._reconcilers.get(task_id)
        if reconciler is not None and reconciler.record.removed:
            reconciler.acknowledge()
            self._over[task_id] = self._reconcilers.pop(task_id)

    async def tidy(self, keep: Set[UUID]) -> None:
        retained = [
            retention.RetainedTask(
                task_id, reconciler.record.outcome.ended_at, folders.size_bytes(self._paths.task(task_id))
            )
            for task_id, reconciler in self._over.items()
            if task_id not in keep and reconciler.record.outcome is not None
        ]
        options = self._options
        gone = retention.expired(
            retained, now=time.time(), keep_seconds=options.keep_seconds, keep_bytes=options.keep_bytes
        )
        known = {*self._reconcilers, *self._over, *keep}
        # Files were placed for tasks that never started.
        for task_id in [*gone, *(each for each in self._paths.known() if each not in known)]:
            self._over.pop(task_id, None)
            await asyncio.to_thread(folders.remove, self._paths.task(task_id))

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
        reconciler = self._reconcilers.get(task_id) or self._over.get(task_id)
        if reconciler is None:
            raise NotFound(f"this node has no stored output of container {container!r} of task {task_id}")
        async for data in reconciler.logs(container, LogSelection(tail, follow, since, timestamps)):
            yield data

    async def reach(self, task_id: UUID, container: str | None, purpose: Purpose) -> TaskChannel:
        reconciler = self._reconcilers.get(task_id) or self._over.get(task_id)
        if reconciler is None:
            raise NotFound(f"this node has no task {task_id}")
        return await reconciler.reach(container, purpose)

    async def close(self) -> None:
        await self.background.close()
        for reconciler in self._reconcilers.values():
            await reconciler.close()
        self._shared.memory.close()
        await self._disconnect()

    def _workloads(self) -> Iterator[UUID]:
        return (each.record.task.workload_id for each in self._reconcilers.values() if not each.record.removed)

    def _adopt(self, task_id: UUID) -> None:
        """Resume a task of an earlier agent."""
        stored = files.read(self._paths.record(task_id), TaskRecord)
        if stored is None or (not stored.began and stored.outcome is None):
            # A start that a crash interrupted before anything was created: it may be retried.
            self._paths.remove_private(task_id)
            folders.remove(self._paths.task(task_id))
            return
        if stored.outcome is None and stored.boot_id != boot_id():
            stored.outcome = ExitRecord(ended_at=time.time(), failure="node-rebooted", ran=stored.ran)
            record.write(self._paths.record(task_id), stored)
        reserved = contextlib.ExitStack()
        if not stored.removed:
            reserved.enter_context(host_ports.reserved_again(host_ports.ports_of(stored.task)))
        reconciler = TaskReconciler(self._shared, stored, reserved=reserved)
        (self._over if stored.acknowledged else self._reconcilers)[task_id] = reconciler

    # The engine

    async def _stay_connected(self) -> None:
        pauses = backoff.delays(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, jitter=0)
        while True:
            try:
                if await self._connect():
                    pauses = backoff.delays(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, jitter=0)
                    await self._listen()
            except (EngineUnavailable, EngineRefused) as problem:
                log.info("the container engine does not answer", reason=problem.message)
            except Exception:
                log.exception("the events of the container engine could not be read")
            await self._disconnect()
            self._looked.set()
            before = self.available
            await asyncio.sleep(next(pauses))
            if self.available != before:
                self._context.changed()

    async def _connect(self) -> bool:
        for address in addresses(self._options.engine):
            engine = Engine(address)
            try:
                await engine.connect()
                await self._remove_strays(engine)
            except (EngineUnavailable, EngineRefused) as problem:
                await engine.close()
                log.debug("no engine", address=address, reason=problem.message)
                continue
            self._shared.engine = engine
            self._shared.fetcher = Images(
                engine.docker,
                self._private_images,
                self._context.changed,
                trusting=engine.capabilities.kind == "docker",
            )
            self.enforces = {**enforces(engine.capabilities), **_huge_pages()}
            log.info("container engine found", address=address, engine=engine.capabilities.kind)
            return True
        return False

    async def _disconnect(self) -> None:
        engine, self._shared.engine = self._shared.engine, None
        fetcher, self._shared.fetcher = self._shared.fetcher, None
        if fetcher is not None:
            await fetcher.close()
        if engine is not None:
            self._lost_at = time.monotonic()
            await engine.close()

    async def _remove_strays(self, engine: Engine) -> None:
        """Remove containers and networks of this node that belong to no known task, whose record was lost."""
        for found in await engine.listed(self._label):
            if found.labels.get(NODE) == str(self._context.node_id) and not self._has(found.labels.get(TASK, "")):
                log.warning("a container without a task is removed", container=found.id, **found.labels)
                with contextlib.suppress(EngineRefused):
                    await engine.remove(found.id)
        await self._shared.networks.clean_up(engine, self._workloads)

    def _has(self, task_id: str) -> bool:
        return any(str(known) == task_id for known in self._reconcilers)

    async def _listen(self) -> None:
        """Notify the reconcilers of the tasks that engine events concern, until the engine is gone."""
        engine = self._shared.connected_engine()
        for reconciler in self._reconcilers.values():
            reconciler.notify()
        self._looked.set()
        self._context.changed()
        scanning = asyncio.create_task(self._scan(engine))
        listening = asyncio.create_task(self._follow_events(engine))
        try:
            done, _ = await asyncio.wait({scanning, listening}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (scanning, listening):
                task.cancel()
            await asyncio.gather(scanning, listening, return_exceptions=True)

    async def _follow_events(self, engine: Engine) -> None:
        async for labels in engine.events(self._label):
            with contextlib.suppress(ValueError):
                if (reconciler := self._reconcilers.get(UUID(labels.get(TASK, "")))) is not None:
                    reconciler.notify()

    async def _scan(self, engine: Engine) -> None:
        while True:
            await asyncio.sleep(self._options.scan_seconds)
            try:
                running = {found.id for found in await engine.listed(self._label) if found.state == "running"}
            except EngineRefused as refusal:
                # Podman fails if a container is removed while it lists them.
                log.info("the engine does not list its containers at the moment", reason=refusal.message)
                continue
            for reconciler in self._reconcilers.values():
                if reconciler.running() != running & reconciler.ids():
                    reconciler.notify()
            # A network that was still in use could not be removed with its last task.
            await self._shared.networks.clean_up(engine, self._workloads)


def _huge_pages() -> dict[str, str]:
    """Return the enforcement of huge pages: only root may change cgroups of the engine."""
    held = os.getuid() == 0 and hugepages.enforced(Path("/proc/self/mountinfo").read_text())
    return dict.fromkeys(hugepages.capacity(), "cgroup" if held else "none")
