"""Why a decision came out as it did: one record for people and programs. Made on demand, never in a pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import numpy as np

from mooring.model.constraints import HostPort
from mooring.model.decisions import SCORE_ONE, Decision, Outcome, Placement
from mooring.model.devices import DeviceShare
from mooring.model.reasons import Cure, Reason
from mooring.model.workloads import Workload
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster, with_host_ports
from mooring.scheduling.evaluation import INFEASIBLE, Evaluation
from mooring.scheduling.gangs import common_domain, shape_on_node
from mooring.scheduling.plugins import PluginFailed, Rejection, ask_filter, ask_scorer, ask_why
from mooring.scheduling.profiles import Profile
from mooring.scheduling.selection import first_choices, own_tasks
from mooring.scheduling.shapes import shape_of
from mooring.scheduling.survey import Survey, look, summary, with_own_rules


@dataclass(frozen=True, slots=True)
class Removed:
    """The nodes that one filter turned down, with the amounts that they lack."""

    by: str
    nodes: int
    code: str
    words: str
    """For people; begins with the number of nodes."""
    cure: Cure
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "nodes": self.nodes,
            "code": self.code,
            "words": self.words,
            "cure": self.cure,
            "details": dict(self.details),
        }


@dataclass(frozen=True, slots=True)
class Scored:
    """A node that may take the task, with what each scorer says; all scores run from 0 to SCORE_ONE."""

    node: str
    score: int
    """The weighted mean."""
    scores: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        scores = {name: score / SCORE_ONE for name, score in self.scores.items()}
        return {"node": self.node, "score": self.score / SCORE_ONE, "scores": scores}


@dataclass(frozen=True, slots=True)
class Miss:
    """A node that was turned down, with every filter that did so."""

    node: str
    rejections: tuple[Removed, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"node": self.node, "rejections": [rejection.as_dict() for rejection in self.rejections]}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One decision: the nodes, what removed them, and how the best of the others compare.

    It holds amounts, counts and names of nodes, and nothing of other tenants.
    """

    pool: str
    outcome: Outcome
    summary: str
    """In one line: `0 of 5,000 nodes: 3,100 lack 2 gpu (best has 1), 1,900 not ready`."""
    reason: Reason | None = None
    """Why all or some of its tasks wait."""
    nodes: int = 0
    candidates: int = 0
    """Nodes that may take the first task."""
    removed: tuple[Removed, ...] = ()
    """By the first filter that turned them down; most nodes first."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """Of the scorers that have something to say about this workload."""
    winner: Scored | None = None
    runner_up: Scored | None = None
    nearest_misses: tuple[Miss, ...] = ()
    """By the fewest filters first, then by what they lack."""
    placements: tuple[Placement, ...] = ()
    """Where the tasks would go."""
    placed_on: tuple[Scored, ...] = ()
    """The nodes that it is on, scored as if it were placed there now; none for nodes that would not take it again."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "pool": self.pool,
            "outcome": self.outcome.value,
            "summary": self.summary,
            "reason": None if self.reason is None else self.reason.as_dict(),
            "nodes": self.nodes,
            "candidates": self.candidates,
            "removed": [removed.as_dict() for removed in self.removed],
            "weights": dict(self.weights),
            "winner": None if self.winner is None else self.winner.as_dict(),
            "runner_up": None if self.runner_up is None else self.runner_up.as_dict(),
            "nearest_misses": [miss.as_dict() for miss in self.nearest_misses],
            "placements": [
                {
                    "node": p.node_name,
                    "score": p.score / SCORE_ONE,
                    "ports": list(p.ports),
                    "devices": [share._asdict() for share in p.devices],
                }
                for p in self.placements
            ],
            "placed_on": [scored.as_dict() for scored in self.placed_on],
        }


def explain(cluster: Cluster, profile: Profile, decision: Decision, *, nearest: int) -> Explanation:
    """The record of a decision about the columns as they are now, without its placements."""
    workload = decision.workload
    known = Explanation(workload.pool, decision.outcome, "", decision.reason, placements=decision.placements)
    try:
        evaluation = Evaluation(shape_on_node(workload, cluster, len(workload.tasks)), cluster, profile)
        evaluation.refresh()
        own = own_tasks(workload, cluster)
        survey = with_own_rules(look(evaluation), evaluation, workload, own)
        choices = _scored(evaluation, first_choices(evaluation, workload, own, 2, _packed_into(cluster, decision)))
        misses = _nearest_misses(evaluation, survey, nearest)
    except PluginFailed as failure:
        return replace(known, outcome=Outcome.ERROR, summary=failure.reason.message, reason=failure.reason)
    return replace(
        _of_survey(known, evaluation, survey),
        winner=choices[0] if choices else None,
        runner_up=choices[1] if len(choices) > 1 else None,
        nearest_misses=misses,
    )


