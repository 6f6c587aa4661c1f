"""Shortcuts for few nodes, and for new work that certainly finds no node, change no decision."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.nodes.node import Node
from mooring.model.policy.pools import Backfill, BackfillOrder, HeadOfLine, PoolPolicy
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.plugins import evaluation
from mooring.scheduling.plugins.scorers.balanced import BalancedScorer
from mooring.scheduling.plugins.scorers.resources import ResourcesScorer
from mooring.scheduling.plugins.scorers.unused_capability import UnusedCapabilityScorer
from mooring.scheduling.queue import requeue_index
from mooring.scheduling.queue.pending_queue import PendingQueue
from mooring.simulation.engine import simulate
from mooring.simulation.jobs import Job
from tests.selection import examples

JOBS = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(1, 80), st.integers(0, 60), st.integers(1, 8), st.integers(1, 3), st.booleans()
    ),
    min_size=1,
    max_size=25,
)
POLICIES = st.sampled_from(
    [
        (HeadOfLine.BACKFILL, Backfill()),
        (HeadOfLine.BACKFILL, Backfill(depth=3, order=BackfillOrder.SHORTEST)),
        (HeadOfLine.SKIP, Backfill()),
        (HeadOfLine.STRICT, Backfill()),
    ]
)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(given_jobs=JOBS, policy=POLICIES, nodes=st.integers(1, 3))
def test_a_replay_without_the_shortcuts_makes_the_same_decisions(
    given_jobs: list[tuple[int, int, int, int, int, bool]], policy: tuple[HeadOfLine, Backfill], nodes: int
):
    jobs = [
        Job(number, f"job-{number}", at, run, run + extra if limited else None, {"cpu": cores * 1000}, tasks)
        for number, (at, run, extra, cores, tasks, limited) in enumerate(given_jobs)
    ]
    machines = [Node(name=f"n{number}", allocatable={"cpu": 8000}) for number in range(nodes)]
    head_of_line, backfill = policy
    pool = PoolPolicy("balanced", sequencer="fifo", head_of_line=head_of_line, backfill=backfill)
    fast = simulate(machines, jobs, pool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "_VERY_FEW_ROWS", 0)
        patch.setattr(requeue_index, "_FEW_ROWS", 0)
        patch.setattr(PendingQueue, "_group_lacking", _group_none)
        plain = simulate(machines, jobs, pool)
    assert [each.attempts for each in fast.outcomes] == [each.attempts for each in plain.outcomes]
    assert [each.planned_start for each in fast.outcomes] == [each.planned_start for each in plain.outcomes]


@settings(max_examples=examples(60), deadline=None)
@given(cores=st.lists(st.integers(1, 5), min_size=1, max_size=8), memory=st.integers(0, 4))
def test_placements_on_one_node_have_the_same_scores_as_without_the_shortcut(cores: list[int], memory: int):
    def decided() -> Sequence[object]:
        scheduler = Scheduler([Node(name="n", allocatable={"cpu": 9000, "memory": memory << 30})], compiled=False)
        waiting = [Workload(name=f"w{at}", request={"cpu": each * 1000}) for at, each in enumerate(cores)]
        return [decision for each in waiting for decision in scheduler.run([each]).decisions]

    fast = decided()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "_VERY_FEW_ROWS", 0)
        assert decided() == fast


@settings(max_examples=examples(60), deadline=None)
@given(
    taken=st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 5000)), min_size=2, max_size=4),
    cpu=st.integers(1, 9000),
)
def test_scores_of_one_row_equal_those_of_many(taken: list[tuple[int, int]], cpu: int):
    nodes = [
        Node(name=f"n{at}", allocatable={"cpu": 8000, "memory": 4000 * (at % 2)}, used={"cpu": used, "memory": more})
        for at, (used, more) in enumerate(taken)
    ]
    cluster = Scheduler(nodes, compiled=False).cluster
    shape = shape_of(Workload(name="w", request={"cpu": cpu}), cluster)
    for scorer in (ResourcesScorer(), BalancedScorer(), UnusedCapabilityScorer()):
        one_by_one = [scorer.score(shape, cluster, np.array([row])).item() for row in cluster.rows.tolist()]
        assert scorer.score(shape, cluster, cluster.rows).tolist() == one_by_one


def _group_none(self: PendingQueue, now: datetime) -> None:
    """Let every new workload be tried."""
