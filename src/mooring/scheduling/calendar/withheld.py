"""The needs of planned starts beyond slots: devices, ports, sessions of a licence and the number of tasks on a node.

Amounts of slots are promised on the timeline. Other needs are withheld in the columns while a pass runs: each planned
start withholds the part of its needs that is not released before it by tasks that end earlier. Work that ends before a
planned start may use what that start withholds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.quantity import INT64_MAX
from mooring.model.workloads.constraints import HostPort
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.promises import Promise
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.calendar.timeline import Timeline
from mooring.scheduling.cluster.columns import ClusterColumns

_TASKS, _LICENCES = "tasks", "licences"


class _Device(NamedTuple):
    slot: str
    number: int


class Withheld(NamedTuple):
    """The needs of a planned start on a row, withheld from work that would still be running then."""

    start: int
    row: int
    tasks: int
    licences: int
    ports: tuple[HostPort, ...]
    devices: tuple[DeviceShare, ...]

    def concerns(self, workload: Workload) -> bool:
        """Return whether the workload requests anything that is withheld."""
        constraints = workload.constraints
        return (
            self.tasks > 0
            or (self.licences > 0 and constraints.licence is not None)
            or (bool(self.ports) and bool(constraints.host_ports or constraints.ports_wanted))
            or any(share.slot in workload.request for share in self.devices)
        )


class Plans:
    """The needs of planned starts beyond slots, withheld from other work."""

    def __init__(self, cluster: ClusterColumns, timeline: Timeline) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._by_row: dict[int, list[Withheld]] = {}
        self._in_force = 0

    def in_force(self) -> AbstractContextManager[None]:
        """Withhold the needs of planned starts within this context; `renew` adds plans that are made meanwhile."""
        return _InForce(self)

    def begin(self) -> None:
        self._in_force += 1
        if self._in_force == 1 and self._timeline.planned_count:
            self.renew({promise.row for promise in self._timeline.planned})

    def end(self) -> None:
        self._in_force -= 1
        if not self._in_force and self._by_row:
            self._move(self._all(), -1)
            self._by_row = {}

    def renew(self, rows: Iterable[int]) -> None:
        """Update the withheld needs on rows whose planned starts have changed."""
        if not self._in_force:
            return
        beyond_slots, max_tasks = self._timeline.planned_beyond_slots > 0, self._cluster.max_tasks
        for row in rows:
            if not beyond_slots and row not in self._by_row and max_tasks[row] == INT64_MAX:
                continue
            self._move(self._by_row.pop(row, ()), -1)
            entries = withheld_on(self._cluster, self._timeline, row, self._timeline.now)
            if entries:
                self._by_row[row] = entries
                self._move(entries, 1)

    @property
    def withholds(self) -> bool:
        """Whether anything is withheld."""
        return bool(self._by_row)

    def would_lift(self, workload: Workload) -> bool:
        """Return whether the workload may use something withheld because it ends before that is needed."""
        return bool(self._by_row) and any(each.concerns(workload) for each in self._not_needed_before(workload))

    @contextmanager
    def lifted_for(self, workload: Workload) -> Iterator[None]:
        """Release within this context what the workload may use until it ends."""
        with self._lifted(self._not_needed_before(workload) if self._by_row else ()):
            yield

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Release everything withheld within this context."""
        with self._lifted(list(self._all())):
            yield

    @contextmanager
    def _lifted(self, entries: Collection[Withheld]) -> Iterator[None]:
        self._move(entries, -1)
        try:
            yield
        finally:
            self._move(entries, 1)

    def _all(self) -> Iterator[Withheld]:
        return (each for entries in self._by_row.values() for each in entries)

    def _not_needed_before(self, workload: Workload) -> list[Withheld]:
        seconds = workload.gap_seconds
        end = NEVER if seconds is None else self._timeline.now + max(seconds, 1)
        return [each for each in self._all() if each.start >= end]

    def _move(self, entries: Iterable[Withheld], sign: int) -> None:
        for _, row, tasks, licences, ports, devices in entries:
            self._cluster.withhold(row, tasks, licences, ports, devices, sign)


class _InForce(AbstractContextManager[None]):
    """A class, since every pass begins and ends with it, and a generator takes several times as long."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans

    def __enter__(self) -> None:
        self._plans.begin()

    def __exit__(self, *_: object) -> None:
        self._plans.end()


def withheld_on(
    cluster: ClusterColumns, timeline: Timeline, row: int, moment: int, before: int = NEVER
) -> list[Withheld]:
    """Return the needs at a moment of the starts planned on a row after that moment and before a time.

    A start needs what its tasks use, together with those that started before it and still run, less what is released by
    then. Of successive starts, each adds only what those before it do not already withhold.
    """
    planned = [promise for _, promise in timeline.on(row) if promise.is_planned]
    ahead = [each for each in planned if moment < _start(each) < before]
    counts_tasks = cluster.max_tasks[row] != INT64_MAX
    if not any(counts_tasks or (each.footprint is not None and each.footprint.is_beyond_slots) for each in ahead):
        return []
    there = [each for _, each in timeline.on(row) if each.start is None]
    there += [each for each in planned if _start(each) <= moment]
    most: Counter[Hashable] = Counter()
    found: list[Withheld] = []
    for start in sorted({_start(each) for each in ahead}):
        needed: Counter[Hashable] = Counter()
        for each in ahead:
            if _start(each) <= start < _end(each):
                needed.update(_counted(each))
        for each in there:
            if _end(each) <= start:
                needed.subtract(_counted(each))
        extra = {key: amount - most[key] for key, amount in needed.items() if amount > most[key]}
        most.update(extra)
        shares = sorted((key, amount) for key, amount in extra.items() if isinstance(key, _Device))
        devices = tuple(DeviceShare(key.slot, key.number, amount) for key, amount in shares)
        ports = tuple(port for each in ahead if _start(each) == start for port in _ports(each))
        tasks = extra.get(_TASKS, 0) if counts_tasks else 0
        entry = Withheld(start, row, tasks, extra.get(_LICENCES, 0), ports, devices)
        if any(entry[2:]):
            found.append(entry)
    return found


def _counted(promise: Promise) -> dict[Hashable, int]:
    counted: Counter[Hashable] = Counter({_TASKS: promise.tasks})
    footprint = promise.footprint
    if footprint is not None:
        counted[_LICENCES] = footprint.licences * promise.tasks
        for slot, device, amount in footprint.devices:
            counted[_Device(slot, device)] += amount * promise.tasks
    return counted


def _ports(promise: Promise) -> tuple[HostPort, ...]:
    constraints = None if promise.footprint is None else promise.footprint.constraints
    return () if constraints is None else constraints.host_ports


def _start(promise: Promise) -> int:
    assert promise.start is not None
    return promise.start


def _end(promise: Promise) -> int:
    return NEVER if promise.end is None else promise.end
