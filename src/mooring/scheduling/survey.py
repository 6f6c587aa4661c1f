"""A survey of a pool for one shape: which nodes may take a task of it, and which filter turned the others down."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.model.workloads import Workload
from mooring.scheduling.columns import Amount, Rows
from mooring.scheduling.evaluation import Evaluation
from mooring.scheduling.plugins import Rejection, ask_filter, ask_why
from mooring.scheduling.shapes import Shape

_SURVEYS_KEPT = 256


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows with the first filter that turned them down."""

    by: str
    rows: Rows
    why: Rejection


@dataclass(frozen=True, slots=True)
class Survey:
    """All nodes of a pool, sorted by what is said about them."""

    nodes: int
    feasible: Rows
    rejected: tuple[Rejected, ...]

    @property
    def ranked(self) -> list[Rejected]:
        """What turned down the most nodes comes first."""
        return sorted(self.rejected, key=lambda rejected: -len(rejected.rows))


class Surveys:
    """What was learned of a shape serves all workloads of that shape until the columns change."""

    def __init__(self) -> None:
        self._known: dict[Shape, tuple[int, Survey]] = {}

    def of(self, evaluation: Evaluation) -> Survey:
        revision = evaluation.cluster.changes.revision
        known = self._known.get(evaluation.shape)
        if known is not None and known[0] == revision:
            return known[1]
        survey = look(evaluation)
        if len(self._known) >= _SURVEYS_KEPT:
            self._known.clear()
        self._known[evaluation.shape] = (revision, survey)
        return survey


def look(evaluation: Evaluation) -> Survey:
    """Ask every filter about the nodes that those before it let pass. The evaluation need not be refreshed."""
    shape, cluster = evaluation.shape, evaluation.cluster
    members = passing = cluster.rows_of_pool(shape.pool)
    rejected: list[Rejected] = []
    for plugin in evaluation.active.filters:
        if not len(passing):
            break
        mask = ask_filter(plugin, shape, cluster, passing)
        refused = passing[~mask]
        if len(refused):
            rejected.append(Rejected(plugin.name, refused, ask_why(plugin, shape, cluster, refused)))
        passing = passing[mask]
    return Survey(len(members), passing, tuple(rejected))


def with_own_limit(survey: Survey, workload: Workload, own: Amount) -> Survey:
    """The survey with the workload's own limit per node as one more filter, the last."""
    limit = workload.max_per_node
    if limit is None:
        return survey
    full = own[survey.feasible] >= limit
    if not full.any():
        return survey
    rows = survey.feasible[full]
    verb = "has" if len(rows) == 1 else "have"
    words = f"{len(rows):,} {verb} {limit} of its tasks, the most allowed on one node"
    rejected = Rejected("max_per_node", rows, Rejection("max-per-node", words, "release"))
    return Survey(survey.nodes, survey.feasible[~full], (*survey.rejected, rejected))


def summary(survey: Survey, pool: str) -> str:
    """The survey in one line: `0 of 5,000 nodes: 3,100 lack 2 gpu (best has 1), 1,900 not ready`."""
    if survey.nodes == 0:
        return f"pool {pool!r} has no nodes"
    nodes = "1 node" if survey.nodes == 1 else f"{survey.nodes:,} nodes"
    words = ", ".join(rejected.why.words for rejected in survey.ranked)
    return f"{len(survey.feasible):,} of {nodes}: {words}" if words else f"{len(survey.feasible):,} of {nodes}"
