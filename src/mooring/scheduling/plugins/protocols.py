"""The protocols of plugins, calls to plugins, and the errors of plugins that fail.

Plugins are vectorised. They get rows of the columnar cluster and return one array over these rows; they must not keep
or change their arguments. `depends_on` tells the cache which changes make an answer stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard, get_args, runtime_checkable
from uuid import UUID

import numpy as np

from mooring.model.decisions import SCORE_ONE, Decision
from mooring.model.names import shown
from mooring.model.reasons import Cure, Reason
from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.fair_share import Factors
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import (
    Amount,
    Mask,
    Rows,
    Scores,
)
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster

DependsOn = Literal["static", "row", "domain", "cluster"]
"""`static`: the shape and the node's properties (its generation). `row`: also the node's own counters and load.
`domain`, `cluster`: also other nodes, so that every change makes the answer stale."""

DEPENDENCIES: tuple[str, ...] = get_args(DependsOn)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A filter's reason to reject nodes. `words` reads after "0 of 5 nodes: " and begins with the number of nodes."""

    code: str
    words: str
    cure: Cure = "change"
    details: Mapping[str, Any] = field(default_factory=dict)


class Named(Protocol):
    @property
    def name(self) -> str: ...


class Filter(Protocol):
    """Decides whether a node may take a task."""

    @property
    def name(self) -> str: ...

    @property
    def depends_on(self) -> DependsOn: ...

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask: ...

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        """Explain why it rejected these rows, of which there is at least one."""
        ...


class Scorer(Protocol):
    """Rates a node from 0 to SCORE_ONE. It is called for feasible nodes only."""

    @property
    def name(self) -> str: ...

    @property
    def depends_on(self) -> DependsOn: ...

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores: ...


@runtime_checkable
class ChoosesDevices(Protocol):
    """A scorer that also chooses the devices of a node that the task gets; otherwise they are the tightest fit."""

    def devices_on(self, shape: Shape, cluster: Cluster, row: int) -> tuple[DeviceShare, ...]: ...


@runtime_checkable
class FollowsQueue(Protocol):
    """A scorer that learns from the workloads that arrive, or computes a part of its scores only now and then."""

    def portions(self, workloads: Sequence[Workload], cluster: Cluster) -> Iterator[Sequence[Workload]]:
        """Yield the workloads of a batch in portions, between which what was learned may change."""
        ...

    def begin_workload(self, pool: str, cluster: Cluster) -> None:
        """Called before each workload that the kernels do not place."""
        ...


class Selective(Protocol):
    """A filter or scorer that does not concern all shapes. For others it is not called and has no weight.

    The answer may depend only on the shape and on `cluster.vocabulary`.
    """

    def concerns(self, shape: Shape, cluster: Cluster) -> bool: ...


@dataclass(frozen=True, slots=True)
class Candidates:
    """The feasible nodes of the best tier for one task, best first: by score, then by name."""

    workload: Workload
    shape: Shape
    cluster: Cluster
    rows: Rows
    scores: Scores
    own: Amount
    """By row of the cluster, the number of the workload's own tasks."""


class Selector(Protocol):
    """Chooses one of the feasible nodes."""

    @property
    def name(self) -> str: ...

    def choose(self, candidates: Candidates) -> int:
        """Return the position of the choice in `candidates.rows`, of which there is at least one."""
        ...


class Binder(Protocol):
    """Makes a decision durable. If it returns a reason, the decision is refused and its placements are undone.

    The decision does not yet say why tasks without a placement wait; that is known at the end of the pass.
    """

    def bind(self, decision: Decision) -> Reason | None: ...


END_OF_TIME = datetime.max.replace(tzinfo=UTC)
"""A time at which every start time has passed."""
SHARE_ONE = 10**12
"""The fixed-point scale of a tenant's share of a pool: this is all of the pool."""


NO_FACTORS = Factors()


def _nothing_used(pool: str, user_id: UUID) -> Amounts:
    return {}


def _no_capacity(pool: str) -> Amounts:
    return {}


@dataclass(frozen=True, slots=True)
class OrderingContext:
    """The state of the pools at the beginning of a pass, for sequencers."""

    now: datetime = END_OF_TIME
    capacity: Callable[[str], Amounts] = _no_capacity
    """Return the capacity of all nodes of a pool."""
    used: Callable[[str, UUID], Amounts] = _nothing_used
    """Return the amounts that a user holds in a pool."""
    factors: Factors = NO_FACTORS


