"""Requeue hints: a rejecting filter decides which changes may cure the rejection, which avoids futile retries.

A filter opts in by implementing `Hinting`. For other filters `depends_on` decides: a static rejection is cured by a
node that the filter accepts now and did not before, any other rejection by every change. A hint may return false
positives but never false negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from mooring.model.nodes.node import Node
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Constraints, TaskTerm
from mooring.scheduling.cluster.placed_tasks import Counts, Matcher
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import Filter, ask_filter


@dataclass(frozen=True, slots=True)
class Described:
    """The properties of a task that filters look at."""

    constraints: Constraints
    request: Amounts


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node was added (`before` is None), removed (`after` is None) or modified."""

    before: Node | None
    after: Node | None


@dataclass(frozen=True, slots=True)
class TaskChange:
    """Another task was placed on a node (`before` is None), left it (`after` is None) or was modified there."""

    before: Described | None
    after: Described | None


@dataclass(frozen=True, slots=True)
class OwnChange:
    """The pending workload itself was modified."""

    before: Described
    after: Described


Change: TypeAlias = NodeChange | TaskChange | OwnChange


@dataclass(frozen=True, slots=True)
class Watch:
    """Placed tasks whose arrival or departure may cure a rejection: tasks that match, or that carry a given term."""

    tasks: Matcher | tuple[TaskTerm, str]
    """A matcher, or an anti-affinity term with the project of the tasks that carry it."""
    coming: bool = True
    leaving: bool = True

    def counts(self, cluster: Cluster) -> Counts:
        """Return the number of watched tasks per row, as an array that stays current."""
        if isinstance(self.tasks, Matcher):
            return cluster.placed_tasks.counts(self.tasks)
        return cluster.placed_tasks.counts_with_term(*self.tasks)

    def means(self, task: Described | None, cluster: Cluster) -> bool:
        if task is None:
            return False
        if isinstance(self.tasks, Matcher):
            return cluster.placed_tasks.matches(self.tasks, task.constraints)
        term, project = self.tasks
        return task.constraints.project == project and term in task.constraints.anti_affinity


class Hinting(Protocol):
    """Optional requeue hints of a filter; each method may be omitted.

    The requeue index asks `watched` and `cured_by_node`. It retries a workload that changes itself, and compares the
    counts of watched tasks. `worth_trying` asks about single changes, for schedulers with a queue of their own.
    """

    def watched(self, shape: Shape, cluster: Cluster) -> tuple[Watch, ...]:
        """Return the other tasks that the result depends on."""
        ...

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        """Return whether the change may cure the rejection; called only for a node that fits when empty, or is gone."""
        ...

    def cured_by_task(self, shape: Shape, cluster: Cluster, change: TaskChange) -> bool: ...

    def cured_by_itself(self, shape: Shape, cluster: Cluster, change: OwnChange) -> bool: ...


def worth_trying(filters: Sequence[Filter], shape: Shape, cluster: Cluster, change: Change) -> bool:
    """Return whether a shape rejected by these filters may fit after the change; `cluster` is the state before it."""
    match change:
        case NodeChange(after=after):
            alone = _alone(after, cluster)
            if alone is not None and not all(_accepts(plugin, shape, alone) for plugin in filters):
                return False
            return any(cured_by_node(plugin, shape, cluster, change) for plugin in filters)
        case TaskChange():
            return any(_cured_by_task(plugin, shape, cluster, change) for plugin in filters)
        case OwnChange():
            return any(_cured_by_itself(plugin, shape, cluster, change) for plugin in filters)


def watches(plugin: Filter, shape: Shape, cluster: Cluster) -> tuple[Watch, ...] | None:
    """Return the tasks that a filter's result depends on; None if the filter does not name them."""
    watched = getattr(plugin, "watched", None)
    try:
        return None if watched is None else tuple(watched(shape, cluster))
    except Exception:
        return None


def cured_by_node(plugin: Filter, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
    said = _said(plugin, "cured_by_node", shape, cluster, change)
    if said is not None:
        return said
    if plugin.depends_on in ("domain", "cluster"):
        return True
    if change.after is None:
        return False
    before = _alone(change.before, cluster)
    return before is None or plugin.depends_on == "row" or not _accepts(plugin, shape, before)


def _cured_by_task(plugin: Filter, shape: Shape, cluster: Cluster, change: TaskChange) -> bool:
    said = _said(plugin, "cured_by_task", shape, cluster, change)
    if said is not None:
        return said
    named = watches(plugin, shape, cluster)
    if named is None:
        return plugin.depends_on != "static"
    for watch in named:
        before, after = watch.means(change.before, cluster), watch.means(change.after, cluster)
        if (watch.coming and after and not before) or (watch.leaving and before and not after):
            return True
    return False


def _cured_by_itself(plugin: Filter, shape: Shape, cluster: Cluster, change: OwnChange) -> bool:
    said = _said(plugin, "cured_by_itself", shape, cluster, change)
    return change.before != change.after if said is None else said


def _said(plugin: Filter, method: str, shape: Shape, cluster: Cluster, change: Change) -> bool | None:
    """Return a filter's hint about a change, None if it has none. A failing hint counts as True, to be safe."""
    hint = getattr(plugin, method, None)
    try:
        return None if hint is None else bool(hint(shape, cluster, change))
    except Exception:
        return True


def _alone(node: Node | None, cluster: Cluster) -> Cluster | None:
    """Return a cluster that consists of this node alone, empty."""
    if node is None:
        return None
    empty = replace(node, held={}, reserved={}, used={}, tasks=0)
    return Cluster([empty], overcommit=cluster.overcommit)


def _accepts(plugin: Filter, shape: Shape, alone: Cluster) -> bool:
    """Return whether a filter accepts a single empty node; filters that depend on other nodes accept every node."""
    if plugin.depends_on in ("domain", "cluster"):
        return True
    return bool(ask_filter(plugin, shape, alone, alone.rows)[0])
