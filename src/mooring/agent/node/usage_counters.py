"""Usage counters of cgroups (v1, hybrid and v2), and of processes if cgroups do not count."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from mooring.agent.runtimes.process.supervisor.record import stat_fields

UNIFIED = ""
"""Name of the v2 hierarchy among the v1 controllers."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """Current memory, and other counters since the start. None: not known."""

    cpu_microseconds: int | None = None
    memory_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None

    @property
    def complete(self) -> bool:
        return all(getattr(self, each.name) is not None for each in fields(self))

    def or_else(self, other: Usage) -> Usage:
        """Return this usage with unknown values taken from the other."""
        parts = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return Usage(*(own if own is not None else theirs for own, theirs in parts))


def total(uses: Iterable[Usage]) -> Usage:
    """Return the sum; a value that is unknown for one is unknown for the sum."""
    parts = list(uses)
    return Usage(*(_sum([getattr(part, each.name) for part in parts]) for each in fields(Usage)))


def of_cgroup(folders: Mapping[str, Path]) -> Usage:
    """Return the usage of a cgroup, given its folder by controller. Memory excludes reclaimable page cache."""
    unified = folders.get(UNIFIED)
    use = Usage()
    if unified is not None:
        read, written = _io_stat(_text(unified / "io.stat"))
        use = Usage(
            _field(_text(unified / "cpu.stat"), "usage_usec"),
            _working_set(unified, "memory.current", "inactive_file"),
            read,
            written,
        )
    read, written = _blkio(folders["blkio"]) if "blkio" in folders else (None, None)
    nanoseconds = _number(folders["cpuacct"] / "cpuacct.usage") if "cpuacct" in folders else None
    memory = folders.get("memory")
    controllers = Usage(
        nanoseconds // 1000 if nanoseconds is not None else None,
        _working_set(memory, "memory.usage_in_bytes", "total_inactive_file") if memory is not None else None,
        read,
        written,
    )
    return controllers.or_else(use)


def cgroup_of(pid: int) -> dict[str, Path]:
    """Return the folder of a process's cgroup by controller, without root cgroups, which are the whole machine."""
    found: dict[str, Path] = {}
    mounts = _mounts()
    for line in (_text(Path(f"/proc/{pid}/cgroup")) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller not in mounts or path == "/":
                continue
            mount, root = mounts[controller]
            # In a container the hierarchy is mounted from the container's own cgroup.
            inner = path.removeprefix(root) if root != "/" else path
            found[controller] = mount / inner.lstrip("/")
    return found


def mounts_of(mountinfo: str) -> dict[str, tuple[Path, str]]:
    """Return the mount point of each controller's hierarchy, and the mounted part."""
    found: dict[str, tuple[Path, str]] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, mount = (field.replace("\\040", " ") for field in before.split()[3:5])
        for controller in options.split(",") if kind == "cgroup" else (UNIFIED,):
            found.setdefault(controller, (Path(mount), root))
    return found


class Processes:
    """A snapshot of all processes of the machine."""

    def __init__(self) -> None:
        self._stats: dict[int, list[str]] = {}
        self._children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):  # noqa: PTH208
            if name.isdigit() and (stat := stat_fields(int(name))):
                self._stats[int(name)] = stat
                self._children.setdefault(int(stat[1]), []).append(int(name))

    def below(self, root: int) -> Usage:
        """Return the usage of the processes below `root`, including reaped children."""
        if root not in self._stats:
            return Usage(0, 0, 0, 0)
        left = Usage(self._microseconds(root, 13), 0, *_process_io(root))
        return total([left, *(self.from_on(pid) for pid in self._children.get(root, ()))])

    def in_namespaces(self, root: int) -> Usage:
        """Return the usage below `root`, whose children are PID 1 of namespaces: without them, but with their tmpfs."""
        if root not in self._stats:
            return Usage(0, 0, 0, 0)
        left = Usage(self._microseconds(root, 13), 0, *_process_io(root))
        inits = self._children.get(root, [])
        files = Usage(0, sum(map(_tmpfs_bytes, inits)), 0, 0)
        return total([left, files, *(self.below(pid) for pid in inits)])

    def from_on(self, root: int) -> Usage:
        """Return the usage of a process and its descendants."""
        found: list[Usage] = []
        waiting = [root] if root in self._stats else []
        while waiting:
            pid = waiting.pop()
            waiting += self._children.get(pid, ())
            memory = int(self._stats[pid][21]) * _PAGE_BYTES
            found.append(Usage(self._microseconds(pid, 11), memory, *_process_io(pid)))
        return total(found)

    def _microseconds(self, pid: int, first: int) -> int:
        """Return user and system time, including reaped children."""
        return sum(int(field) for field in self._stats[pid][first:15]) * 1_000_000 // _TICKS_PER_SECOND


def _tmpfs_bytes(pid: int) -> int:
    """Return the bytes in a task's tmpfs, which the memory of its processes does not include."""
    try:
        found = os.statvfs(f"/proc/{pid}/root/tmp")
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def network_of(pid: int) -> tuple[int, int]:
    """Return the bytes that a process's network received and sent, without loopback; nothing for the host network."""
    received = sent = 0
    try:
        if Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
            return 0, 0
    except OSError:
        return 0, 0
    for line in (_text(Path(f"/proc/{pid}/net/dev")) or "").splitlines()[2:]:
        name, _, counters = line.partition(":")
        if name.strip() != "lo":
            columns = counters.split()
            received, sent = received + int(columns[0]), sent + int(columns[8])
    return received, sent


@cache
def _mounts() -> dict[str, tuple[Path, str]]:
    return mounts_of(Path("/proc/self/mountinfo").read_text())


def _sum(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _text(path: Path) -> str | None:
    """Return the file's text; None if it does not exist, or its cgroup or process is gone."""
    try:
        return path.read_text()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text else None


def _field(text: str | None, name: str) -> int | None:
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None


def _working_set(folder: Path, usage: str, inactive: str) -> int | None:
    used = _number(folder / usage)
    if used is None:
        return None
    return max(0, used - (_field(_text(folder / "memory.stat"), inactive) or 0))


def _io_stat(text: str | None) -> tuple[int | None, int | None]:
    """Return the sums of lines such as `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`, one per disk."""
    if text is None:
        return None, None
    read = written = 0
    for line in text.splitlines():
        counters = dict(part.split("=", 1) for part in line.split()[1:] if "=" in part)
        read, written = read + int(counters.get("rbytes", 0)), written + int(counters.get("wbytes", 0))
    return read, written


def _blkio(folder: Path) -> tuple[int | None, int | None]:
    """Return the sums of lines such as `8:0 Read 4096`, one per disk and direction."""
    text = _text(folder / "blkio.throttle.io_service_bytes_recursive")
    if text is None:
        return None, None
    sums = {"Read": 0, "Write": 0}
    for line in text.splitlines():
        match line.split():
            case [_, ("Read" | "Write") as way, number]:
                sums[way] += int(number)
    return sums["Read"], sums["Write"]


def _process_io(pid: int) -> tuple[int, int]:
    """Return 0 for processes that may not be inspected."""
    text = _text(Path(f"/proc/{pid}/io"))
    return _field(text, "read_bytes:") or 0, _field(text, "write_bytes:") or 0
