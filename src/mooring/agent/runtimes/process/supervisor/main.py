"""The loop of a task's supervisor: start, log, restart and stop processes, and exit when none is left."""

# ruff: noqa: PTH106, PTH110, PTH123
from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from mooring.agent.runtimes.process.supervisor import (
    child,
    privileges,
    record,
    tree,
)
from mooring.agent.runtimes.process.supervisor.console import Console
from mooring.agent.runtimes.process.supervisor.output import RotatedFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mooring.agent.runtimes.process.supervisor.init import Init
    from mooring.agent.runtimes.process.supervisor.record import ContainerSpec, TaskSpec

RUNNING, CLEARING, WAITING, ENDED = "running", "clearing", "waiting", "ended"
"""Phases of a container: running; main process ended, descendants being killed; waiting for a restart; ended."""

_MAX_BACKOFF_SECONDS = 30.0
_RAN_WELL_SECONDS = 60.0
"""A container that ran this long did not crash at its start; as in `mooring.model.workloads.lifetime.health`."""
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.002, 0.2
_MAX_SLEEP_SECONDS = 3600.0
_CHUNK = 65536
# More than a pipe holds, but bounded, so that a process that never stops writing does not block the loop.
_CHUNKS_AT_ONCE = 32


def main(folder: str, lock: int, reservations: int) -> None:
    """Supervise the task of a folder. The reservations of its ports are the descriptors after the lock."""
    reserved = range(lock + 1, lock + 1 + reservations)
    # The lock shows that this task has a supervisor. It ends with this process and is not inherited by the task.
    for descriptor in (lock, *reserved):
        os.set_inheritable(descriptor, False)
    # Close files that the agent's parent left open; the task must not inherit them.
    os.closerange(reserved.stop, 1 << 20)
    os.chdir("/")
    os.umask(0o077)
    Supervisor(folder, record.spec(folder), reserved).run()
    # Everything is written; an orderly interpreter shutdown would only keep the task's cgroup longer.
    os._exit(0)


class Container:
    """A container of the task, through its restarts."""

    def __init__(self, spec: ContainerSpec, log: RotatedFile, console: Console | None) -> None:
        self.spec = spec
        self.log = log
        self.console = console
        """Of a container that users can attach to."""
        self.phase = WAITING
        self.restart_at = 0.0
        self.restarts = 0
        self.crashes = 0
        """Ends soon after a start, in a row."""
        self.retry_at: float | None = None
        """Unix time of the restart that it waits for."""
        self.began = 0.0
        self.pid = 0
        self.start_time: int | None = None
        self.init: Init | None = None
        self.output: int | None = None
        self.exit: dict[str, Any] = {}

    @property
    def failed(self) -> bool:
        return bool(self.exit.get("exit_code"))

    @property
    def waited_for(self) -> int:
        """Pid of the child whose end is the end of the command."""
        return self.init.pid if self.init is not None else self.pid

    def exit_status(self, status: int) -> int:
        """Return the command's wait status, given that of the child waited for."""
        if self.init is None:
            return status
        # Reaped: its pid may be reused from here on.
        reported, self.init = self.init.exit_status(), None
        return status if reported is None else reported

    def listens(self) -> bool:
        """Return whether output of the process can be taken now."""
        return self.output is not None and (self.console is None or not self.console.full)

    def pump(self, *, last: bool = False) -> None:
        """Write the available output of the process to its log and to attached users; `last`: even to slow ones."""
        for _ in range(_CHUNKS_AT_ONCE):
            if self.output is None or not (last or self.listens()):
                return
            try:
                data = os.read(self.output, _CHUNK)
            except BlockingIOError:
                return
            except OSError:  # the end of a terminal
                data = b""
            if not data:
                self.close_output()
                return
            self.log.write(data)
            if self.console is not None:
                self.console.output(data)
            elif len(data) < _CHUNK:
                return

    def close_output(self) -> None:
        if self.output is not None:
            os.close(self.output)
            self.output = None


