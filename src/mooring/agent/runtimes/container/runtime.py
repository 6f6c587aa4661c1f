"""The runtime for containers: finds the engine and stays with it, and has a keeper for every task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Set
from pathlib import Path
from uuid import UUID

import psutil
import structlog

from mooring.agent import folders, hugepages, retention
from mooring.agent import records as files
from mooring.agent.containers import measuring, places, record
from mooring.agent.containers.engine import Engine, EngineGone, EngineRefused, addresses
from mooring.agent.containers.keeper import Keeper, Shared
from mooring.agent.containers.networks import Networks
from mooring.agent.containers.private_images import PrivateImages
from mooring.agent.containers.pulls import Images
from mooring.agent.containers.record import TaskRecord
from mooring.agent.containers.specification import NODE, TASK, check, enforces
from mooring.agent.measuring import Meter
from mooring.agent.records import ExitRecord
from mooring.agent.runtime import Observed, Progress, Reached, RuntimeContext, StopCause
from mooring.agent.supervisor.record import boot_id
from mooring.agent.volumes import VolumeFolders
from mooring.model.errors import MooringError, NotFound
from mooring.wire.agent import DesiredTask, EndWarning, Purpose, TaskMeasure

log = structlog.get_logger(__name__)

_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
_MISSED_SECONDS = 15.0
"""An engine that is back by then, as after an update of it, was never away for those who place tasks."""


class ContainerRuntime:
    """Events of the engine tell of changes; a slow scan is the net. Tasks wait for an engine that is away."""

    name = "container"

    def __init__(self, context: RuntimeContext) -> None:
        self.enforces: Mapping[str, str] = {}
        self._context = context
        self._options = context.options
        self._label = f"{NODE}={context.node_id}"
        self._keepers: dict[UUID, Keeper] = {}
        """Tasks that live, or whose end the server has not stored yet."""
        self._over: dict[UUID, Keeper] = {}
        """Tasks that are over for everyone; what they said is kept until it is tidied away."""
        sockets = [Path(each.removeprefix("unix://")) for each in addresses(self._options.engine) if "unix" in each]
        volumes = VolumeFolders(context.root, self._options.host_paths, tuple(sockets))
        self._places = places.make(context.root, context.node_id, volumes)
        self._shared = Shared(
            node_id=context.node_id,
            options=self._options,
            places=self._places,
            networks=Networks(context.node_id, wanted=self._options.container_networks),
            changed=context.changed,
            term=context.term,
            memory_bytes=psutil.virtual_memory().total,
            workloads=self._workloads,
        )
        self._meter = Meter()
        self._private_images = PrivateImages(context.root / "private-images.json")
        self._loop: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._lost_at: float | None = None
        """When an engine that answered went away."""

    @property
    def available(self) -> bool:
        """Whether tasks can be started here, at once or soon."""
        recently = self._lost_at is not None and time.monotonic() - self._lost_at < _MISSED_SECONDS
        return self._shared.engine is not None or recently

    async def open(self) -> None:
        for task_id in list(self._places.known()):
            self._adopt(task_id)
        self._loop = asyncio.create_task(self._stay_connected())
        await self._looked.wait()
        if not self.available:
            log.info("no container engine answers: this node runs no containers until one does")
        for keeper in self._keepers.values():
            keeper.begin()

    async def prepare(self, task: DesiredTask) -> None:
        check(task)
        while True:
            try:
                await self._shared.images().of_task(task)
                return
            except EngineGone:
                if not self.available:
                    raise
            await asyncio.sleep(_SHORTEST_PAUSE_SECONDS)

    def progress(self, task: DesiredTask) -> Progress | None:
        fetcher = self._shared.fetcher
        heard = 0 if fetcher is None else fetcher.heard_of(task)
        return Progress(fetcher.progress_of(task), heard) if fetcher is not None and heard else None

    async def start(self, task: DesiredTask) -> None:
        if task.task_id in self._keepers or task.task_id in self._over:
            return
        check(task)
        if not self.available:
            raise MooringError("this node has no container engine that answers", code="runtime-missing")
        self._places.task(task.task_id).mkdir(mode=0o700, exist_ok=True)
        kept = record.of(task, boot_id())
        record.write(self._places.record(task.task_id), kept)
        keeper = self._keepers[task.task_id] = Keeper(self._shared, kept, task)
        keeper.begin()

    async def stop(self, task_id: UUID, grace_seconds: int | None, cause: StopCause) -> None:
        if (keeper := self._keepers.get(task_id)) is not None:
            keeper.stop(grace_seconds, cause)

    async def warn(self, task_id: UUID, warning: EndWarning) -> None:
        if (keeper := self._keepers.get(task_id)) is not None:
            keeper.warn(warning)

    async def observe(self, listed: Set[UUID]) -> Mapping[UUID, Observed]:
        over = {task_id: self._over[task_id].observed() for task_id in listed if task_id in self._over}
        return {**over, **{task_id: keeper.observed() for task_id, keeper in self._keepers.items()}}

    async def images(self) -> Mapping[str, int]:
        return await self._shared.images().present()

    async def measures(self) -> list[TaskMeasure]:
        running = {task_id: pids for task_id, keeper in self._keepers.items() if (pids := keeper.pids())}
        uses, network = await asyncio.to_thread(measuring.of_tasks, running)
        return self._meter.measures(uses, time.monotonic(), network)

    async def acknowledge(self, task_id: UUID) -> None:
        keeper = self._keepers.get(task_id)
        if keeper is not None and keeper.record.removed:
            keeper.acknowledge()
            self._over[task_id] = self._keepers.pop(task_id)

    async def tidy(self, keep: Set[UUID]) -> None:
        kept = [
            retention.Kept(task_id, keeper.record.outcome.ended_at, folders.size_bytes(self._places.task(task_id)))
            for task_id, keeper in self._over.items()
            if task_id not in keep and keeper.record.outcome is not None
        ]
        options = self._options
        gone = retention.expired(
            kept, now=time.time(), keep_seconds=options.keep_seconds, keep_bytes=options.keep_bytes
        )
        for task_id in gone:
            self._over.pop(task_id)
            await asyncio.to_thread(folders.remove, self._places.task(task_id))

    async def logs(self, task_id: UUID, container: str, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        keeper = self._keepers.get(task_id) or self._over.get(task_id)
        if keeper is None:
            raise NotFound(f"this node keeps no output of container {container!r} of task {task_id}")
        async for data in keeper.logs(container, tail, follow):
            yield data

    async def reach(self, task_id: UUID, container: str | None, purpose: Purpose) -> Reached:
        keeper = self._keepers.get(task_id)
        if keeper is None:
            raise NotFound(f"this node has no task {task_id}")
        return await keeper.reach(container, purpose)

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        for keeper in self._keepers.values():
            await keeper.close()
        self._shared.memory.close()
        await self._disconnect()

    def _workloads(self) -> Iterator[UUID]:
        return (each.record.task.workload_id for each in self._keepers.values() if not each.record.removed)

    def _adopt(self, task_id: UUID) -> None:
        """Take on a task that an agent before this one has left."""
        kept = files.read(self._places.record(task_id), TaskRecord)
        if kept is None or (not kept.began and kept.outcome is None):
            # No more than a start that a crash cut short, with nothing made yet: it may be tried again.
            self._places.remove_private(task_id)
            shutil.rmtree(self._places.task(task_id), ignore_errors=True)
            return
        if kept.outcome is None and kept.boot_id != boot_id():
            kept.outcome = ExitRecord(ended_at=time.time(), failure="node-rebooted", ran=kept.ran)
            record.write(self._places.record(task_id), kept)
        (self._over if kept.acknowledged else self._keepers)[task_id] = Keeper(self._shared, kept)

    # The engine

    async def _stay_connected(self) -> None:
        pause = _SHORTEST_PAUSE_SECONDS
        while True:
            try:
                if await self._connect():
                    pause = _SHORTEST_PAUSE_SECONDS
                    await self._listen()
            except (EngineGone, EngineRefused) as problem:
                log.info("the container engine does not answer", reason=problem.message)
            except Exception:
                log.exception("the container engine could not be listened to")
            await self._disconnect()
            self._looked.set()
            before = self.available
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            if self.available != before:
                self._context.changed()

    async def _connect(self) -> bool:
        for address in addresses(self._options.engine):
            engine = Engine(address)
            try:
                await engine.connect()
                await self._remove_strays(engine)
            except (EngineGone, EngineRefused) as problem:
                await engine.close()
                log.debug("no engine", address=address, reason=problem.message)
                continue
            self._shared.engine = engine
            self._shared.fetcher = Images(
                engine.docker, self._private_images, self._context.changed, trusting=engine.abilities.kind == "docker"
            )
            self.enforces = {**enforces(engine.abilities), **_huge_pages()}
            log.info("container engine found", address=address, engine=engine.abilities.kind)
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
        """Containers and networks of this node that no task here has: their record is lost, nobody would end them."""
        for found in await engine.listed(self._label):
            if found.labels.get(NODE) == str(self._context.node_id) and not self._has(found.labels.get(TASK, "")):
                log.warning("a container without a task is removed", container=found.id, **found.labels)
                with contextlib.suppress(EngineRefused):
                    await engine.remove(found.id)
        await self._shared.networks.tidy(engine, self._workloads)

    def _has(self, task_id: str) -> bool:
        return any(str(known) == task_id for known in self._keepers)

    async def _listen(self) -> None:
        """Wake the tasks that something happens to, until the engine is gone."""
        engine = self._shared.reached()
        for keeper in self._keepers.values():
            keeper.wake()
        self._looked.set()
        self._context.changed()
        scanning = asyncio.create_task(self._scan(engine))
        listening = asyncio.create_task(self._hear(engine))
        try:
            done, _ = await asyncio.wait({scanning, listening}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (scanning, listening):
                task.cancel()
            await asyncio.gather(scanning, listening, return_exceptions=True)

    async def _hear(self, engine: Engine) -> None:
        async for labels in engine.events(self._label):
            with contextlib.suppress(ValueError):
                if (keeper := self._keepers.get(UUID(labels.get(TASK, "")))) is not None:
                    keeper.wake()

    async def _scan(self, engine: Engine) -> None:
        while True:
            await asyncio.sleep(self._options.scan_seconds)
            try:
                running = {found.id for found in await engine.listed(self._label) if found.state == "running"}
            except EngineRefused as refusal:
                # Podman does so where a container goes while it lists them.
                log.info("the engine does not list its containers now", reason=refusal.message)
                continue
            for keeper in self._keepers.values():
                if keeper.running() != running & keeper.ids():
                    keeper.wake()
            # One that somebody was still in could not go with its last task.
            await self._shared.networks.tidy(engine, self._workloads)


def _huge_pages() -> dict[str, str]:
    """How the node's huge pages are kept apart: only root may limit what others made."""
    held = os.getuid() == 0 and hugepages.enforced(Path("/proc/self/mountinfo").read_text())
    return dict.fromkeys(hugepages.capacity(), "cgroup" if held else "none")
