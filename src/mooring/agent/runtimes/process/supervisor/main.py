"""The loop of one task's supervisor: start, keep the output, restart, stop, and end when nothing is left."""

# ruff: noqa: PTH106, PTH110, PTH123
from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from mooring.agent.supervisor import child, record, tree
from mooring.agent.supervisor.output import RotatedFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mooring.agent.supervisor.record import ContainerSpec, TaskSpec

RUNNING, CLEARING, WAITING, ENDED = "running", "clearing", "waiting", "ended"
"""A container runs; its main process ended and what it left is being killed; it waits for a restart; it is over."""

_LONGEST_BACKOFF_SECONDS = 30.0
_SHORTEST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.002, 0.2
_LONGEST_SLEEP_SECONDS = 3600.0
_CHUNK = 65536
# More than a pipe can hold, yet a process that never stops talking does not keep the loop from its other work.
_CHUNKS_AT_ONCE = 32


def main(folder: str, lock: int) -> None:
    # The lock says that this task has a supervisor; it ends with this process and is not for the task's own processes.
    os.set_inheritable(lock, False)
    # Whoever started the agent may have left files open; none of them is the task's business.
    os.closerange(lock + 1, 1 << 20)
    os.chdir("/")
    os.umask(0o077)
    task: TaskSpec | Any = record.read(f"{folder}/{record.SPEC}")
    Supervisor(folder, task).run()
    # Everything is written; taking the interpreter down in order would only keep the task's cgroup a little longer.
    os._exit(0)