class Supervisor:
    def __init__(self, folder: str, task: TaskSpec, reserved: range) -> None:
        self.folder = folder
        self.reserved = reserved
        self.task = task
        self.containers = [
            Container(spec, RotatedFile(spec["log"], task["log_bytes"], task["log_files"]), self.console(spec, index))
            for index, spec in enumerate(task["containers"])
        ]
        self.boot_id = record.boot_id()
        self.start_time = record.start_time(os.getpid())
        self.started_at = time.time()
        self.childless = True
        self.stopping = False
        self.asked_cause = ""
        self.stop_cause = ""
        """Cause of the stop, if the task did not end by itself before."""
        self.warning: dict[str, Any] | None = None
        """The pending warning: the signal to send and its time."""
        self.warned_at: float | None = None
        self.kill_at: float | None = None
        self.poll_seconds = _MIN_POLL_SECONDS
        self.first_failure: Container | None = None
        self.last_ended: Container | None = None
        self.wakeup, wakeup_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Blocked by the agent until here, so that a stop request does not kill a supervisor that is still starting.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def console(self, spec: ContainerSpec, index: int) -> Console | None:
        if not (spec["terminal"] or spec["stdin"]):
            return None
        return Console(self.folder, index, terminal=spec["terminal"], size=spec["terminal_size"])

    def run(self) -> None:
        privileges.become_subreaper()
        self.leave_agent_cgroup()
        self.record("starting")
        if os.path.exists(f"{self.folder}/{record.STOP}"):
            self.stop()
        self.handle_warning()
        for container in self.containers:
            self.start(container)
        if any(container.phase == RUNNING for container in self.containers):
            self.record("running")
            self.notify()
        while not self.finished():
            self.wait()
            self.reap()
            self.step()
        self.finish()

    def leave_agent_cgroup(self) -> None:
        """Leave the agent's cgroup, so that a service manager that stops the agent does not kill the task."""
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("-998")
        if self.task["cgroup"] is not None:
            with contextlib.suppress(OSError), open(f"{self.task['cgroup']}/supervisor/cgroup.procs", "w") as file:
                file.write("0")

    def start(self, container: Container) -> None:
        if self.stopping:
            container.phase = ENDED
            return
        console = container.console
        size = container.spec["terminal_size"] if console is None else console.size
        try:
            started = child.start(self.task, container.spec, size)
        except child.StartFailed as failure:
            container.exit = {"exit_code": failure.exit_code, "error": failure.reason}
            container.crashes += 1
            self.end(container)
            return
        container.pid, container.output, container.init = started.pid, started.output, started.init
        container.start_time = record.start_time(container.pid)
        if console is not None and started.input is not None:
            console.started(started.input)
        container.began = time.monotonic()
        container.phase = RUNNING
        self.childless = False

    def wait(self) -> None:
        """Wait for output, the end of a process, a signal, or the next timer."""
        poll = select.poll()
        poll.register(self.wakeup, select.POLLIN)
        for container in self.containers:
            if container.output is not None and container.listens():
                poll.register(container.output, select.POLLIN)
            if container.console is not None:
                container.console.register(poll)
        seconds = self.due_in()
        events = dict(poll.poll(None if seconds is None else max(0, int(seconds * 1000) + 1)))
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.wakeup, 512):
                if signal.SIGTERM in data:
                    self.reap()
                    self.stop()
                if signal.SIGHUP in data:
                    self.handle_warning()
        for container in self.containers:
            container.pump()
            if container.console is not None:
                container.console.step(events)

    def due_in(self) -> float | None:
        now = time.monotonic()
        due = [container.restart_at - now for container in self.containers if container.phase == WAITING]
        stalled = (container.console.due_in() for container in self.containers if container.console is not None)
        due += [seconds for seconds in stalled if seconds is not None]
        if self.kill_at is not None:
            due.append(self.kill_at - now)
        if self.warning is not None:
            # The wall clock may be changed meanwhile, so no sleep may be arbitrarily long.
            due.append(min(self.warning["at"] - time.time(), _MAX_SLEEP_SECONDS))
        if self.looking():
            # End of a killed grandchild is not signalled: poll with increasing intervals.
            due = [max(seconds, self.poll_seconds) for seconds in due] + [self.poll_seconds]
            self.poll_seconds = min(self.poll_seconds * 2, _MAX_POLL_SECONDS)
        return min(due, default=None)

    def looking(self) -> bool:
        overdue = self.kill_at is not None and time.monotonic() >= self.kill_at
        phases = {container.phase for container in self.containers}
        return overdue or CLEARING in phases or phases == {ENDED}

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                self.childless = False
                return
            for container in self.containers:
                if container.phase == RUNNING and container.waited_for == pid:
                    self.main_ended(container, container.exit_status(status))

    def main_ended(self, container: Container, status: int) -> None:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        exit_code = os.WEXITSTATUS(status) if number is None else 128 + number
        container.exit = {"exit_code": exit_code, "signal": number}
        early = time.monotonic() - container.began < _RAN_WELL_SECONDS
        container.crashes = container.crashes + 1 if early else 0
        self.last_ended = container
        cgroup = container.spec["cgroup"]
        if exit_code != 0 and cgroup is not None and tree.out_of_memory(cgroup) > 0:
            container.exit["out_of_memory"] = True
        container.phase = CLEARING
        self.poll_seconds = _MIN_POLL_SECONDS

    def step(self) -> None:
        now = time.monotonic()
        for container in self.containers:
            if container.phase == CLEARING and self.cleared(container):
                self.settle(container)
            elif container.phase == WAITING and (self.stopping or now >= container.restart_at):
                self.restart(container)
        if self.warning is not None and time.time() >= self.warning["at"]:
            self.warn(self.warning)
        if self.kill_at is not None and now >= self.kill_at:
            for container in self.containers:
                if container.phase == RUNNING:
                    self.kill(container)

    def restart(self, container: Container) -> None:
        if self.stopping:
            container.phase = ENDED
            return
        container.restarts += 1
        container.retry_at = None
        self.start(container)
        self.record("running")
        self.notify()

    def settle(self, container: Container) -> None:
        """Restart a container whose processes are all gone, or mark it as ended."""
        container.pump(last=True)
        container.close_output()
        if container.console is not None:
            container.console.ended(container.exit.get("exit_code", 0))
        policy = self.task["restart"]
        wanted = policy == "always" or (policy == "on-failure" and container.failed)
        again = wanted and container.restarts < self.task["max_restarts"]
        if again and self.stopping:
            self.stop_cause = self.asked_cause
        elif again:
            container.phase = WAITING
            # Written out to avoid an import: a supervisor has to stay small.
            delay = min(2.0**container.restarts, _MAX_BACKOFF_SECONDS)
            container.restart_at, container.retry_at = time.monotonic() + delay, time.time() + delay
            self.record("running")
            self.notify()
            return
        self.end(container)

    def end(self, container: Container) -> None:
        container.phase = ENDED
        self.poll_seconds = _MIN_POLL_SECONDS
        if container.failed and not self.stopping:
            # The first container that fails ends the others.
            self.first_failure = container
            self.begin_stop(self.task["grace_seconds"])

    def stop(self) -> None:
        """Handle a stop request; a later request may shorten the grace period."""
        asked = record.read(f"{self.folder}/{record.STOP}") or {}
        if not self.stopping:
            self.asked_cause = asked.get("cause") or "interrupted"
            if any(container.phase in (RUNNING, WAITING) for container in self.containers):
                self.stop_cause = self.asked_cause
        grace = asked.get("grace_seconds")
        self.begin_stop(self.task["grace_seconds"] if grace is None else grace)

    def handle_warning(self) -> None:
        """Handle an order to warn the processes before their time limit; each time is warned of once."""
        asked = record.read(f"{self.folder}/{record.WARNING}")
        self.warning = asked if asked is not None and asked["at"] != self.warned_at else None

    def warn(self, warning: dict[str, Any]) -> None:
        self.warning, self.warned_at = None, warning["at"]
        if self.stopping or warning["number"] is None:
            return
        for container in self.containers:
            if container.phase == RUNNING:
                tree.send(self.processes(container), warning["number"])

    def begin_stop(self, grace_seconds: float) -> None:
        kill_at = time.monotonic() + max(grace_seconds, 0)
        self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)
        self.poll_seconds = _MIN_POLL_SECONDS
        if self.stopping:
            return
        self.stopping = True
        for container in self.containers:
            if container.phase == RUNNING:
                tree.send(self.processes(container), signal.SIGTERM)
                if container.spec["terminal"]:
                    # Interactive shells ignore SIGTERM, and end when their terminal hangs up.
                    tree.send(self.processes(container), signal.SIGHUP)

    def processes(self, container: Container) -> list[int]:
        """Return every process that can be attributed to the container."""
        cgroup = container.spec["cgroup"]
        if cgroup is not None:
            return tree.members(cgroup)
        if container.init is not None:
            return list(tree.descendants(container.init.pid))
        below = tree.descendants(os.getpid())
        if len(self.containers) == 1:
            return list(below)
        return [pid for pid, session in below.items() if session == container.pid]

    def kill(self, container: Container) -> None:
        cgroup = container.spec["cgroup"]
        if cgroup is not None:
            tree.kill_cgroup(cgroup)
        elif container.init is not None:
            tree.send([container.init.pid], signal.SIGKILL)
        else:
            tree.kill_processes(self.processes(container))

    def cleared(self, container: Container) -> bool:
        """Return whether no process of the container is left; remaining ones are killed again."""
        cgroup = container.spec["cgroup"]
        left = tree.populated(cgroup) if cgroup is not None else not self.childless and bool(self.processes(container))
        if left:
            self.kill(container)
        return not left

    def finished(self) -> bool:
        """Return whether every container has ended and no descendant of this process is left."""
        if any(container.phase != ENDED for container in self.containers):
            return False
        self.reap()
        if not self.childless:
            tree.kill_processes(list(tree.descendants(os.getpid())))
        return self.childless

    def finish(self) -> None:
        for container in self.containers:
            container.pump(last=True)
            container.close_output()
            container.log.close()
            if container.console is not None:
                container.console.close()
            if container.spec["cgroup"] is not None:
                with contextlib.suppress(OSError):
                    os.rmdir(container.spec["cgroup"])
        # Before the exit is known: the next task may get the same ports at once.
        os.closerange(self.reserved.start, self.reserved.stop)
        outcome = self.outcome()
        while True:
            try:
                record.write(f"{self.folder}/{record.EXIT}", outcome, durable=True)
                break
            except FileNotFoundError:  # the task's folder was removed: the result is no longer needed
                break
            except OSError:  # a full disk: retry, since the exit must not be lost and the task has ended
                time.sleep(1)
        self.notify()

    def outcome(self) -> dict[str, Any]:
        """Return the outcome of the task: that of the container that failed first, or of the last one."""
        speaker = self.first_failure or next((c for c in self.containers if c.failed), self.containers[-1])
        return {
            **speaker.exit,
            "container": speaker.spec["name"] if len(self.containers) > 1 else "",
            "stop_cause": self.stop_cause,
            "ran": any(container.pid for container in self.containers),
            "restarts": sum(container.restarts for container in self.containers),
            "crashes": max(container.crashes for container in self.containers),
            "started_at": self.started_at,
            "ended_at": time.time(),
        }

    def record(self, phase: str) -> None:
        state = {
            "phase": phase,
            "boot_id": self.boot_id,
            "pid": os.getpid(),
            "start_time": self.start_time,
            "restarts": sum(container.restarts for container in self.containers),
            "crashes": max(container.crashes for container in self.containers),
            "last_exit": self.last_exit(),
            "ready": all(container.phase != WAITING for container in self.containers),
            "started_at": self.started_at,
            "processes": [{"pid": c.pid, "start_time": c.start_time} for c in self.containers if c.pid],
            "inits": [_init_state(container) for container in self.containers],
        }
        with contextlib.suppress(OSError):
            record.write(f"{self.folder}/{record.STATE}", state)

    def last_exit(self) -> dict[str, Any] | None:
        """Return the end of the container that ended last, and the time of its restart."""
        ended = self.last_ended
        if ended is None:
            return None
        named = {"container": ended.spec["name"]} if len(self.containers) > 1 else {}
        return {**ended.exit, **named, "retry_at": ended.retry_at}

    def notify(self) -> None:
        """Notify a listening agent. Otherwise the next agent finds the files."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.task["notify"], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(descriptor, f"{self.task['task_id']}\n".encode())
            finally:
                os.close(descriptor)


def _init_state(container: Container) -> dict[str, int | None] | None:
    if container.init is None:
        return None
    return {"pid": container.init.pid, "start_time": record.start_time(container.init.pid)}
