"""The counters that a placed task changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mooring.model.workloads.constraints import HostPort, TaskTerm
from mooring.scheduling.cluster.placed_tasks import excludes
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import CounterSource, MatchingTasks, PortsInUse, TasksWithTerm


@dataclass(frozen=True, slots=True)
class CountedLabels:
    """The properties of a placed task that counters depend on."""

    project: str
    labels: tuple[tuple[str, str], ...]
    anti_affinity: tuple[TaskTerm, ...]
    host_ports: tuple[HostPort, ...]

    @classmethod
    def of(cls, shape: Shape) -> CountedLabels:
        constraints = shape.constraints
        return cls(constraints.project, constraints.labels, constraints.anti_affinity, constraints.host_ports)


def increment(task: CountedLabels, source: CounterSource, cluster: Cluster) -> int:
    """Return the number that a placed task adds to a counter."""
    match source:
        case MatchingTasks(matcher):
            labels = cluster.placed_tasks.project_labels(task.project)
            return int(matcher.matches(task.project, labels, dict(task.labels)))
        case TasksWithTerm(_, term, project):
            return task.anti_affinity.count(term) if project == task.project and isinstance(term, TaskTerm) else 0
        case PortsInUse(port):
            return sum(excludes(used, port) for used in task.host_ports)


def sources_of(task: CountedLabels) -> Iterator[CounterSource]:
    """Yield the counters of the task's own terms, which apply to other tasks."""
    for term in task.anti_affinity:
        yield TasksWithTerm("anti_affinity", term, task.project)


def sources_of_placed_tasks(cluster: Cluster) -> Iterator[CounterSource]:
    """Yield the counters of the terms of all placed tasks, which apply to other tasks."""
    for term, project, _ in cluster.placed_tasks.terms("anti_affinity"):
        yield TasksWithTerm("anti_affinity", term, project)
