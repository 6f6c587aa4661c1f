"""The process tasks of this node, read from and started through their folders. Blocking; see `process_runtime`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import psutil
import structlog

from mooring.agent import folders as layout
from mooring.agent import launch, limits, records, remains, retention, use
from mooring.agent.folders import Folders
from mooring.agent.identity import Identity, environment, identity_for
from mooring.agent.options import Options
from mooring.agent.outcome import outcome
from mooring.agent.records import ExitRecord, SpecRecord, StateRecord, StopRecord, WarningRecord
from mooring.agent.runtime import Observed, StopCause
from mooring.agent.supervisor import record
from mooring.model.errors import InvalidInput
from mooring.model.resources import oom_score
from mooring.wire.agent import DesiredTask, EndWarning

if TYPE_CHECKING:
    from mooring.agent.supervisor.record import ContainerSpec, TaskSpec

log = structlog.get_logger(__name__)
_NUMBERS = {name: int(number) for name, number in signal.Signals.__members__.items()}


@dataclass(slots=True)
class Known:
    """A task with a folder here, as it was last seen."""

    observed: Observed
    spec: SpecRecord | None = None
    pidfd: int | None = None
    """Refers to the supervisor for sure; readable when it has ended."""
    pid: int = 0
    size_bytes: int | None = None
    ended_at: float = 0.0


@dataclass(slots=True)
class Processes:
    folders: Folders
    options: Options
    cgroups: limits.Cgroups | None
    agent_uid: int = field(default_factory=os.getuid)
    boot_id: str = field(default_factory=record.boot_id)
    known: dict[UUID, Known] = field(default_factory=dict)
    """Tasks that live, or whose end the server has not stored yet."""
    kept: dict[UUID, Known] = field(default_factory=dict)
    """Tasks that are over for everyone; their logs and work folders are here until they are tidied away."""
    _launched: dict[UUID, int] = field(default_factory=dict)
    """Supervisors that this agent started, with their pids."""

    def prepare(self, task: DesiredTask) -> None:
        """Find out before the start whether it can be had: whom it would run as, and room for its folder.

        The folder of a task that is never started is tidied away.
        """
        self._identity(task)
        self.folders.task(task.task_id).mkdir(mode=0o700, exist_ok=True)

    def start(self, task: DesiredTask) -> None:
        """Start the task's supervisor, unless the task ever had one."""
        identity = self._identity(task)
        folder = self.folders.task(task.task_id)
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = launch.lock(folder)
        if lock is None:
            return
        try:
            if (folder / record.STATE).exists() or (folder / record.EXIT).exists():
                return
            record.write(str(folder / record.SPEC), self._spec(task, identity))
            self._launched[task.task_id] = launch.launch(folder, lock)
        finally:
            # The supervisor has inherited the lock: an agent that comes later sees it as long as the task is watched.
            os.close(lock)
        self.refresh([task.task_id])

    def stop(self, task_id: UUID, grace_seconds: int | None, cause: StopCause) -> None:
        """Leave the request in the task's folder and tell the supervisor to look."""
        known = self.known.get(task_id)
        if known is None or known.observed.ended or known.spec is None:
            return
        grace = known.spec.grace_seconds if grace_seconds is None else grace_seconds
        path = self.folders.task(task_id) / record.STOP
        before = records.read(path, StopRecord)
        record.write(str(path), {"grace_seconds": grace, "cause": before.cause if before is not None else cause})
        if known.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(known.pidfd, signal.SIGTERM)
        self.refresh([task_id])

    def warn(self, task_id: UUID, warning: EndWarning) -> None:
        """Leave the order in the task's folder and tell the supervisor to look: it keeps the time, agent or not."""
        known = self.known.get(task_id)
        if known is None or known.observed.ended:
            return
        order = {"at": warning.at, "name": warning.signal, "number": _NUMBERS.get(f"SIG{warning.signal}")}
        record.write(str(self.folders.task(task_id) / record.WARNING), order)
        if known.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(known.pidfd, signal.SIGHUP)
        self.refresh([task_id])

    def refresh(self, task_ids: Iterable[UUID] | None = None) -> None:
        """Look at the given tasks again, or at all that are known."""
        for task_id in list(task_ids if task_ids is not None else self.known):
            known = self.known.get(task_id)
            if task_id not in self.kept and (known is None or not known.observed.gone):
                try:
                    self._look(task_id)
                except OSError as error:
                    log.warning("task cannot be looked at", task=str(task_id), reason=str(error))

    def adopt(self) -> None:
        """Find the tasks that agents before this one have left."""
        self.refresh(list(self.folders.known()))

    def observed(self, listed: Set[UUID]) -> dict[UUID, Observed]:
        kept = {task_id: self.kept[task_id].observed for task_id in listed if task_id in self.kept}
        return {**kept, **{task_id: known.observed for task_id, known in self.known.items()}}

    def release(self, task_id: UUID) -> None:
        """Let go of an ended supervisor."""
        known = self.find(task_id)
        if known is not None:
            self._reap(task_id, known.pid)
            _release(known)
            if known.observed.gone:
                self._launched.pop(task_id, None)
                self._remove_cgroup(known.spec)

    def acknowledge(self, task_id: UUID) -> None:
        known = self.known.get(task_id)
        if known is not None and known.observed.ended and known.observed.gone:
            self.folders.acknowledged(task_id).touch(mode=0o600)
            self._keep(task_id, known)

    def measure(self, limit: int) -> bool:
        """Weigh the folders of some ended tasks; False when all are."""
        unweighed = [(task_id, known) for task_id, known in self.kept.items() if known.size_bytes is None]
        for task_id, known in unweighed[:limit]:
            known.size_bytes = sum(layout.size_bytes(folder) for folder in self._folders_of(task_id))
        return len(unweighed) > limit

    def tidy(self, keep: Set[UUID], now: float, limit: int) -> bool:
        """Remove some ended tasks by age and total size, and folders of tasks never started; False when done."""
        kept = [
            retention.Kept(task_id, known.ended_at, known.size_bytes)
            for task_id, known in self.kept.items()
            if task_id not in keep and known.size_bytes is not None and known.pidfd is None
        ]
        options = self.options
        gone = retention.expired(kept, now=now, keep_seconds=options.keep_seconds, keep_bytes=options.keep_bytes)
        gone += set(self.folders.known()) - self.known.keys() - self.kept.keys() - keep
        for task_id in gone[:limit]:
            self._remove(task_id)
        return len(gone) > limit

    def find(self, task_id: UUID) -> Known | None:
        return self.known.get(task_id) or self.kept.get(task_id)

    def log_file(self, task_id: UUID, container: str) -> tuple[Path, int] | None:
        """The newest log of a container and how many files there may be."""
        known = self.find(task_id)
        if known is None or known.spec is None:
            return None
        for entry in known.spec.containers:
            if entry.name == container:
                return Path(entry.log), known.spec.log_files
        return None

    def uses(self) -> dict[UUID, use.Use]:
        """What each task that runs uses: by its cgroups, and by its processes where those do not tell."""
        machine: use.Processes | None = None
        found: dict[UUID, use.Use] = {}
        for task_id, known in list(self.known.items()):
            if known.observed.status != "RUNNING" or known.spec is None:
                continue
            groups = [entry.cgroup for entry in known.spec.containers]
            own = use.total(use.of_cgroup({use.UNIFIED: Path(group)} if group else {}) for group in groups)
            if not own.complete:
                machine = machine or use.Processes()
                own = own.or_else(machine.below(known.pid))
            found[task_id] = own
        return found

    def close(self) -> None:
        for known in (*self.known.values(), *self.kept.values()):
            _release(known)
        if self.cgroups is not None:
            limits.remove(self.cgroups.base)

    def _look(self, task_id: UUID) -> None:
        """Find out how one task is, and remember it."""
        folder = self.folders.task(task_id)
        known = self.known.get(task_id)
        spec = (
            known.spec
            if known is not None and known.spec is not None
            else records.read(folder / record.SPEC, SpecRecord)
        )
        ended = records.read(folder / record.EXIT, ExitRecord)
        if ended is None:
            state = records.read(folder / record.STATE, StateRecord)
            if spec is None and state is None:
                # No more than an empty folder: a start that a crash cut short and that may be tried again.
                self.known.pop(task_id, None)
                return
            if known is None:
                known = Known(Observed(status="PREPARING"), spec)
            if self._alive(task_id, known, state):
                stop = records.read(folder / record.STOP, StopRecord)
                warning = records.read(folder / record.WARNING, WarningRecord)
                known.observed = _living(spec.workload_name if spec is not None else "", state, stop, warning)
                self.known[task_id] = known
                return
            if state is None and task_id not in self._launched and spec is not None and spec.boot_id == self.boot_id:
                self.known.pop(task_id, None)
                return
            # The supervisor may have stored the exit just after the first look.
            ended = records.read(folder / record.EXIT, ExitRecord) or self._unwatched(task_id, known, spec, state)
            if ended is None:
                self.known[task_id] = known
                return
        known = known if known is not None else Known(Observed(status="PREPARING"))
        self._ended(task_id, known, spec, ended)

    def _ended(self, task_id: UUID, known: Known, spec: SpecRecord | None, ended: ExitRecord) -> None:
        acknowledged = self.folders.acknowledged(task_id).exists()
        known.observed = outcome(ended, acknowledged=acknowledged)
        known.spec = spec
        known.ended_at = ended.ended_at
        self.known[task_id] = known
        if acknowledged:
            self._keep(task_id, known)
        self._remove_cgroup(spec)

    def _keep(self, task_id: UUID, known: Known) -> None:
        known.observed = replace(known.observed, acknowledged=True)
        self.kept[task_id] = known
        del self.known[task_id]

    def _alive(self, task_id: UUID, known: Known, state: StateRecord | None) -> bool:
        """Whether the very supervisor of the task lives: told by boot, pid and start time, never by pid alone."""
        if known.pidfd is None:
            if state is not None and state.boot_id == self.boot_id:
                known.pidfd = launch.open_process(state.pid, state.start_time)
                known.pid = state.pid
            elif state is None and task_id in self._launched:
                known.pid = self._launched[task_id]
                known.pidfd = launch.open_process(known.pid, record.start_time(known.pid))
            elif state is None:
                return launch.locked(self.folders.task(task_id))
        if known.pidfd is not None and record.start_time(known.pid) is not None:
            return True
        self._reap(task_id, known.pid)
        return False

    def _reap(self, task_id: UUID, pid: int) -> None:
        # Only a child of this agent: the number of another's may by now be that of some other child.
        if self._launched.get(task_id) == pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _unwatched(
        self, task_id: UUID, known: Known, spec: SpecRecord | None, state: StateRecord | None
    ) -> ExitRecord | None:
        """The end of a task without a living supervisor; None while something of it is still being killed."""
        boot_id = state.boot_id if state is not None else spec.boot_id if spec is not None else ""
        failure = "supervisor-died" if boot_id == self.boot_id else "node-rebooted"
        restarts = state.restarts if state is not None else 0
        ran = state is not None and state.phase == "running"
        ended = ExitRecord(ended_at=time.time(), failure=failure, restarts=restarts, ran=ran)
        if failure == "supervisor-died":
            cgroup, uid = (spec.cgroup, spec.uid) if spec is not None else (None, None)
            if not remains.end(task_id, cgroup, uid):
                known.observed = outcome(ended, gone=False)
                return None
        log.warning("task ended without its supervisor", task=str(task_id), code=failure)
        record.write(
            str(self.folders.task(task_id) / record.EXIT),
            {"ended_at": ended.ended_at, "failure": failure, "restarts": restarts, "ran": ran},
            durable=True,
        )
        return ended

    def _identity(self, task: DesiredTask) -> Identity:
        if any(not container.command for container in task.containers):
            raise InvalidInput("a process task needs a command", code="start-failed")
        return identity_for(
            task.owner, agent_uid=self.agent_uid, uid_range=self.options.uid_range, forbidden=self._forbidden()
        )

    def _spec(self, task: DesiredTask, identity: Identity) -> TaskSpec:
        work_folder = self.folders.create_work(task.task_id, identity)
        cgroups = self.cgroups
        groups = (
            cgroups.create(task.task_id, [container.slots for container in task.containers], self.options.max_processes)
            if cgroups is not None
            else [None] * len(task.containers)
        )
        enforced = limits.enforcement(cgroups, agent_uid=self.agent_uid)
        containers: list[ContainerSpec] = []
        for index, (container, group) in enumerate(zip(task.containers, groups, strict=True)):
            memory = container.slots.get("memory") or None
            containers.append(
                {
                    "name": container.name,
                    "command": container.command,
                    "environment": environment(task, container, identity, work_folder),
                    "folder": str(work_folder / (container.working_folder or "")),
                    "log": str(self.folders.log(task.task_id, index)),
                    "cgroup": str(group) if group is not None else None,
                    "memory_bytes": memory if enforced["memory"] == "rlimit" else None,
                    "processes": self.options.max_processes if enforced["pids"] == "rlimit" else None,
                    "oom_score": _oom_score(task, memory or 0, limited=enforced["memory"] == "cgroup"),
                }
            )
        return {
            "task_id": str(task.task_id),
            "workload_name": task.workload_name,
            "boot_id": self.boot_id,
            "containers": containers,
            "restart": task.restart,
            "max_restarts": task.max_restarts,
            "grace_seconds": task.grace_seconds,
            "uid": identity.uid,
            "gid": identity.gid,
            "groups": list(identity.groups),
            "cgroup": str(cgroups.base / str(task.task_id)) if cgroups is not None else None,
            "work_folder": str(work_folder),
            "ports": own_ports(task),
            "log_bytes": self.options.log_bytes,
            "log_files": self.options.log_files,
            "notify": str(self.folders.notify),
        }

    def _remove_cgroup(self, spec: SpecRecord | None) -> None:
        if spec is not None and spec.cgroup is not None:
            limits.remove(Path(spec.cgroup))

    def _forbidden(self) -> frozenset[int]:
        """Who could read or replace what the agent keeps: the owners of its folders and of all above them."""
        paths = (self.folders.tasks, self.folders.root, *self.folders.root.parents)
        return frozenset({0, *(path.stat().st_uid for path in paths)})

    def _folders_of(self, task_id: UUID) -> list[Path]:
        known = self.find(task_id)
        work = Path(known.spec.work_folder) if known is not None and known.spec is not None else None
        return [self.folders.task(task_id), work or self.folders.work_root / str(task_id)]

    def _remove(self, task_id: UUID) -> None:
        for folder in reversed(self._folders_of(task_id)):
            layout.remove(folder)
        self.kept.pop(task_id, None)
        self._launched.pop(task_id, None)


def own_ports(task: DesiredTask) -> list[tuple[int, int]]:
    """The task's ports, each after the number that it is asked for by: what its containers listen on, in order."""
    asked = [port for container in task.containers for port in container.ports]
    return [(asked[place] if place < len(asked) else port, port) for place, port in enumerate(task.ports)]


def _living(name: str, state: StateRecord | None, stop: StopRecord | None, warning: WarningRecord | None) -> Observed:
    running = state is not None and state.phase == "running"
    return Observed(
        status="RUNNING" if running else "PREPARING",
        workload_name=name,
        ran=running,
        restarts=state.restarts if state is not None else 0,
        ready=state is None or state.ready,
        stop_grace_seconds=stop.grace_seconds if stop is not None else None,
        warning=EndWarning(at=warning.at, signal=warning.name) if warning is not None else None,
    )


def _oom_score(task: DesiredTask, memory: int, *, limited: bool) -> int:
    """Spared are only those who cannot take more than they were given."""
    score = oom_score(task.quality, memory, psutil.virtual_memory().total)
    return score if limited else max(score, 0)


def _release(known: Known) -> None:
    if known.pidfd is not None:
        os.close(known.pidfd)
        known.pidfd = None
