"""Who is on which node, as far as preemption asks: the most important first, and who is on the way out for whom."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from mooring.model.constraints import Constraints, HostPort
from mooring.model.errors import InvalidInput
from mooring.model.preemption import Resident
from mooring.model.workloads import LONG_AGO
from mooring.scheduling.columns import Cluster, with_host_ports
from mooring.scheduling.journal import Journal

NOT_STARTED = 1 << 62
"""The start of a task that is placed and has not started: later than every other."""
_MICROSECOND = timedelta(microseconds=1)


class Residents:
    """The tasks on the nodes. A node that is told anew loses what was marked on it since."""

    def __init__(self, residents: Iterable[Resident] = ()) -> None:
        self._on: dict[UUID, tuple[Resident, ...]] = {}
        self._of_workload: defaultdict[UUID, dict[UUID, Resident]] = defaultdict(dict)
        self._leaving_for: defaultdict[UUID, dict[UUID, Resident]] = defaultdict(dict)
        self._priorities: Counter[int] = Counter()
        self._whole: Counter[int] = Counter()
        self._changes = Journal()
        self._numbers: dict[UUID, int] = {}
        self._nodes: list[UUID] = []
        by_node: defaultdict[UUID, list[Resident]] = defaultdict(list)
        for resident in residents:
            by_node[resident.node_id].append(resident)
        for node_id, here in by_node.items():
            self.tell(node_id, here)

    @property
    def revision(self) -> int:
        return self._changes.revision

    def changed_since(self, revision: int) -> list[UUID] | None:
        """The nodes about which something changed; None if that is no longer known."""
        numbers = self._changes.since(revision)
        return None if numbers is None else [self._nodes[number] for number in numbers.tolist()]

    @property
    def lowest_priority(self) -> int | None:
        """Of those that may have to leave, or do already; None if there are none."""
        return min(self._priorities, default=None)

    def any_whole(self, below: int) -> bool:
        """Whether some of those below a priority who may have to leave take others with them."""
        return any(priority < below for priority in self._whole)

    @property
    def nodes(self) -> Iterable[UUID]:
        return self._on.keys()

    def tell(self, node_id: UUID, residents: Iterable[Resident]) -> None:
        """Who is on a node, all of them."""
        now = tuple(sorted(residents, key=importance))
        if any(resident.node_id != node_id for resident in now):
            raise InvalidInput(f"a task that is told on node {node_id} is on another", code="invalid-resident")
        for resident in self._on.pop(node_id, ()):
            self._count(resident, -1)
        if now:
            self._on[node_id] = now
        for resident in now:
            self._count(resident, 1)
        self._note(node_id)

    def remove(self, node_id: UUID) -> None:
        """A node is gone; one that was never told is no error."""
        self.tell(node_id, ())

    def on(self, node_id: UUID) -> Sequence[Resident]:
        """The tasks on a node, the most important first."""
        return self._on.get(node_id, ())

    def of_workload(self, workload_id: UUID) -> list[Resident]:
        """The tasks of a workload on all nodes, the most important first."""
        return sorted(self._of_workload.get(workload_id, {}).values(), key=importance)

    def leaving_for(self, workload_id: UUID) -> list[Resident]:
        """The tasks that make room for a workload and have not left yet."""
        return sorted(self._leaving_for.get(workload_id, {}).values(), key=importance)

    def mark(self, node_id: UUID, tasks: Mapping[UUID, UUID | None]) -> None:
        """For whom tasks on a node make room from now on; None: they stay, after all."""
        marked: list[Resident] = []
        for resident in self._on.get(node_id, ()):
            if resident.task_id in tasks:
                self._count(resident, -1)
                changed = replace(resident, leaving_for=tasks[resident.task_id])
                self._count(changed, 1)
                marked.append(changed)
            else:
                marked.append(resident)
        self._on[node_id] = tuple(marked)
        self._note(node_id)

    def note_workload(self, workload_id: UUID) -> None:
        """What is to be said about the tasks of a workload changed, wherever they are."""
        for node_id in {each.node_id for each in self._of_workload.get(workload_id, {}).values()}:
            self._note(node_id)

    def _count(self, resident: Resident, sign: int) -> None:
        _enter(self._of_workload, resident.workload_id, resident, sign)
        if resident.whole:
            self.note_workload(resident.workload_id)
        if resident.leaving_for is not None:
            _enter(self._leaving_for, resident.leaving_for, resident, sign)
        if resident.preemptible:
            _tally(self._priorities, resident.priority, sign)
            if resident.whole and resident.leaving_for is None:
                _tally(self._whole, resident.priority, sign)

    def _note(self, node_id: UUID) -> None:
        number = self._numbers.setdefault(node_id, len(self._nodes))
        if number == len(self._nodes):
            self._nodes.append(node_id)
        self._changes.note((number,))


def told_residents(cluster: Cluster, residents: Iterable[Resident]) -> Residents:
    """Residents of whom the cluster is told, too; nodes without any are left as they are."""
    known = Residents(residents)
    for node_id in known.nodes:
        here = known.on(node_id)
        cluster.tell_tasks(
            node_id,
            [(shown_constraints(each), 1) for each in here if each.leaving_for is None],
            leaving=[(shown_constraints(each), 1) for each in here if each.leaving_for is not None],
        )
    return known


def shown_constraints(resident: Resident) -> Constraints:
    """What a task shows to others: its constraints, with the ports that it was given."""
    return with_host_ports(resident.constraints, (HostPort(port, protocol) for protocol, port in resident.ports))


def _tally(counts: Counter[int], priority: int, sign: int) -> None:
    counts[priority] += sign
    if not counts[priority]:
        del counts[priority]


def _enter(index: dict[UUID, dict[UUID, Resident]], key: UUID, resident: Resident, sign: int) -> None:
    if sign > 0:
        index[key][resident.task_id] = resident
    else:
        index[key].pop(resident.task_id, None)
        if not index[key]:
            del index[key]


def importance(resident: Resident) -> tuple[int, int, int]:
    """The most important first: by priority, then who runs longest."""
    return -resident.priority, start_of(resident.started_at), resident.task_id.int


def start_of(started_at: datetime | None) -> int:
    """A start as a whole number that can be compared, in microseconds."""
    return NOT_STARTED if started_at is None else (started_at - LONG_AGO) // _MICROSECOND
