"""Only nodes in topology domains without tasks that conflict by required anti-affinity, in either direction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mooring.model.workloads.constraints import TaskTerm
from mooring.model.workloads.groups import group_of, is_of_group
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.placed_tasks import Counts, matcher_of
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.topology_domains import domain_of, domain_totals, of_domain
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.filters.task_affinity import strict_group
from mooring.scheduling.plugins.kernel_rules import (
    CounterSource,
    KernelTerm,
    KernelTermKind,
    MatchingTasks,
    TasksWithTerm,
)
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.queue.requeue_hints import NodeChange, Watch


class TaskAntiAffinityFilter:
    name = "task_anti_affinity"
    depends_on: DependsOn = "domain"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(shape.constraints.anti_affinity) or any(True for _ in _against(shape, cluster))

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        mask = np.ones(len(rows), dtype=np.bool_)
        for term, counts in _terms(shape, cluster):
            mask &= _none_in_domain(cluster, term, counts, rows)
        return mask

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        group = group_of(shape.constraints)
        if group is not None and rejected_by_group_alone(shape, cluster, rows).all():
            return strict_group(f"{len(rows):,} with a member of its group {group!r}", group, "release")
        keys = {term.topology_key for term, _ in _terms(shape, cluster)}
        return Rejection(
            "task-anti-affinity",
            f"{len(rows):,} not matching the task anti-affinity (by {', '.join(sorted(keys))})",
            cure="release",
            details={"topology_keys": sorted(keys)},
        )

    def kernel_terms(self, shape: Shape, cluster: Cluster, sources: Iterable[CounterSource]) -> Iterator[KernelTerm]:
        constraints = shape.constraints
        for term in constraints.anti_affinity:
            source = MatchingTasks(matcher_of(term, constraints.project))
            yield KernelTerm(KernelTermKind.ANTI_AFFINITY, source, term.topology_key)
        labels, project_labels = dict(constraints.labels), cluster.placed_tasks.project_labels(constraints.project)
        for each in sources:
            if (
                isinstance(each, TasksWithTerm)
                and isinstance(each.term, TaskTerm)
                and matcher_of(each.term, each.project).matches(constraints.project, project_labels, labels)
            ):
                yield KernelTerm(KernelTermKind.ANTI_AFFINITY, each, each.term.topology_key)

    def watched(self, shape: Shape, cluster: Cluster) -> tuple[Watch, ...]:
        constraints = shape.constraints
        matchers = (matcher_of(term, constraints.project) for term in constraints.anti_affinity)
        return (
            *(Watch(matcher, coming=False) for matcher in matchers),
            *(Watch((term, project), coming=False) for term, project, _ in _carried_against(shape, cluster)),
        )

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        """Return whether the node is new or left a domain: anti-affinity does not apply to nodes without the label."""
        keys = {term.topology_key for term in shape.constraints.anti_affinity}
        keys |= {term.topology_key for term, _ in _against(shape, cluster)}
        if change.before is None:
            return bool(keys)
        domains = ((domain_of(change.before, key), domain_of(change.after, key)) for key in keys)
        return any(before is not None and before != after for before, after in domains)


def _terms(shape: Shape, cluster: Cluster) -> Iterator[tuple[TaskTerm, Counts]]:
    """Yield the task's own terms and those of placed tasks that match it, with the conflicting tasks per row."""
    constraints = shape.constraints
    for term in constraints.anti_affinity:
        yield term, cluster.placed_tasks.counts(matcher_of(term, constraints.project))
    yield from _against(shape, cluster)


def rejected_by_group_alone(shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
    """Return the rows that a strict group alone would reject."""
    mask = np.zeros(len(rows), dtype=np.bool_)
    for term, counts in _terms(shape, cluster):
        if is_of_group(term):
            mask |= ~_none_in_domain(cluster, term, counts, rows)
    return mask


def _against(shape: Shape, cluster: Cluster) -> Iterator[tuple[TaskTerm, Counts]]:
    """Yield the terms of placed tasks that match this one, with the number of their owners per row."""
    for term, _, carriers in _carried_against(shape, cluster):
        yield term, carriers


def _carried_against(shape: Shape, cluster: Cluster) -> Iterator[tuple[TaskTerm, str, Counts]]:
    constraints = shape.constraints
    labels = dict(constraints.labels)
    project_labels = cluster.placed_tasks.project_labels(constraints.project)
    for term, project, carriers in cluster.placed_tasks.terms("anti_affinity"):
        if isinstance(term, TaskTerm) and matcher_of(term, project).matches(
            constraints.project, project_labels, labels
        ):
            yield term, project, carriers


def _none_in_domain(cluster: Cluster, term: TaskTerm, counts: Counts, rows: Rows) -> Mask:
    totals = domain_totals(cluster, term.topology_key, counts)
    free: Mask = of_domain(cluster, term.topology_key, totals, rows) == 0
    return free
