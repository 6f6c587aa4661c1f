"""Only nodes in a domain where tasks run that the task must be with."""

from __future__ import annotations

import numpy as np

from mooring.model.groups import group_of, is_of_group
from mooring.model.reasons import Cure
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.domains import domain_of, domain_totals, has_label, of_domain
from mooring.scheduling.hints import NodeChange, Watch
from mooring.scheduling.placed import matcher_of_all
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


class TaskAffinityFilter:
    """A domain serves a term if it holds a task that matches all the terms. The first of a group that must be together
    may go anywhere: if no such task runs yet and it matches its own terms, having the labels is enough.
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
        counts = cluster.placed.counts(matcher)
        together = labelled.copy()
        somewhere = False
        for term in constraints.affinity:
            totals = domain_totals(cluster, term.topology_key, counts)
            somewhere = somewhere or bool(totals.any())
            labelled &= has_label(cluster, term.topology_key, rows)
            together &= of_domain(cluster, term.topology_key, totals, rows) > 0
        if not somewhere and self._matches_itself(shape, cluster):
            return labelled
        return together

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        group = group_of(shape.constraints)
        if group is not None and all(is_of_group(term) for term in shape.constraints.affinity):
            return strict_group(f"{len(rows):,} without the members of its group {group!r}", group, "change")
        keys = sorted({term.topology_key for term in shape.constraints.affinity})
        return Rejection(
            "task-affinity",
            f"{len(rows):,} away from the tasks that it must be with (by {', '.join(keys)})",
            details={"topology_keys": keys},
        )

    def watched(self, shape: Shape, cluster: Cluster) -> tuple[Watch, ...]:
        """One that leaves cures only who may be the first of its group."""
        constraints = shape.constraints
        if not constraints.affinity:
            return ()
        matcher = matcher_of_all(constraints.affinity, constraints.project)
        return (Watch(matcher, leaving=self._matches_itself(shape, cluster)),)

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        """A node that joins a domain; for who may be the first of its group also one that leaves its domain."""
        for term in shape.constraints.affinity:
            before, after = domain_of(change.before, term.topology_key), domain_of(change.after, term.topology_key)
            if before != after and (after is not None or self._matches_itself(shape, cluster)):
                return True
        return False

    def _matches_itself(self, shape: Shape, cluster: Cluster) -> bool:
        constraints = shape.constraints
        matcher = matcher_of_all(constraints.affinity, constraints.project)
        labels = cluster.placed.project_labels(constraints.project)
        return matcher.matches(constraints.project, labels, dict(constraints.labels))


def strict_group(words: str, group: str, cure: Cure) -> Rejection:
    """A group's demand is in the way. Nobody is preempted for one, which the details say."""
    return Rejection("strict-group", words, cure, details={"group": group, "preemption": False})
