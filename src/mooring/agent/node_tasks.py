"""The tasks of a node: observed, prepared, started, stopped and cleaned up through the node's runtimes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from typing import Literal
from uuid import UUID

import structlog

from mooring.agent.files.safe_files import UnsafePath
from mooring.agent.files.unpacking import DamagedChunk, unpack
from mooring.agent.node import facts
from mooring.agent.node.upload_cache import UploadCache
from mooring.agent.reconcile import Plan
from mooring.agent.runtimes.contract import (
    Conditional,
    Fetching,
    FileReceiving,
    Observed,
    Progress,
    Runtime,
    runtime_of,
)
from mooring.agent.runtimes.process.isolation import Isolation
from mooring.agent.runtimes.process.runtime import ProcessRuntime
from mooring.model.errors import MooringError
from mooring.model.workloads.lifetime.retries import DISK_FULL
from mooring.wire.agents.desired_tasks import DesiredTask

log = structlog.get_logger(__name__)


class NodeTasks:
    """The runtimes of a node and the tasks in them.

    `changed` is called when the next reconciliation has something to do, `disk_full` when a task cannot be stored.
    """

    def __init__(self, node_name: str, *, changed: Callable[[], None], disk_full: Callable[[], None]) -> None:
        self.runtimes: dict[str, Runtime] = {}
        self.prepared: set[UUID] = set()
        """Tasks that are ready to be started."""
        self._node_name = node_name
        self._changed = changed
        self._disk_full = disk_full
        self._runtime_of: dict[UUID, Runtime] = {}
        self._rejected: dict[UUID, Observed] = {}
        """Failures of tasks that could not be prepared or started."""
        self._preparing: dict[UUID, asyncio.Task[None]] = {}
        self._starting: dict[UUID, asyncio.Task[None]] = {}
        """Starts that wait for uploaded files."""
        self.uploads: UploadCache | None = None

    async def observe(self, listed: Set[UUID]) -> dict[UUID, Observed]:
        """Return the tasks of this node; of acknowledged ends and rejected tasks only those listed."""
        self._rejected = {task_id: seen for task_id, seen in self._rejected.items() if task_id in listed}
        self.prepared &= listed
        found: dict[UUID, Observed] = dict(self._rejected)
        owners: dict[UUID, Runtime] = {}
        for runtime in self.runtimes.values():
            seen = await runtime.observe(listed)
            found.update(seen)
            owners.update(dict.fromkeys(seen, runtime))
        self._runtime_of = owners
        return found

    def progress(self, desired: Iterable[DesiredTask]) -> dict[UUID, Progress]:
        """Return the progress of the tasks that are being prepared."""
        found: dict[UUID, Progress] = {}
        for task in desired:
            if task.task_id in self._preparing and (progress := self._progress(task)) is not None:
                found[task.task_id] = progress
        return found

    def _progress(self, task: DesiredTask) -> Progress | None:
        runtime = self.runtimes.get(runtime_of(task))
        if (downloaded := self._download_progress(task)) is not None:
            return downloaded
        if isinstance(runtime, Fetching) and (progress := runtime.progress(task)) is not None:
            return progress
        return None

    async def act(self, plan: Plan) -> None:
        """Stop, warn, prepare and start tasks as planned."""
        for stop in plan.stop:
            runtime = self._runtime_of.get(stop.task_id)
            if runtime is not None:
                try:
                    await runtime.stop(stop.task_id, stop.grace_seconds, stop.cause)
                except Exception:  # retried at the next reconciliation; the other tasks must be stopped as well
                    log.exception("task not stopped", task=str(stop.task_id))
        for task_id, warning in plan.warn:
            if (runtime := self._runtime_of.get(task_id)) is not None:
                await runtime.warn(task_id, warning)
        await _cancel(self._preparing.pop(task_id) for task_id in self._preparing.keys() - _ids(plan.prepare))
        for task in plan.prepare:
            if task.task_id not in self._preparing:
                self._preparing[task.task_id] = asyncio.create_task(self._prepare(task))
        with_files = [task for task in plan.start if task.upload_id is not None]
        await _cancel(self._starting.pop(task_id) for task_id in self._starting.keys() - _ids(with_files))
        for task in plan.start:
            if task.upload_id is None:
                await self._prepare_or_start(task, "start")
            elif task.task_id not in self._starting:
                self._starting[task.task_id] = asyncio.create_task(self._start_with_files(task))

    async def _start_with_files(self, task: DesiredTask) -> None:
        """Start a task concurrently, since its files may have to be downloaded first."""
        if await self._prepare_or_start(task, "start"):
            self._changed()

    async def _prepare_files(self, task: DesiredTask, step: Literal["prepare", "start"]) -> None:
        """Download the task's files, and unpack them if it is started."""
        if task.upload_id is None:
            return
        runtime = self.runtimes.get(runtime_of(task))
        if self.uploads is None or not isinstance(runtime, FileReceiving):
            raise MooringError(
                f"the {runtime_of(task)} runtime of this node does not support files", code="files-refused"
            )
        async with self.uploads.fetched(task.upload_id) as manifest:
            if step == "start":
                unpacking = partial(unpack, manifest, self.uploads.path)
                try:
                    await runtime.place_files(task, unpacking)
                except DamagedChunk:
                    await self.uploads.repair(task.upload_id, manifest)
                    await runtime.place_files(task, unpacking)

    def _download_progress(self, task: DesiredTask) -> Progress | None:
        fetching = self.uploads.progress(task.upload_id) if self.uploads and task.upload_id else None
        if fetching is None or not fetching.done_bytes:
            return None
        done, total = fetching.done_bytes // 10**6, -(-fetching.total_bytes // 10**6)
        return Progress(f"downloading files: {done} of {total} MB", fetching.done_bytes)

    async def _prepare(self, task: DesiredTask) -> None:
        """Prepare a task concurrently, since pulling an image may take minutes."""
        if await self._prepare_or_start(task, "prepare"):
            self.prepared.add(task.task_id)
            self._changed()

    async def _prepare_or_start(self, task: DesiredTask, step: Literal["prepare", "start"]) -> bool:
        """Prepare or start a task. An error is reported as the task's failure and not retried."""
        runtime = self.runtimes.get(runtime_of(task))
        try:
            if runtime is None:
                raise MooringError(f"this node has no {runtime_of(task)} runtime", code="runtime-missing")
            await self._prepare_files(task, step)
            await (runtime.prepare(task) if step == "prepare" else runtime.start(task))
        except UnsafePath as problem:
            # The node is at fault, not the task.
            self._reject(task, f"{step}-failed", problem.message)
        except MooringError as refusal:
            self._reject(task, refusal.code, refusal.message)
        except OSError as error:
            if facts.is_out_of_space(error):
                self._disk_full()
                self._reject(task, DISK_FULL, f"the disk of node {self._node_name} is full: {error.strerror}")
            else:
                self._reject(task, f"{step}-failed", f"cannot prepare the task: {error.strerror or error}")
        except Exception:  # a task that a runtime cannot handle must not block the others
            log.exception("a runtime failed", task=str(task.task_id), step=step)
            self._reject(task, f"{step}-failed", "the node failed at this; its agent's log says more")
        else:
            return True
        return False

    def _reject(self, task: DesiredTask, code: str, reason: str) -> None:
        log.warning("task not started", task=str(task.task_id), code=code, reason=reason)
        self._rejected[task.task_id] = Observed(status="FAILED", gone=True, code=code, reason=reason)
        self._changed()

    async def acknowledge(self, task_ids: Iterable[UUID]) -> None:
        """Note that the server has stored the end of these tasks."""
        for task_id in task_ids:
            runtime = self._runtime_of.get(task_id)
            if runtime is not None:
                await runtime.acknowledge(task_id)

    async def clean_up(self, keep: Set[UUID]) -> None:
        """Remove old data of ended tasks, except of those in `keep`, and uploads that were not used for long."""
        if self.uploads is not None:
            await self.uploads.clean_up()
        for runtime in self.runtimes.values():
            try:
                await runtime.tidy(keep)
            except Exception:
                log.exception("cleanup failed", runtime=runtime.name)

    async def stop_preparing(self) -> None:
        await _cancel((*self._preparing.values(), *self._starting.values()))
        self._preparing.clear()
        self._starting.clear()

    def is_known(self, task_id: UUID) -> bool:
        """Return whether the task was started here or rejected."""
        return task_id in self._runtime_of or task_id in self._rejected

    def isolation(self) -> Isolation:
        """Return the isolation of process tasks, which is unknown until the runtime is open."""
        runtime = self.runtimes.get("process")
        return runtime.isolation if isinstance(runtime, ProcessRuntime) else Isolation()

    def available_runtimes(self) -> dict[str, Mapping[str, str]]:
        """Return the runtimes that can start tasks, and how each enforces limits."""
        return {
            name: runtime.enforces
            for name, runtime in self.runtimes.items()
            if not isinstance(runtime, Conditional) or runtime.available
        }


def _ids(tasks: Iterable[DesiredTask]) -> set[UUID]:
    return {task.task_id for task in tasks}


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
