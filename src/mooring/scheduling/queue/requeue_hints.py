"""Which change may cure a rejection, as the filter that rejected sees it: what waits is not tried again for nothing.

A filter may say so (`Hinting`). For one that does not, its `depends_on` decides: a static answer is cured by a node
that is now accepted and was not before, any other by every change. Hints may say yes too often, never no in error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from mooring.model.constraints import Constraints, TaskTerm
from mooring.model.nodes import Node
from mooring.model.slots import Amounts
from mooring.scheduling.columns import Cluster
from mooring.scheduling.placed import Counts, Matcher
from mooring.scheduling.plugins import Filter, ask_filter
from mooring.scheduling.shapes import Shape


@dataclass(frozen=True, slots=True)
class Described:
    """A task as filters ask about it."""

    constraints: Constraints
    request: Amounts


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node came (`before` is None), went (`after` is None), or is other than it was."""

    before: Node | None
    after: Node | None


@dataclass(frozen=True, slots=True)
class TaskChange:
    """Another task came to a node (`before` is None), left it (`after` is None), or is other than it was there."""

    before: Described | None
    after: Described | None


@dataclass(frozen=True, slots=True)
class OwnChange:
    """What waits is itself other than it was."""

    before: Described
    after: Described


Change: TypeAlias = NodeChange | TaskChange | OwnChange


@dataclass(frozen=True, slots=True)
class Watch:
    """Placed tasks whose coming or leaving may cure a rejection: those that are meant, or those that carry a term."""

    tasks: Matcher | tuple[TaskTerm, str]
    """A matcher, or an anti-affinity term with the project of its carriers."""
    coming: bool = True
    leaving: bool = True

    def counts(self, cluster: Cluster) -> Counts:
        """How many of them are on each row; the array stays current."""
        if isinstance(self.tasks, Matcher):
            return cluster.placed.counts(self.tasks)
        return cluster.placed.carriers(*self.tasks)

    def means(self, task: Described | None, cluster: Cluster) -> bool:
        if task is None:
            return False
        if isinstance(self.tasks, Matcher):
            return cluster.placed.means(self.tasks, task.constraints)
        term, project = self.tasks
        return task.constraints.project == project and term in task.constraints.anti_affinity


class Hinting(Protocol):
    """What a filter may say about changes, beside `watched`; each of the methods may be left out."""

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        """Asked only about a node that could take the task were nothing else on it, or one that is gone."""
        ...

    def cured_by_task(self, shape: Shape, cluster: Cluster, change: TaskChange) -> bool: ...

    def cured_by_itself(self, shape: Shape, cluster: Cluster, change: OwnChange) -> bool: ...


class Watching(Protocol):
    """A filter about other tasks that names them: it is asked again when one of them came or left."""

    def watched(self, shape: Shape, cluster: Cluster) -> tuple[Watch, ...]: ...


def worth_trying(filters: Sequence[Filter], shape: Shape, cluster: Cluster, change: Change) -> bool:
    """Whether a shape that these filters rejected may be placed after the change. `cluster` is as it was before."""
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
    """The tasks that a filter's answer depends on; None if it does not name them."""
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
    """What a filter says about a change, if it says anything. If it fails there is doubt, and that is a yes."""
    hint = getattr(plugin, method, None)
    try:
        return None if hint is None else bool(hint(shape, cluster, change))
    except Exception:
        return True


def _alone(node: Node | None, cluster: Cluster) -> Cluster | None:
    """A cluster of this node, with nothing on it."""
    if node is None:
        return None
    empty = replace(node, held={}, reserved={}, used={}, tasks=0)
    return Cluster([empty], overcommit=cluster.overcommit)


def _accepts(plugin: Filter, shape: Shape, alone: Cluster) -> bool:
    """What a filter says about a node by itself; one that looks at others has nothing to say."""
    if plugin.depends_on in ("domain", "cluster"):
        return True
    return bool(ask_filter(plugin, shape, alone, alone.rows)[0])
