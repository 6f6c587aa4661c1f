"""Remaining processes of a task: those below the supervisor and in the task's cgroups, and how to kill them."""

# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import os
import signal

from mooring.agent.runtimes.process.supervisor.record import stat_fields


def descendants(root: int) -> dict[int, int]:
    """Return every living process below `root`, with its session."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields and fields[0] not in "ZX":
                children.setdefault(int(fields[1]), []).append((int(name), int(fields[3])))
    found: dict[int, int] = {}
    waiting = [root]
    while waiting:
        for pid, session in children.get(waiting.pop(), ()):
            if pid not in found:
                found[pid] = session
                waiting.append(pid)
    return found


def members(cgroup: str) -> list[int]:
    try:
        with open(f"{cgroup}/cgroup.procs") as file:
            return [int(line) for line in file]
    except OSError:
        return []


def populated(cgroup: str) -> bool:
    """Return whether a living process is in the cgroup or below it."""
    try:
        with open(f"{cgroup}/cgroup.events") as file:
            return "populated 1" in file.read()
    except OSError:
        return False


def kill_cgroup(cgroup: str) -> None:
    try:
        with open(f"{cgroup}/cgroup.kill", "w") as file:
            file.write("1")
    except OSError:  # before Linux 5.14
        send(members(cgroup), signal.SIGKILL)


def kill_processes(pids: list[int]) -> None:
    """Kill the processes, after stopping them all so that none forks meanwhile."""
    send(pids, signal.SIGSTOP)
    send(pids, signal.SIGKILL)


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def out_of_memory(cgroup: str) -> int:
    """Return the number of processes of the cgroup that the kernel has OOM-killed."""
    try:
        with open(f"{cgroup}/memory.events") as file:
            return oom_kills(file.read())
    except OSError:
        return 0


def oom_kills(events: str) -> int:
    for line in events.splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0
