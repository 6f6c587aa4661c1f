"""The rules of plugins in the form that the compiled engine executes.

A built-in plugin defines its rule twice: in NumPy (`feasible`, `score`), which is the definition, and in the terms of
this module, which the engine lowers to its kernels. A plugin without them is left to NumPy unless its answers are
static. The engine imports these protocols and no plugin.

A declaration holds for the class that makes it and not for its subclasses, which may override the NumPy rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Protocol, TypeAlias, TypeGuard

from mooring.model.workloads.constraints import HostPort, PreferredTasks, TaskTerm
from mooring.scheduling.cluster.arrays import Mask, Rows, Scores
from mooring.scheduling.cluster.placed_tasks import Counts, Matcher, TermKind
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster

KernelFilter = Literal["resources", "devices", "tasks_per_node", "unconcerned"]
"""Filters that the kernels apply themselves. `unconcerned`: the kernels place only shapes that it does not concern."""


class HasKernelFilter(Protocol):
    @property
    def kernel_filter(self) -> KernelFilter | None:
        """The filter of the kernels that is equal to this one; None if there is none for its settings."""
        ...


@dataclass(frozen=True, slots=True)
class MatchingTasks:
    """Counts the placed tasks that a matcher selects."""

    matcher: Matcher

    concerns_others = False

    def counts(self, cluster: Cluster) -> Counts | None:
        return cluster.placed_tasks.counts(self.matcher)


@dataclass(frozen=True, slots=True)
class TasksWithTerm:
    """Counts the placed tasks of a project that have a term, which applies to other tasks."""

    kind: TermKind
    term: TaskTerm | PreferredTasks
    project: str

    concerns_others = True

    def counts(self, cluster: Cluster) -> Counts | None:
        for term, project, counts in cluster.placed_tasks.terms(self.kind):
            if term == self.term and project == self.project:
                return counts
        return None


@dataclass(frozen=True, slots=True)
class PortsInUse:
    """Counts the ports in use that conflict with one."""

    port: HostPort

    concerns_others = False

    def counts(self, cluster: Cluster) -> Counts | None:
        return cluster.placed_tasks.conflicts(self.port)


CounterSource: TypeAlias = MatchingTasks | TasksWithTerm | PortsInUse


class KernelTermKind(IntEnum):
    SPREAD = 0
    AFFINITY = 1
    ANTI_AFFINITY = 2
    FEWER_TASKS = 3
    """Scores `base * limit // (limit + count)`, 0 outside of domains."""
    PREFERRED_TASKS = 4
    """Scores `base` where the count is above 0 (limit 1), or where it is 0 (limit 0)."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelTerm:
    """A rule about the number of tasks in a topology domain."""

    kind: KernelTermKind
    source: CounterSource
    topology_key: str
    mask: Mask | None = None
    """The rows that count; None for all."""
    limit: int = 0
    counts_itself: int = 0
    min_domains: int = 0
    base: int = 0
    weight: int = 0
    """The weight of the scorer, set when it is lowered."""


class HasKernelTerms(Protocol):
    @property
    def name(self) -> str: ...

    def kernel_terms(self, shape: Shape, cluster: Cluster, sources: Iterable[CounterSource]) -> Iterable[KernelTerm]:
        """Return the rules of the plugin for a shape. `sources`: everything that the engine counts so far."""
        ...


@dataclass(frozen=True, slots=True)
class KernelFormula:
    """A score that the kernels compute from a row's free amounts."""

    name: Literal[
        "least_allocated", "most_allocated", "balanced", "unused_capability", "fragmentation", "expected_fill"
    ]
    weights: tuple[int, int] = (1, 1)
    """Of CPU and memory."""


class HasKernelFormula(Protocol):
    @property
    def kernel_formula(self) -> KernelFormula | None:
        """The equal formula of the kernels; None if there is none for the scorer's settings."""
        ...


KernelPoints = Literal["least_allocated", "balanced", "taints", "preferred_nodes", "unconcerned"]
"""Scores in points of 100 as Kubernetes computes them. `unconcerned`: as for filters."""


class HasKernelPoints(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def kernel_points(self) -> KernelPoints | None:
        """The equal points of the kernels; None if there are none for the scorer's settings."""
        ...


class HasRawScores(Protocol):
    """A scorer whose points are relative to the highest raw score among the feasible nodes."""

    def concerns(self, shape: Shape, cluster: Cluster) -> bool: ...

    def raw_scores(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores: ...


def has_kernel_filter(plugin: object) -> TypeGuard[HasKernelFilter]:
    return _declares(plugin, "kernel_filter")


def has_kernel_terms(plugin: object) -> TypeGuard[HasKernelTerms]:
    return _declares(plugin, "kernel_terms")


def has_kernel_formula(plugin: object) -> TypeGuard[HasKernelFormula]:
    return _declares(plugin, "kernel_formula")


def has_kernel_points(plugin: object) -> TypeGuard[HasKernelPoints]:
    return _declares(plugin, "kernel_points")


def has_raw_scores(plugin: object) -> TypeGuard[HasRawScores]:
    return _declares(plugin, "raw_scores")


def _declares(plugin: object, name: str) -> bool:
    return name in vars(type(plugin))
