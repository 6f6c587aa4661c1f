"""What a plugin is: the protocols, how plugins are asked, and what becomes of one that fails.

Plugins are vectorised. They get rows of the columnar cluster and return one array over these rows; they must not keep
or change what they are given. What each declares in `depends_on` tells the cache when its answer goes stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable
from uuid import UUID

import numpy as np

from mooring.model.decisions import SCORE_ONE, Decision
from mooring.model.devices import DeviceShare
from mooring.model.fair_share import Factors
from mooring.model.names import shown
from mooring.model.reasons import Cure, Reason
from mooring.model.slots import Amounts
from mooring.model.workloads import Workload
from mooring.scheduling.arrays import Amount, Mask, Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.shapes import Shape

DependsOn = Literal["static", "row", "domain", "cluster"]
"""`static`: the shape and what a node is (its generation). `row`: also the node's own counters and load.
`domain`, `cluster`: also other nodes, so that every change makes the answer stale."""

DEPENDENCIES: tuple[str, ...] = get_args(DependsOn)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a filter turned nodes down. `words` reads after "0 of 5 nodes: " and begins with the number of nodes."""

    code: str
    words: str
    cure: Cure = "change"
    details: Mapping[str, Any] = field(default_factory=dict)


class Filter(Protocol):
    """May this node take the task?"""

    @property
    def name(self) -> str: ...

    @property
    def depends_on(self) -> DependsOn: ...

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask: ...

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        """Why it rejected these rows, of which there is at least one."""
        ...


class Scorer(Protocol):
    """How good is this node, 0 to SCORE_ONE? Only asked about nodes that may take the task."""

    @property
    def name(self) -> str: ...

    @property
    def depends_on(self) -> DependsOn: ...

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores: ...


@runtime_checkable
class ChoosesDevices(Protocol):
    """A scorer that also says which devices of a node the task gets; otherwise each is the tightest fit."""

    def devices_on(self, shape: Shape, cluster: Cluster, row: int) -> tuple[DeviceShare, ...]: ...


class Selective(Protocol):
    """A filter or scorer that says nothing about most shapes; where it has no concern it is neither asked nor weighed.

    The answer may depend on the shape and on `cluster.vocabulary`, nothing else.
    """

    def concerns(self, shape: Shape, cluster: Cluster) -> bool: ...


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes that one task may go to, best first: by score, then by name. All are of the best tier."""

    workload: Workload
    shape: Shape
    cluster: Cluster
    rows: Rows
    scores: Scores
    own: Amount
    """How many tasks of the workload every row of the cluster has."""


class Selector(Protocol):
    """Which of the nodes that may take the task?"""

    @property
    def name(self) -> str: ...

    def choose(self, candidates: Candidates) -> int:
        """The position of the choice in `candidates.rows`, of which there is at least one."""
        ...


class Binder(Protocol):
    """Makes a decision so: a reason why not refuses it, and its placements are forgotten.

    Why tasks beyond its placements wait is not said yet: that comes when the pass is through.
    """

    def bind(self, decision: Decision) -> Reason | None: ...


END_OF_TIME = datetime.max.replace(tzinfo=UTC)
"""When nothing is too early any more."""
SHARE_ONE = 10**12
"""The fixed-point scale of shares of a pool: this much is all of it."""


NO_FACTORS = Factors()


def _nothing_used(pool: str, user_id: UUID) -> Amounts:
    return {}


def _no_capacity(pool: str) -> Amounts:
    return {}


@dataclass(frozen=True, slots=True)
class Situation:
    """What a sequencer may ask about at the beginning of a pass."""

    now: datetime = END_OF_TIME
    capacity: Callable[[str], Amounts] = _no_capacity
    """Of a pool, over all its nodes."""
    used: Callable[[str, UUID], Amounts] = _nothing_used
    """What a user has of a pool."""
    factors: Factors = NO_FACTORS


class Offer(NamedTuple):
    """Workloads in their turn."""

    workloads: Sequence[Workload]
    revised: bool = False
    """Who comes behind one that finds too little room depends on that: the pass stops there, and offers go on anew."""


class Sequencer(Protocol):
    """Who is next?"""

    @property
    def name(self) -> str: ...

    def offers(self, bands: Sequence[Sequence[Workload]], situation: Situation) -> Iterator[Offer]:
        """Everybody in turn, band by band: the highest priority is the first band."""
        ...


@runtime_checkable
class FollowsPlacements(Protocol):
    """A sequencer that is told of all that was decided, so that shares can move within a pass."""

    def placed(self, decisions: Sequence[Decision]) -> None:
        """What became of the last offer: of its workloads from the first on, of all unless it is to be revised."""
        ...


class PluginFailed(Exception):
    """A plugin raised or gave a wrong array; the workloads that it was asked for fail, the pass goes on."""

    def __init__(self, kind: str, name: str, problem: str) -> None:
        super().__init__(f"{kind} {name!r} {problem}")
        self.reason = Reason(
            code="constraint-evaluation-failed",
            message=f"the {kind} {name!r} {problem}",
            by=name,
            cure="change",
            details={"plugin": name, "kind": kind},
        )


def is_concerned(plugin: Filter | Scorer, shape: Shape, cluster: Cluster) -> bool:
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
    # Seen as unsigned, a negative score is a huge one: one comparison finds both ends.
    if len(scores) and scores.view(np.uint64).max() > SCORE_ONE:
        raise PluginFailed("scorer", plugin.name, f"gave a score outside 0 to {SCORE_ONE}")
    return scores


def ask_why(plugin: Filter, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
    try:
        return plugin.explain(shape, cluster, rows)
    except Exception as error:
        raise _raised("filter", plugin.name, error) from error


def _raised(kind: str, name: str, error: Exception) -> PluginFailed:
    return PluginFailed(kind, name, f"raised {type(error).__name__}: {shown(str(error))[:200]}")


def _check_array(kind: str, name: str, answer: object, rows: Rows, dtype: np.dtype[Any]) -> None:
    if not isinstance(answer, np.ndarray):
        raise PluginFailed(kind, name, f"gave a {type(answer).__name__} where an array is due")
    if answer.dtype != dtype:
        raise PluginFailed(kind, name, f"gave an array of {answer.dtype} where {dtype} is due")
    if answer.shape != rows.shape:
        raise PluginFailed(kind, name, f"gave an array of shape {answer.shape} for {len(rows)} nodes")
