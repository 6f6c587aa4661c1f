"""Only nodes in a topology domain with tasks that match the required task affinity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mooring.model.reasons import Cure
from mooring.model.workloads.groups import group_of, is_of_group
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.placed_tasks import matcher_of_all
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.topology_domains import (
    domain_of,
    domain_totals,
    has_label,
    of_domain,
)
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import CounterSource, KernelTerm, KernelTermKind, MatchingTasks
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.queue.requeue_hints import NodeChange, Watch


class TaskAffinityFilter:
    """A domain satisfies a term if a task in it matches all terms. The first task of a group that must run together may
    go anywhere: if no task matches yet and the task matches its own terms, nodes only need the topology labels.
    """

    name = "task_affinity"
    depends_on: DependsOn = "domain"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(shape.constraints.affinity)

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        constraints = shape.constraints
        labelled = np.ones(len(rows), dtype=np.bool_)
        if not constraints.affinity:
            return labelled
        matcher = matcher_of_all(constraints.affinity, constraints.project)
        counts = cluster.placed_tasks.counts(matcher)
        co_located = labelled.copy()
        somewhere = False
        for term in constraints.affinity:
            totals = domain_totals(cluster, term.topology_key, counts)
            somewhere = somewhere or bool(totals.any())
            labelled &= has_label(cluster, term.topology_key, rows)
            co_located &= of_domain(cluster, term.topology_key, totals, rows) > 0
        if not somewhere and self._matches_itself(shape, cluster):
            return labelled
        return co_located

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        group = group_of(shape.constraints)
        if group is not None and all(is_of_group(term) for term in shape.constraints.affinity):
            return strict_group(f"{len(rows):,} without the members of its group {group!r}", group, "change")
        keys = sorted({term.topology_key for term in shape.constraints.affinity})
        return Rejection(
            "task-affinity",
            f"{len(rows):,} not matching the task affinity (by {', '.join(keys)})",
            details={"topology_keys": keys},
        )

    def kernel_terms(self, shape: Shape, cluster: Cluster, sources: Iterable[CounterSource]) -> Iterator[KernelTerm]:
        constraints = shape.constraints
        if not constraints.affinity:
            return
        source = MatchingTasks(matcher_of_all(constraints.affinity, constraints.project))
        counts_itself = int(self._matches_itself(shape, cluster))
        for term in constraints.affinity:
            yield KernelTerm(KernelTermKind.AFFINITY, source, term.topology_key, counts_itself=counts_itself)

    def watched(self, shape: Shape, cluster: Cluster) -> tuple[Watch, ...]:
        """Return what to watch. A leaving task cures a rejection only if the task may be the first of its group."""
        constraints = shape.constraints
        if not constraints.affinity:
            return ()
        matcher = matcher_of_all(constraints.affinity, constraints.project)
        return (Watch(matcher, leaving=self._matches_itself(shape, cluster)),)

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        """Return whether the node joined a domain, or left one while the task may be the first of its group."""
        for term in shape.constraints.affinity:
            before, after = domain_of(change.before, term.topology_key), domain_of(change.after, term.topology_key)
            if before != after and (after is not None or self._matches_itself(shape, cluster)):
                return True
        return False

    def _matches_itself(self, shape: Shape, cluster: Cluster) -> bool:
        constraints = shape.constraints
        matcher = matcher_of_all(constraints.affinity, constraints.project)
        labels = cluster.placed_tasks.project_labels(constraints.project)
        return matcher.matches(constraints.project, labels, dict(constraints.labels))


def strict_group(words: str, group: str, cure: Cure) -> Rejection:
    """Return the rejection by a strict group. The details say that nothing is preempted for it."""
    return Rejection("strict-group", words, cure, details={"group": group, "preemption": False})