def explain_placed(
    cluster: Cluster,
    profile: Profile,
    workload: Workload,
    *,
    nearest: int,
    devices: Mapping[UUID, Sequence[DeviceShare]],
) -> Explanation:
    """How the nodes of a placed workload compare with the others, were its tasks not there yet.

    `devices`: per node what its tasks there have of the devices.
    """
    known = Explanation(workload.pool, Outcome.PLACED, "")
    shape = shape_of(workload, cluster)
    demand = cluster.demand(shape.request, shape.uncounted)
    constraints = workload.constraints
    taken_away: list[tuple[Rows, bool, Sequence[DeviceShare]]] = []
    for node_id, count in workload.occupied.items():
        row = cluster.row_of(node_id)
        if row is None:
            continue
        for number in range(count):
            told = cluster.placed.has(row, constraints)
            rows: Rows = np.array([row], dtype=np.intp)
            shares = () if number else devices.get(node_id, ())
            cluster.forget(rows, demand, constraints if told else None, (shares,))
            taken_away.append((rows, told, shares))
    try:
        there = sum(workload.occupied.values())
        evaluation = Evaluation(shape_on_node(workload, cluster, there), cluster, profile)
        evaluation.refresh()
        survey = look(evaluation)
        own = sorted({int(rows[0]) for rows, _, _ in taken_away}, key=lambda row: -int(evaluation.keys[row]))
        placed_on = _scored(evaluation, (row for row in own if evaluation.keys[row] != INFEASIBLE))
        others = survey.feasible[~np.isin(survey.feasible, own)]
        best = others[np.argsort(-evaluation.keys[others])][:1]
        return replace(
            _of_survey(known, evaluation, survey),
            winner=placed_on[0] if placed_on else None,
            runner_up=next(iter(_scored(evaluation, best.tolist())), None),
            nearest_misses=_nearest_misses(evaluation, survey, nearest),
            placed_on=placed_on,
        )
    except PluginFailed as failure:
        return replace(known, summary=failure.reason.message, reason=failure.reason)
    finally:
        for rows, told, shares in reversed(taken_away):
            cluster.assume(rows, demand, constraints if told else None, (shares,))


def forget(cluster: Cluster, decision: Decision) -> None:
    """Undo what a decision counts in the columns."""
    shape = shape_of(decision.workload, cluster)
    demand = cluster.demand(shape.request, shape.uncounted)
    constraints = shape.constraints
    for placement in decision.placements:
        row = cluster.row_of(placement.node_id)
        if row is not None:
            resolved = with_host_ports(constraints, map(HostPort, placement.ports))
            cluster.forget(np.array([row], dtype=np.intp), demand, resolved, (placement.devices,))
            cluster.timeline.remove(placement.task_id)
        if decision.workload.booking is not None:
            cluster.timeslots.take(decision.workload.booking, placement.node_id, decision.workload.request, -1)


def _packed_into(cluster: Cluster, decision: Decision) -> Mask | None:
    """The domain that a packed workload went into; None: no matter which."""
    pack, on = decision.workload.pack, [cluster.row_of(placement.node_id) for placement in decision.placements]
    rows = [row for row in on if row is not None]
    return common_domain(cluster, pack, rows) if pack and rows else None


def _of_survey(known: Explanation, evaluation: Evaluation, survey: Survey) -> Explanation:
    return replace(
        known,
        summary=summary(survey, known.pool),
        nodes=survey.nodes,
        candidates=len(survey.feasible),
        removed=tuple(_removed(rejected.by, len(rejected.rows), rejected.why) for rejected in survey.ranked),
        weights={scorer.name: weight for scorer, weight in evaluation.active.scorers},
    )


def _removed(by: str, nodes: int, why: Rejection) -> Removed:
    return Removed(by, nodes, why.code, why.words, why.cure, why.details)


def _scored(evaluation: Evaluation, rows: Iterable[int]) -> tuple[Scored, ...]:
    """The rows with what each scorer says. Scorers are asked about all candidates, since some compare these."""
    wanted = list(rows)
    if not wanted:
        return ()
    feasible = np.flatnonzero(evaluation.keys != INFEASIBLE)
    at = np.searchsorted(feasible, wanted)
    shape, cluster = evaluation.shape, evaluation.cluster
    by_scorer = {
        scorer.name: ask_scorer(scorer, shape, cluster, feasible)[at].tolist()
        for scorer, _ in evaluation.active.scorers
    }
    return tuple(
        Scored(
            cluster.node(row).name,
            evaluation.score_of(row),
            {name: scores[number] for name, scores in by_scorer.items()},
        )
        for number, row in enumerate(wanted)
    )


def _nearest_misses(evaluation: Evaluation, survey: Survey, number: int) -> tuple[Miss, ...]:
    if not survey.rejected or number <= 0:
        return ()
    shape, cluster, demand = evaluation.shape, evaluation.cluster, evaluation.demand
    missed = np.concatenate([rejected.rows for rejected in survey.rejected])
    refusals = [(plugin, ~ask_filter(plugin, shape, cluster, missed)) for plugin in evaluation.active.filters]
    filters = np.sum([refused for _, refused in refusals], axis=0, dtype=np.int64)
    wanted = np.maximum(demand.amounts, 1)
    short = (np.maximum(demand.amounts - cluster.free(demand, missed), 0) / wanted).sum(axis=0)
    order = np.lexsort((-cluster.precedence[missed], short, filters))[:number]
    own_limit = {each.by: each for each in survey.rejected if each.by in ("max_per_node", "single_node")}
    misses: list[Miss] = []
    for place in order.tolist():
        one: Rows = missed[place : place + 1]
        rejections = [
            _removed(plugin.name, 1, ask_why(plugin, shape, cluster, one))
            for plugin, refused in refusals
            if refused[place]
        ]
        rejections += [_removed(by, 1, limit.why) for by, limit in own_limit.items() if one[0] in limit.rows]
        misses.append(Miss(cluster.node(int(one[0])).name, tuple(rejections)))
    return tuple(misses)
