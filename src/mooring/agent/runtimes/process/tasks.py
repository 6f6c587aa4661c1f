"""The process tasks of this node, read from and started through their folders. Blocking; see `runtime`."""

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
from mooring.agent.files.unpacking import Ownership
from mooring.agent.folders import Folders
from mooring.agent.node import host_ports, limits, retention, usage_counters
from mooring.agent.options import Options
from mooring.agent.runtimes import records
from mooring.agent.runtimes.contract import Observed, StopCause, Unpack
from mooring.agent.runtimes.outcome import last_exit, outcome
from mooring.agent.runtimes.process import launch, local_folders, orphan_cleanup
from mooring.agent.runtimes.process.identity import Identity, environment, identity_for
from mooring.agent.runtimes.process.isolation import Isolation
from mooring.agent.runtimes.process.supervisor import record
from mooring.agent.runtimes.records import (
    ExitRecord,
    SpecRecord,
    StateRecord,
    StopRecord,
    WarningRecord,
)
from mooring.agent.runtimes.scripts import script_command
from mooring.model.errors import InvalidInput
from mooring.model.resources.task_resources import oom_score
from mooring.wire.agents import desired_tasks
from mooring.wire.agents.desired_tasks import DesiredTask, EndWarning

if TYPE_CHECKING:
    from mooring.agent.runtimes.process.supervisor.record import ContainerSpec, TaskSpec

log = structlog.get_logger(__name__)
_NUMBERS = {name: int(number) for name, number in signal.Signals.__members__.items()}


@dataclass(slots=True)
class KnownTask:
    """The last known state of a task that has a folder here."""

    observed: Observed
    spec: SpecRecord | None = None
    pidfd: int | None = None
    """Refers to the supervisor even if its pid is reused; readable when it has ended."""
    pid: int = 0
    size_bytes: int | None = None
    ended_at: float = 0.0


