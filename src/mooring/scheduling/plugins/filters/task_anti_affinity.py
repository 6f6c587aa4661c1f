"""Only nodes in domains without tasks that the task must be apart from, or that must be apart from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mooring.model.constraints import TaskTerm
from mooring.model.groups import group_of, is_of_group
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.domains import domain_of, domain_totals, of_domain
from mooring.scheduling.filters.task_affinity import strict_group
from mooring.scheduling.hints import NodeChange, Watch
from mooring.scheduling.placed import Counts, matcher_of
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


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
        if group is not None and beside_members(shape, cluster, rows).all():
            return strict_group(f"{len(rows):,} with a member of its group {group!r}", group, "release")
        keys = {term.topology_key for term, _ in _terms(shape, cluster)}
        return Rejection(
            "task-anti-affinity",
            f"{len(rows):,} beside tasks that it must be apart from (by {', '.join(sorted(keys))})",
            cure="release",
            details={"topology_keys": sorted(keys)},
        )

    def watched(self, shape: Shape, cluster: Cluster) -> tuple[Watch, ...]:
        constraints = shape.constraints
        apart_from = (matcher_of(term, constraints.project) for term in constraints.anti_affinity)
        return (
            *(Watch(matcher, coming=False) for matcher in apart_from),
            *(Watch((term, project), coming=False) for term, project, _ in _carried_against(shape, cluster)),
        )

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        """A new node, or one that leaves a domain: without the label nothing keeps the task away."""
        keys = {term.topology_key for term in shape.constraints.anti_affinity}
        keys |= {term.topology_key for term, _ in _against(shape, cluster)}
        if change.before is None:
            return bool(keys)
        domains = ((domain_of(change.before, key), domain_of(change.after, key)) for key in keys)
        return any(before is not None and before != after for before, after in domains)


def _terms(shape: Shape, cluster: Cluster) -> Iterator[tuple[TaskTerm, Counts]]:
    """The task's own terms and those of placed tasks against it, with the tasks per row that keep it away."""
    constraints = shape.constraints
    for term in constraints.anti_affinity:
        yield term, cluster.placed.counts(matcher_of(term, constraints.project))
    yield from _against(shape, cluster)


def beside_members(shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
    """The rows where a strict group alone would keep the task away."""
    beside = np.zeros(len(rows), dtype=np.bool_)
    for term, counts in _terms(shape, cluster):
        if is_of_group(term):
            beside |= ~_none_in_domain(cluster, term, counts, rows)
    return beside


def _against(shape: Shape, cluster: Cluster) -> Iterator[tuple[TaskTerm, Counts]]:
    """The terms by which placed tasks keep this one away, with how many carry each on which row."""
    for term, _, carriers in _carried_against(shape, cluster):
        yield term, carriers


def _carried_against(shape: Shape, cluster: Cluster) -> Iterator[tuple[TaskTerm, str, Counts]]:
    constraints = shape.constraints
    labels = dict(constraints.labels)
    project_labels = cluster.placed.project_labels(constraints.project)
    for term, project, carriers in cluster.placed.owners("anti_affinity"):
        if isinstance(term, TaskTerm) and matcher_of(term, project).matches(
            constraints.project, project_labels, labels
        ):
            yield term, project, carriers


def _none_in_domain(cluster: Cluster, term: TaskTerm, counts: Counts, rows: Rows) -> Mask:
    totals = domain_totals(cluster, term.topology_key, counts)
    free: Mask = of_domain(cluster, term.topology_key, totals, rows) == 0
    return free