class Container:
    """One process of the task, through its restarts."""

    def __init__(self, spec: ContainerSpec, log: RotatedFile) -> None:
        self.spec = spec
        self.log = log
        self.phase = WAITING
        self.restart_at = 0.0
        self.restarts = 0
        self.pid = 0
        self.start_time: int | None = None
        self.output: int | None = None
        self.exit: dict[str, Any] = {}

    @property
    def failed(self) -> bool:
        return bool(self.exit.get("exit_code"))

    def pump(self) -> None:
        """Write what the process has said so far into its log."""
        for _ in range(_CHUNKS_AT_ONCE):
            if self.output is None:
                return
            try:
                data = os.read(self.output, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.close_output()
                return
            self.log.write(data)
            if len(data) < _CHUNK:
                return

    def close_output(self) -> None:
        if self.output is not None:
            os.close(self.output)
            self.output = None


class Supervisor:
    def __init__(self, folder: str, task: TaskSpec) -> None:
        self.folder = folder
        self.task = task
        self.containers = [
            Container(spec, RotatedFile(spec["log"], task["log_bytes"], task["log_files"]))
            for spec in task["containers"]
        ]
        self.boot_id = record.boot_id()
        self.start_time = record.start_time(os.getpid())
        self.started_at = time.time()
        self.childless = True
        self.stopping = False
        self.asked_cause = ""
        self.stop_cause = ""
        """Who ended the task, if it did not end by itself before."""
        self.warning: dict[str, Any] | None = None
        """What the processes are to be sent, and when, unless that was done."""
        self.warned_at: float | None = None
        self.kill_at: float | None = None
        self.look_seconds = _SHORTEST_LOOK_SECONDS
        self.first_failure: Container | None = None
        self.wake, wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # The agent has them blocked until here: a request to stop must not kill a supervisor that is still starting.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def run(self) -> None:
        child.become_subreaper()
        self.leave_the_agent()
        self.record("starting")
        if os.path.exists(f"{self.folder}/{record.STOP}"):
            self.stop()
        self.take_warning()
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

    def leave_the_agent(self) -> None:
        """Out of the agent's cgroup, so that a service manager that ends the agent's leaves the task alone."""
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("-998")
        if self.task["cgroup"] is not None:
            with contextlib.suppress(OSError), open(f"{self.task['cgroup']}/supervisor/cgroup.procs", "w") as file:
                file.write("0")

    def start(self, container: Container) -> None:
        if self.stopping:
            container.phase = ENDED
            return
        try:
            container.pid, container.output = child.start(self.task, container.spec)
        except child.StartFailed as failure:
            container.exit = {"exit_code": failure.exit_code, "error": failure.reason}
            self.end(container)
            return
        container.start_time = record.start_time(container.pid)
        container.phase = RUNNING
        self.childless = False

    def wait(self) -> None:
        """Sleep until a process says something or ends, a signal comes, or the next thing is due."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        for container in self.containers:
            if container.output is not None:
                poll.register(container.output, select.POLLIN)
        seconds = self.due_in()
        poll.poll(None if seconds is None else max(0, int(seconds * 1000) + 1))
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.wake, 512):
                if signal.SIGTERM in data:
                    self.reap()
                    self.stop()
                if signal.SIGHUP in data:
                    self.take_warning()
        for container in self.containers:
            container.pump()

    def due_in(self) -> float | None:
        now = time.monotonic()
        due = [container.restart_at - now for container in self.containers if container.phase == WAITING]
        if self.kill_at is not None:
            due.append(self.kill_at - now)
        if self.warning is not None:
            # The clock of the day may be set meanwhile, and no sleep may be arbitrarily long.
            due.append(min(self.warning["at"] - time.time(), _LONGEST_SLEEP_SECONDS))
        if self.looking():
            # A killed process is gone soon, but nothing tells when a grandchild is: look again, ever less often.
            due = [max(seconds, self.look_seconds) for seconds in due] + [self.look_seconds]
            self.look_seconds = min(self.look_seconds * 2, _LONGEST_LOOK_SECONDS)
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
                if container.phase == RUNNING and container.pid == pid:
                    self.main_ended(container, status)

    def main_ended(self, container: Container, status: int) -> None:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        exit_code = os.WEXITSTATUS(status) if number is None else 128 + number
        container.exit = {"exit_code": exit_code, "signal": number}
        cgroup = container.spec["cgroup"]
        if exit_code != 0 and cgroup is not None and tree.out_of_memory(cgroup) > 0:
            container.exit["out_of_memory"] = True
        container.phase = CLEARING
        self.look_seconds = _SHORTEST_LOOK_SECONDS

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
        self.start(container)
        self.record("running")
        self.notify()

    def settle(self, container: Container) -> None:
        """The container's process and all that it left are gone: start it again or call it ended."""
        container.pump()
        container.close_output()
        policy = self.task["restart"]
        wanted = policy == "always" or (policy == "on-failure" and container.failed)
        again = wanted and container.restarts < self.task["max_restarts"]
        if again and self.stopping:
            self.stop_cause = self.asked_cause
        elif again:
            container.phase = WAITING
            container.restart_at = time.monotonic() + min(2.0**container.restarts, _LONGEST_BACKOFF_SECONDS)
            self.record("running")
            self.notify()
            return
        self.end(container)

    def end(self, container: Container) -> None:
        container.phase = ENDED
        self.look_seconds = _SHORTEST_LOOK_SECONDS
        if container.failed and not self.stopping:
            # The containers of a task stand together: the first that fails ends the others.
            self.first_failure = container
            self.begin_stop(self.task["grace_seconds"])

    def stop(self) -> None:
        """Someone asked for the end; a later request may shorten the grace."""
        asked = record.read(f"{self.folder}/{record.STOP}") or {}
        if not self.stopping:
            self.asked_cause = asked.get("cause") or "interrupted"
            if any(container.phase in (RUNNING, WAITING) for container in self.containers):
                self.stop_cause = self.asked_cause
        grace = asked.get("grace_seconds")
        self.begin_stop(self.task["grace_seconds"] if grace is None else grace)

    def take_warning(self) -> None:
        """Someone said what to tell the processes before their time is over; each time is warned of once."""
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
        self.look_seconds = _SHORTEST_LOOK_SECONDS
        if self.stopping:
            return
        self.stopping = True
        for container in self.containers:
            if container.phase == RUNNING:
                tree.send(self.processes(container), signal.SIGTERM)

    def processes(self, container: Container) -> list[int]:
        """Every process of the container that can be told to be its own."""
        cgroup = container.spec["cgroup"]
        if cgroup is not None:
            return tree.members(cgroup)
        below = tree.descendants(os.getpid())
        if len(self.containers) == 1:
            return list(below)
        return [pid for pid, session in below.items() if session == container.pid]

    def kill(self, container: Container) -> None:
        cgroup = container.spec["cgroup"]
        if cgroup is not None:
            tree.kill_cgroup(cgroup)
        else:
            tree.kill_processes(self.processes(container))

    def cleared(self, container: Container) -> bool:
        """Nothing of the container is left; otherwise what is left has been killed again."""
        cgroup = container.spec["cgroup"]
        left = tree.populated(cgroup) if cgroup is not None else not self.childless and bool(self.processes(container))
        if left:
            self.kill(container)
        return not left

    def finished(self) -> bool:
        """Every container ended and no process is left below this one, wherever it may have gone."""
        if any(container.phase != ENDED for container in self.containers):
            return False
        self.reap()
        if not self.childless:
            tree.kill_processes(list(tree.descendants(os.getpid())))
        return self.childless

    def finish(self) -> None:
        for container in self.containers:
            container.pump()
            container.close_output()
            container.log.close()
            if container.spec["cgroup"] is not None:
                with contextlib.suppress(OSError):
                    os.rmdir(container.spec["cgroup"])
        outcome = self.outcome()
        while True:
            try:
                record.write(f"{self.folder}/{record.EXIT}", outcome, durable=True)
                break
            except OSError:  # a full disk: the exit must not be lost, and nothing of the task runs any more
                time.sleep(1)
        self.notify()

    def outcome(self) -> dict[str, Any]:
        """What became of the task: of the container that failed first, or of the last one."""
        speaker = self.first_failure or next((c for c in self.containers if c.failed), self.containers[-1])
        return {
            **speaker.exit,
            "container": speaker.spec["name"] if len(self.containers) > 1 else "",
            "stop_cause": self.stop_cause,
            "ran": any(container.pid for container in self.containers),
            "restarts": sum(container.restarts for container in self.containers),
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
            "ready": all(container.phase != WAITING for container in self.containers),
            "started_at": self.started_at,
            "processes": [{"pid": c.pid, "start_time": c.start_time} for c in self.containers if c.pid],
        }
        with contextlib.suppress(OSError):
            record.write(f"{self.folder}/{record.STATE}", state)

    def notify(self) -> None:
        """Tell a listening agent to look; without one the next agent finds the files by itself."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.task["notify"], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(descriptor, f"{self.task['task_id']}\n".encode())
            finally:
                os.close(descriptor)
