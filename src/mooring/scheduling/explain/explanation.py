"""The explanation of one decision, for people and programs. Computed on demand, never in a pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import numpy as np

from mooring.model.decisions import SCORE_ONE, Decision, Outcome, Placement
from mooring.model.reasons import Cure, Reason
from mooring.model.resources.devices import DeviceShare
from mooring.model.workloads.constraints import HostPort
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.seconds import time_of
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.host_ports import with_host_ports
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.explain.filter_report import (
    FilterReport,
    look,
    summary,
    with_own_rules,
)
from mooring.scheduling.gangs import common_domain, shape_on_node
from mooring.scheduling.node_selection import first_choices, own_tasks
from mooring.scheduling.plugins.evaluation import INFEASIBLE, Evaluation
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.plugins.protocols import (
    PluginFailed,
    Rejection,
    ask_filter,
    ask_scorer,
    ask_why,
)


@dataclass(frozen=True, slots=True)
class Removed:
    """The nodes that one filter rejected, with the amounts that they lack."""

    by: str
    nodes: int
    code: str
    words: str
    """The rejection as text; begins with the number of nodes."""
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
    """A feasible node with its score from each scorer; all scores range from 0 to SCORE_ONE."""

    node: str
    score: int
    """The weighted mean of `scores`."""
    scores: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        scores = {name: score / SCORE_ONE for name, score in self.scores.items()}
        return {"node": self.node, "score": self.score / SCORE_ONE, "scores": scores}


@dataclass(frozen=True, slots=True)
class Miss:
    """A rejected node, with every filter that rejects it."""

    node: str
    rejections: tuple[Removed, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"node": self.node, "rejections": [rejection.as_dict() for rejection in self.rejections]}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one decision: the nodes, the filters that removed them, and the scores of the best others.

    It contains amounts, counts and names of nodes, and no data of other tenants.
    """

    pool: str
    outcome: Outcome
    summary: str
    """One line: `0 of 5,000 nodes: 3,100 lack 2 gpu (best has 1), 1,900 not ready`."""
    reason: Reason | None = None
    """The reason why all or some of its tasks are pending."""
    nodes: int = 0
    candidates: int = 0
    """The number of nodes that are feasible for the first task."""
    removed: tuple[Removed, ...] = ()
    """The rejected nodes by the first filter that rejects them, ranked as in `FilterReport.ranked`."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """The weights of the scorers that apply to this workload."""
    winner: Scored | None = None
    runner_up: Scored | None = None
    nearest_misses: tuple[Miss, ...] = ()
    """Ordered by the number of filters that reject the node, then by the missing amounts."""
    placements: tuple[Placement, ...] = ()
    """The placements of the decision."""
    placed_on: tuple[Scored, ...] = ()
    """Its current nodes, scored as if it were placed now; nodes that would reject it now are omitted."""

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
    """Return the explanation of a decision on the current state of the cluster, which excludes its placements."""
    workload = decision.workload
    known = Explanation(workload.pool, decision.outcome, "", decision.reason, placements=decision.placements)
    try:
        evaluation = Evaluation(shape_on_node(workload, cluster, len(workload.tasks)), cluster, profile)
        evaluation.refresh()
        own = own_tasks(workload, cluster)
        report = with_own_rules(look(evaluation), evaluation, workload, own)
        there = [row for placement in decision.placements if (row := cluster.row_of(placement.node_id)) is not None]
        choices = _scored(evaluation, first_choices(evaluation, workload, own, 2, _packed_into(cluster, decision)))
        misses = _nearest_misses(evaluation, report, nearest)
    except PluginFailed as failure:
        return replace(known, outcome=Outcome.ERROR, summary=failure.reason.message, reason=failure.reason)
    return replace(
        _with_displacing_booking(_of_report(known, evaluation, report), evaluation, workload, there),
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
    """Return a comparison of a placed workload's nodes with the others, as if its tasks were not placed yet.

    `devices`: by node, the device shares of its tasks there.
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
            counted = cluster.placed_tasks.has(row, constraints)
            rows: Rows = np.array([row], dtype=np.intp)
            shares = () if number else devices.get(node_id, ())
            cluster.forget(rows, demand, constraints if counted else None, (shares,))
            taken_away.append((rows, counted, shares))
    try:
        there = sum(workload.occupied.values())
        evaluation = Evaluation(shape_on_node(workload, cluster, there), cluster, profile)
        evaluation.refresh()
        report = look(evaluation)
        own = sorted({int(rows[0]) for rows, _, _ in taken_away}, key=lambda row: -int(evaluation.keys[row]))
        placed_on = _scored(evaluation, (row for row in own if evaluation.keys[row] != INFEASIBLE))
        others = report.feasible[~np.isin(report.feasible, own)]
        best = others[np.argsort(-evaluation.keys[others])][:1]
        return replace(
            _with_displacing_booking(_of_report(known, evaluation, report), evaluation, workload, own),
            winner=placed_on[0] if placed_on else None,
            runner_up=next(iter(_scored(evaluation, best.tolist())), None),
            nearest_misses=_nearest_misses(evaluation, report, nearest),
            placed_on=placed_on,
        )
    except PluginFailed as failure:
        return replace(known, summary=failure.reason.message, reason=failure.reason)
    finally:
        for rows, counted, shares in reversed(taken_away):
            cluster.assume(rows, demand, constraints if counted else None, (shares,))