Situation = OrderingContext
"""The former name of `OrderingContext`, kept as an alias."""


class Offer(NamedTuple):
    """Workloads in the order in which they are placed."""

    workloads: Sequence[Workload]
    revised: bool = False
    """True if the order depends on the outcome: the pass stops at the first workload that does not fit."""


class Sequencer(Protocol):
    """Orders the pending workloads of a pool."""

    @property
    def name(self) -> str: ...

    def offers(self, bands: Sequence[Sequence[Workload]], context: OrderingContext) -> Iterator[Offer]:
        """Yield all workloads in order, band by band; the first band has the highest priority."""
        ...


@runtime_checkable
class FollowsPlacements(Protocol):
    """A sequencer that is notified of all decisions, so that shares can change within a pass."""

    def placed(self, decisions: Sequence[Decision]) -> None:
        """Take the decisions on the last offer, in its order; all of them unless the offer is `revised`."""
        ...


def follows_placements(sequencer: object) -> TypeGuard[FollowsPlacements]:
    """Return whether a sequencer is notified of decisions; a check of the protocol itself would take much longer."""
    return hasattr(sequencer, "placed")


class PluginFailed(Exception):
    """A plugin raised an exception or returned a wrong array. The workloads in question fail; the pass continues."""

    def __init__(self, kind: str, name: str, problem: str) -> None:
        super().__init__(f"{kind} {name!r} {problem}")
        self.reason = Reason(
            code="constraint-evaluation-failed",
            message=f"the {kind} {name!r} {problem}",
            by=name,
            cure="change",
            details={"plugin": name, "kind": kind},
        )


def is_concerned(plugin: Named, shape: Shape, cluster: Cluster) -> bool:
    concerns = getattr(plugin, "concerns", None)
    if concerns is None:
        return True
    try:
        return bool(concerns(shape, cluster))
    except Exception as error:
        raise _raised("plugin", plugin.name, error) from error


def ask_selector(selector: Selector, candidates: Candidates) -> int:
    try:
        position = int(selector.choose(candidates))
    except Exception as error:
        raise _raised("selector", selector.name, error) from error
    if not 0 <= position < len(candidates.rows):
        raise PluginFailed("selector", selector.name, f"chose number {position} of {len(candidates.rows)} nodes")
    return position


def ask_filter(plugin: Filter, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
    try:
        mask = plugin.feasible(shape, cluster, rows)
    except Exception as error:
        raise _raised("filter", plugin.name, error) from error
    _check_array("filter", plugin.name, mask, rows, np.dtype(np.bool_))
    return mask


def ask_scorer(plugin: Scorer, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
    try:
        scores = plugin.score(shape, cluster, rows)
    except Exception as error:
        raise _raised("scorer", plugin.name, error) from error
    _check_array("scorer", plugin.name, scores, rows, np.dtype(np.int64))
    wrong = not 0 <= scores.item(0) <= SCORE_ONE if len(scores) == 1 else len(scores) and _exceeds(scores)
    if wrong:
        raise PluginFailed("scorer", plugin.name, f"returned a score outside 0 to {SCORE_ONE}")
    return scores


def _exceeds(scores: Scores) -> bool:
    # As an unsigned number a negative score is a huge one, so one comparison checks both ends.
    return bool(scores.view(np.uint64).max() > SCORE_ONE)


def ask_why(plugin: Filter, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
    try:
        return plugin.explain(shape, cluster, rows)
    except Exception as error:
        raise _raised("filter", plugin.name, error) from error


def _raised(kind: str, name: str, error: Exception) -> PluginFailed:
    return PluginFailed(kind, name, f"raised {type(error).__name__}: {shown(str(error))[:200]}")


def _check_array(kind: str, name: str, answer: object, rows: Rows, dtype: np.dtype[Any]) -> None:
    if not isinstance(answer, np.ndarray):
        raise PluginFailed(kind, name, f"returned a {type(answer).__name__} instead of an array")
    if answer.dtype != dtype:
        raise PluginFailed(kind, name, f"returned an array of {answer.dtype} instead of {dtype}")
    if answer.shape != rows.shape:
        raise PluginFailed(kind, name, f"returned an array of shape {answer.shape} for {len(rows)} nodes")
