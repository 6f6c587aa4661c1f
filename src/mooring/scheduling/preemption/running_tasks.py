"""The running tasks per node, as preemption sees them: the most important first, with the preemptor of each victim."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from mooring.model.errors import InvalidInput
from mooring.model.policy.preemption import RunningTask
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.workload import LONG_AGO
from mooring.scheduling.cluster.host_ports import with_host_ports
from mooring.scheduling.cluster.journal import Journal
from mooring.scheduling.cluster_state import Cluster

NOT_STARTED = 1 << 62
"""The start of a placed task that has not started: later than every other start."""
_MICROSECOND = timedelta(microseconds=1)


class RunningTasks:
    """The running tasks by node. Replacing a node's tasks discards the marks made on them since."""

    def __init__(self, running_tasks: Iterable[RunningTask] = ()) -> None:
        self._on: dict[UUID, tuple[RunningTask, ...]] = {}
        self._of_workload: defaultdict[UUID, dict[UUID, RunningTask]] = defaultdict(dict)
        self._leaving_for: defaultdict[UUID, dict[UUID, RunningTask]] = defaultdict(dict)
        self._priorities: Counter[int] = Counter()
        self._whole: Counter[int] = Counter()
        self._changes = Journal()
        self._numbers: dict[UUID, int] = {}
        self._nodes: list[UUID] = []
        by_node: defaultdict[UUID, list[RunningTask]] = defaultdict(list)
        for task in running_tasks:
            by_node[task.node_id].append(task)
        for node_id, here in by_node.items():
            self.update(node_id, here)

    @property
    def revision(self) -> int:
        return self._changes.revision

    def changed_since(self, revision: int) -> list[UUID] | None:
        """Return the nodes that changed after a revision; None if the journal no longer reaches back that far."""
        numbers = self._changes.since(revision)
        return None if numbers is None else [self._nodes[number] for number in numbers.tolist()]

    @property
    def lowest_priority(self) -> int | None:
        """The lowest priority of all preemptible tasks, victims included; None if there are none."""
        return min(self._priorities, default=None)

    def any_whole(self, below: int) -> bool:
        """Return whether a candidate victim below a priority belongs to a gang that is preempted as a whole."""
        return any(priority < below for priority in self._whole)

    @property
    def nodes(self) -> Iterable[UUID]:
        return self._on.keys()

    def update(self, node_id: UUID, running_tasks: Iterable[RunningTask]) -> None:
        """Replace the tasks of a node."""
        now = tuple(sorted(running_tasks, key=importance))
        if any(task.node_id != node_id for task in now):
            raise InvalidInput(f"a task passed for node {node_id} is on another node", code="invalid-resident")
        for task in self._on.pop(node_id, ()):
            self._count(task, -1)
        if now:
            self._on[node_id] = now
        for task in now:
            self._count(task, 1)
        self._note(node_id)

    def remove(self, node_id: UUID) -> None:
        """Remove a node and its tasks; an unknown node is no error."""
        self.update(node_id, ())

    def on(self, node_id: UUID) -> Sequence[RunningTask]:
        """Return the tasks on a node, the most important first."""
        return self._on.get(node_id, ())

    def units_on(self, node_id: UUID) -> list[tuple[RunningTask, ...]]:
        """Return the tasks on a node, grouped by those that are preempted together, the most important first.

        A group is one task, or all tasks of a gang, on whichever nodes they run.
        """
        units: list[tuple[RunningTask, ...]] = []
        gangs: set[UUID] = set()
        for task in self.on(node_id):
            if task.workload_id in gangs:
                continue
            if task.whole:
                gangs.add(task.workload_id)
                units.append(tuple(self.of_workload(task.workload_id)))
            else:
                units.append((task,))
        if gangs:
            units.sort(key=lambda unit: importance(unit[0]))
        return units

    def of_workload(self, workload_id: UUID) -> list[RunningTask]:
        """Return the tasks of a workload on all nodes, the most important first."""
        return sorted(self._of_workload.get(workload_id, {}).values(), key=importance)

    def leaving_for(self, workload_id: UUID) -> list[RunningTask]:
        """Return the victims of a workload that have not ended yet."""
        return sorted(self._leaving_for.get(workload_id, {}).values(), key=importance)

    def mark(self, node_id: UUID, tasks: Mapping[UUID, UUID | None]) -> None:
        """Set the preemptor of tasks on a node; None clears it, and the task keeps running."""
        marked: list[RunningTask] = []
        for task in self._on.get(node_id, ()):
            if task.task_id in tasks:
                self._count(task, -1)
                changed = replace(task, leaving_for=tasks[task.task_id])
                self._count(changed, 1)
                marked.append(changed)
            else:
                marked.append(task)
        self._on[node_id] = tuple(marked)
        self._note(node_id)

    def note_workload(self, workload_id: UUID) -> None:
        """Record a change on every node that runs a task of the workload."""
        for node_id in {each.node_id for each in self._of_workload.get(workload_id, {}).values()}:
            self._note(node_id)

    def _count(self, task: RunningTask, sign: int) -> None:
        _enter(self._of_workload, task.workload_id, task, sign)
        if task.whole:
            self.note_workload(task.workload_id)
        if task.leaving_for is not None:
            _enter(self._leaving_for, task.leaving_for, task, sign)
        if task.preemptible:
            _tally(self._priorities, task.priority, sign)
            if task.whole and task.leaving_for is None:
                _tally(self._whole, task.priority, sign)

    def _note(self, node_id: UUID) -> None:
        number = self._numbers.setdefault(node_id, len(self._nodes))
        if number == len(self._nodes):
            self._nodes.append(node_id)
        self._changes.note((number,))


def register_running_tasks(cluster: Cluster, running_tasks: Iterable[RunningTask]) -> RunningTasks:
    """Return the running tasks and register them in the cluster; nodes without tasks stay unchanged."""
    known = RunningTasks(running_tasks)
    for node_id in known.nodes:
        here = known.on(node_id)
        cluster.set_tasks(
            node_id,
            [(shown_constraints(each), 1) for each in here if each.leaving_for is None],
            leaving=[(shown_constraints(each), 1) for each in here if each.leaving_for is not None],
        )
    return known


def shown_constraints(task: RunningTask) -> Constraints:
    """Return the constraints of a task that other tasks are checked against, with its assigned ports."""
    return with_host_ports(task.constraints, (HostPort(port, protocol) for protocol, port in task.ports))


def _tally(counts: Counter[int], priority: int, sign: int) -> None:
    counts[priority] += sign
    if not counts[priority]:
        del counts[priority]


def _enter(index: dict[UUID, dict[UUID, RunningTask]], key: UUID, task: RunningTask, sign: int) -> None:
    if sign > 0:
        index[key][task.task_id] = task
    else:
        index[key].pop(task.task_id, None)
        if not index[key]:
            del index[key]


def importance(task: RunningTask) -> tuple[int, int, int]:
    """Return a sort key, the most important first: by priority, then by the longest runtime."""
    return -task.priority, start_of(task.started_at), task.task_id.int


def start_of(started_at: datetime | None) -> int:
    """Return a start as a comparable integer in microseconds."""
    return NOT_STARTED if started_at is None else (started_at - LONG_AGO) // _MICROSECOND