@dataclass(slots=True)
class Processes:
    folders: Folders
    options: Options
    cgroups: limits.Cgroups | None
    isolation: Isolation = field(default_factory=Isolation)
    agent_uid: int = field(default_factory=os.getuid)
    boot_id: str = field(default_factory=record.boot_id)
    known: dict[UUID, KnownTask] = field(default_factory=dict)
    """Living tasks, and those whose end the server has not stored yet."""
    retained: dict[UUID, KnownTask] = field(default_factory=dict)
    """Acknowledged tasks, whose logs and work folders are kept until they are removed."""
    _launched: dict[UUID, int] = field(default_factory=dict)
    """Pids of supervisors that this agent started."""

    def prepare(self, task: DesiredTask) -> None:
        """Check before the start that the task has an OS user, its ports are free, and its folder can be created.

        The folder of a task that is never started is removed later.
        """
        local_folders.checked(task, self._identity(task), self.agent_uid, self.boot_id)
        host_ports.check(self._ports(task))
        self.folders.task(task.task_id).mkdir(mode=0o700, exist_ok=True)

    def place_files(self, task: DesiredTask, unpack: Unpack) -> None:
        """Unpack files into the folder that becomes the task's work folder."""
        identity = self._identity(task)
        with self.folders.stage(task.task_id) as folder:
            unpack(folder, Ownership(identity.uid, identity.gid))

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
            with host_ports.reserved(self._ports(task)) as reserved:
                record.write(str(folder / record.SPEC), self._spec(task, identity))
                self._launched[task.task_id] = launch.launch(folder, lock, [each.fileno() for each in reserved])
        finally:
            # The supervisor has inherited the lock, which shows a later agent that the task is supervised.
            os.close(lock)
        self.refresh([task.task_id])

    def stop(self, task_id: UUID, grace_seconds: int | None, cause: StopCause) -> None:
        """Write the request to the task's folder and signal the supervisor."""
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
        """Write the order to the task's folder and signal the supervisor, which needs no agent to warn."""
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
        """Refresh the state of the given tasks, or of all."""
        for task_id in list(task_ids if task_ids is not None else self.known):
            known = self.known.get(task_id)
            if task_id not in self.retained and (known is None or not known.observed.gone):
                try:
                    self._refresh(task_id)
                except OSError as error:
                    log.warning("task cannot be inspected", task=str(task_id), reason=str(error))

    def adopt(self) -> None:
        """Find the tasks of earlier agents."""
        self.refresh(list(self.folders.known()))

    def observed(self, listed: Set[UUID]) -> dict[UUID, Observed]:
        retained = {task_id: self.retained[task_id].observed for task_id in listed if task_id in self.retained}
        return {**retained, **{task_id: known.observed for task_id, known in self.known.items()}}

    def release(self, task_id: UUID) -> None:
        """Release an ended supervisor."""
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
        """Measure the folders of some ended tasks; return False when all are measured."""
        unweighed = [(task_id, known) for task_id, known in self.retained.items() if known.size_bytes is None]
        for task_id, known in unweighed[:limit]:
            known.size_bytes = sum(layout.size_bytes(folder) for folder in self._folders_of(task_id))
        return len(unweighed) > limit

    def clean_up(self, keep: Set[UUID], now: float, limit: int) -> bool:
        """Remove some ended tasks by age and total size, and folders of tasks never started; return False when done."""
        retained = [
            retention.RetainedTask(task_id, known.ended_at, known.size_bytes)
            for task_id, known in self.retained.items()
            if task_id not in keep and known.size_bytes is not None and known.pidfd is None
        ]
        options = self.options
        gone = retention.expired(retained, now=now, keep_seconds=options.keep_seconds, keep_bytes=options.keep_bytes)
        gone += set(self.folders.known()) - self.known.keys() - self.retained.keys() - keep
        for task_id in set(self.folders.staged()) - keep:
            self.folders.remove_staged(task_id)
        for task_id in gone[:limit]:
            self._remove(task_id)
        return len(gone) > limit

    def find(self, task_id: UUID) -> KnownTask | None:
        return self.known.get(task_id) or self.retained.get(task_id)

    def log_file(self, task_id: UUID, container: str) -> tuple[Path, int] | None:
        """Return the newest log of a container and the number of log files."""
        known = self.find(task_id)
        if known is None or known.spec is None:
            return None
        for entry in known.spec.containers:
            if entry.name == container:
                return Path(entry.log), known.spec.log_files
        return None

    def uses(self) -> dict[UUID, usage_counters.Usage]:
        """Return the usage of each running task, from its cgroups or, if they do not count, its processes."""
        machine: usage_counters.Processes | None = None
        found: dict[UUID, usage_counters.Usage] = {}
        for task_id, known in list(self.known.items()):
            if known.observed.status != "RUNNING" or known.spec is None:
                continue
            groups = [entry.cgroup for entry in known.spec.containers]
            own = usage_counters.total(
                usage_counters.of_cgroup({usage_counters.UNIFIED: Path(group)} if group else {}) for group in groups
            )
            if not own.complete:
                machine = machine or usage_counters.Processes()
                below = machine.in_namespaces if known.spec.namespaces else machine.below
                own = own.or_else(below(known.pid))
            found[task_id] = own
        return found

    def close(self) -> None:
        for known in (*self.known.values(), *self.retained.values()):
            _release(known)
        if self.cgroups is not None:
            limits.remove(self.cgroups.base)

    def _refresh(self, task_id: UUID) -> None:
        """Refresh the state of one task."""
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
                # An empty folder is a start that a crash interrupted, and that may be retried.
                self.known.pop(task_id, None)
                return
            if known is None:
                known = KnownTask(Observed(status="PREPARING"), spec)
            if self._alive(task_id, known, state):
                stop = records.read(folder / record.STOP, StopRecord)
                warning = records.read(folder / record.WARNING, WarningRecord)
                known.observed = _living(spec.workload_name if spec is not None else "", state, stop, warning)
                self.known[task_id] = known
                return
            if state is None and task_id not in self._launched and spec is not None and spec.boot_id == self.boot_id:
                self.known.pop(task_id, None)
                return
            # The supervisor may have stored the exit just after the first check.
            ended = records.read(folder / record.EXIT, ExitRecord) or self._unwatched(task_id, known, spec, state)
            if ended is None:
                self.known[task_id] = known
                return
        known = known if known is not None else KnownTask(Observed(status="PREPARING"))
        self._ended(task_id, known, spec, ended)

    def _ended(self, task_id: UUID, known: KnownTask, spec: SpecRecord | None, ended: ExitRecord) -> None:
        acknowledged = self.folders.acknowledged(task_id).exists()
        known.observed = outcome(ended, acknowledged=acknowledged)
        known.spec = spec
        known.ended_at = ended.ended_at
        self.known[task_id] = known
        if acknowledged:
            self._keep(task_id, known)
        self._remove_cgroup(spec)

    def _keep(self, task_id: UUID, known: KnownTask) -> None:
        known.observed = replace(known.observed, acknowledged=True)
        self.retained[task_id] = known
        del self.known[task_id]

    def _alive(self, task_id: UUID, known: KnownTask, state: StateRecord | None) -> bool:
        """Return whether the task's supervisor lives, identified by boot id, pid and start time, never by pid alone."""
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
        # Only a child of this agent: the pid of another process may have been reused by a different child.
        if self._launched.get(task_id) == pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _unwatched(
        self, task_id: UUID, known: KnownTask, spec: SpecRecord | None, state: StateRecord | None
    ) -> ExitRecord | None:
        """Return the exit of a task without a living supervisor; None while its processes are being killed."""
        boot_id = state.boot_id if state is not None else spec.boot_id if spec is not None else ""
        failure = "supervisor-died" if boot_id == self.boot_id else "node-rebooted"
        restarts = state.restarts if state is not None else 0
        ran = state is not None and state.phase == "running"
        ended = ExitRecord(ended_at=time.time(), failure=failure, restarts=restarts, ran=ran)
        if failure == "supervisor-died":
            cgroup, uid = (spec.cgroup, spec.uid) if spec is not None else (None, None)
            if not orphan_cleanup.end(task_id, cgroup, uid):
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
        if any(not container.command and container.script is None for container in task.containers):
            raise InvalidInput("a process task needs a command", code="start-failed")
        return identity_for(
            task.owner, agent_uid=self.agent_uid, uid_range=self.options.uid_range, forbidden=self._forbidden()
        )

    def _ports(self, task: DesiredTask) -> list[host_ports.Port]:
        """Return the ports of the node that the task uses: none if it is kept off the node's network."""
        return host_ports.ports_of(task) if self.isolation.network == "host" else []

    def _spec(self, task: DesiredTask, identity: Identity) -> TaskSpec:
        local = local_folders.checked(task, identity, self.agent_uid, self.boot_id)
        scripts = {_script_name(index): each.script for index, each in enumerate(task.containers) if each.script}
        work_folder = self.folders.create_work(
            task.task_id, identity, {name: script.encode() for name, script in scripts.items()}
        )
        cgroups = self.cgroups
        groups = (
            cgroups.create(task.task_id, [container.slots for container in task.containers], self.options.max_processes)
            if cgroups is not None
            else [None] * len(task.containers)
        )
        enforced = limits.enforcement(cgroups, agent_uid=self.agent_uid)
        isolation = self.isolation
        memory = limits.memory_limits(
            [container.slots for container in task.containers],
            charged=enforced["memory"] == "cgroup",
            private_folders=bool(isolation.namespaces),
        )
        containers: list[ContainerSpec] = [
            {
                "name": container.name,
                "command": _command(container, work_folder / _script_name(index)),
                "environment": environment(task, container, identity, work_folder),
                "folder": str((local or work_folder) / (container.working_folder or "")),
                "log": str(self.folders.log(task.task_id, index)),
                "cgroup": str(group) if group is not None else None,
                "memory_bytes": memory[index].data_bytes,
                "processes": self.options.max_processes if enforced["pids"] == "rlimit" else None,
                "oom_score": _oom_score(
                    task, container.slots.get("memory") or 0, limited=enforced["memory"] == "cgroup"
                ),
                "tmpfs_bytes": memory[index].tmpfs_bytes,
                "terminal": container.terminal,
                "stdin": container.stdin,
                "terminal_size": (container.terminal_rows, container.terminal_columns),
            }
            for index, (container, group) in enumerate(zip(task.containers, groups, strict=True))
        ]
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
            "namespaces": isolation.namespaces,
            "network": isolation.network,
            "syscall_filter": str(isolation.syscall_filter) if isolation.syscall_filter is not None else None,
        }

    def _remove_cgroup(self, spec: SpecRecord | None) -> None:
        if spec is not None and spec.cgroup is not None:
            limits.remove(Path(spec.cgroup))

    def _forbidden(self) -> frozenset[int]:
        """Return the uids that could read or replace the agent's files: the owners of its folders and their parents."""
        paths = (self.folders.tasks, self.folders.root, *self.folders.root.parents)
        return frozenset({0, *(path.stat().st_uid for path in paths)})

    def _folders_of(self, task_id: UUID) -> list[Path]:
        known = self.find(task_id)
        work = Path(known.spec.work_folder) if known is not None and known.spec is not None else None
        return [self.folders.task(task_id), work or self.folders.work_root / str(task_id)]

    def _remove(self, task_id: UUID) -> None:
        for folder in reversed(self._folders_of(task_id)):
            layout.remove(folder)
        self.retained.pop(task_id, None)
        self._launched.pop(task_id, None)