def forget(cluster: Cluster, decision: Decision, *, leaving: bool = False) -> None:
    """Remove the placements of a decision from the cluster's columns, timeline and timeslots.

    `leaving`: its tasks were marked as leaving.
    """
    shape = shape_of(decision.workload, cluster)
    demand = cluster.demand(shape.request, shape.uncounted)
    booking, request = decision.workload.booking, decision.workload.request
    on = [(row, each) for each in decision.placements if (row := cluster.row_of(each.node_id)) is not None]
    plain = not any(each.ports or each.devices for _, each in on)
    if plain and len({row for row, _ in on}) == len(on):
        cluster.forget(np.array([row for row, _ in on], dtype=np.intp), demand, shape.constraints, leaving=leaving)
    else:
        for row, each in on:
            resolved = with_host_ports(shape.constraints, map(HostPort, each.ports))
            cluster.forget(np.array([row], dtype=np.intp), demand, resolved, (each.devices,), leaving=leaving)
    cluster.timeline.remove_all([each.task_id for _, each in on])
    if booking is not None:
        for each in decision.placements:
            cluster.timeslots.take(booking, each.node_id, request, -1)


def _packed_into(cluster: Cluster, decision: Decision) -> Mask | None:
    """Return the topology domain that a packed workload was placed in; None: any."""
    pack, on = decision.workload.pack, [cluster.row_of(placement.node_id) for placement in decision.placements]
    rows = [row for row in on if row is not None]
    return common_domain(cluster, pack, rows) if pack and rows else None


def _of_report(known: Explanation, evaluation: Evaluation, report: FilterReport) -> Explanation:
    return replace(
        known,
        summary=summary(report, known.pool),
        nodes=report.nodes,
        candidates=len(report.feasible),
        removed=tuple(_removed(rejected.by, len(rejected.rows), rejected.why) for rejected in report.ranked),
        weights={scorer.name: weight for scorer, weight in evaluation.active.scorers},
    )


def _with_displacing_booking(
    known: Explanation, evaluation: Evaluation, workload: Workload, rows: Sequence[int]
) -> Explanation:
    """Return the explanation with the first booking for which a workload without a time limit may have to move."""
    timeline = evaluation.cluster.timeline
    if timeline.notice(workload) is None:
        return known
    starts = [start for row in rows if (start := timeline.first_crowded(row, evaluation.demand)) is not None]
    if not starts:
        return known
    begins = time_of(min(starts)).isoformat(timespec="minutes")
    return replace(known, summary=f"{known.summary}; it may have to move for a booking from {begins} on")


def _removed(by: str, nodes: int, why: Rejection) -> Removed:
    return Removed(by, nodes, why.code, why.words, why.cure, why.details)


def _scored(evaluation: Evaluation, rows: Iterable[int]) -> tuple[Scored, ...]:
    """Return the rows with their scores. Scorers run on all candidates, because some of them compare candidates."""
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


def _nearest_misses(evaluation: Evaluation, report: FilterReport, number: int) -> tuple[Miss, ...]:
    if not report.rejected or number <= 0:
        return ()
    shape, cluster, demand = evaluation.shape, evaluation.cluster, evaluation.demand
    missed = np.concatenate([rejected.rows for rejected in report.rejected])
    refusals = [(plugin, ~ask_filter(plugin, shape, cluster, missed)) for plugin in evaluation.active.filters]
    filters = np.sum([refused for _, refused in refusals], axis=0, dtype=np.int64)
    wanted = np.maximum(demand.amounts, 1)
    short = (np.maximum(demand.amounts - cluster.free(demand, missed), 0) / wanted).sum(axis=0)
    order = np.lexsort((-cluster.precedence[missed], short, filters))[:number]
    own_limit = {each.by: each for each in report.rejected if each.by in ("max_per_node", "single_node")}
    misses: list[Miss] = []
    for position in order.tolist():
        one: Rows = missed[position : position + 1]
        rejections = [
            _removed(plugin.name, 1, ask_why(plugin, shape, cluster, one))
            for plugin, refused in refusals
            if refused[position]
        ]
        rejections += [_removed(by, 1, limit.why) for by, limit in own_limit.items() if one[0] in limit.rows]
        misses.append(Miss(cluster.node(int(one[0])).name, tuple(rejections)))
    return tuple(misses)