def own_ports(task: DesiredTask) -> list[tuple[int, int]]:
    """Return the task's ports as pairs of container port and assigned node port."""
    asked = [port for container in task.containers for port in container.ports]
    return [(asked[number] if number < len(asked) else port, port) for number, port in enumerate(task.ports)]


def _living(name: str, state: StateRecord | None, stop: StopRecord | None, warning: WarningRecord | None) -> Observed:
    running = state is not None and state.phase == "running"
    return Observed(
        status="RUNNING" if running else "PREPARING",
        workload_name=name,
        ran=running,
        restarts=state.restarts if state is not None else 0,
        crashes=state.crashes if state is not None else 0,
        last_exit=last_exit(state.last_exit) if state is not None and state.last_exit is not None else None,
        ready=state is None or state.ready,
        stop_grace_seconds=stop.grace_seconds if stop is not None else None,
        warning=EndWarning(at=warning.at, signal=warning.name) if warning is not None else None,
    )


def _command(container: desired_tasks.ContainerSpec, script: Path) -> list[str]:
    """Return the command of a container, which runs `script` if it has one."""
    return container.command if container.script is None else script_command(container, str(script))


def _script_name(index: int) -> str:
    """Return the name of a container's script in the work folder."""
    return f".mooring-script-{index}"


def _oom_score(task: DesiredTask, memory: int, *, limited: bool) -> int:
    """Return the OOM score; only a task with an enforced limit may have a negative one."""
    score = oom_score(task.quality, memory, psutil.virtual_memory().total)
    return score if limited else max(score, 0)


def _release(known: KnownTask) -> None:
    if known.pidfd is not None:
        os.close(known.pidfd)
        known.pidfd = None
