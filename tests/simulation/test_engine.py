"""The simulation replays jobs through the scheduler: starts and figures of small traces and of a published one."""

from __future__ import annotations

import gc
import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import Backfill, BackfillOrder, Binding, Expectation, HeadOfLine, PoolPolicy
from mooring.simulation.engine import replay, simulate
from mooring.simulation.inputs.traces.swf import read_swf
from mooring.simulation.jobs import Job
from mooring.simulation.metrics import Figures, figures_of
from mooring.simulation.outcomes import JobOutcome
from mooring.simulation.scenario import Scenario

ONE_NODE = [Node(name="node", allocatable={"cpu": 4000})]


def job(number: int, submitted: int, run: int, cores: int, *, limit: int | None = None, tasks: int = 1) -> Job:
    return Job(number, f"job-{number}", submitted, run, limit or run, {"cpu": cores * 1000}, tasks)


def fifo(head_of_line: HeadOfLine, **backfill: object) -> PoolPolicy:
    return PoolPolicy("balanced", sequencer="fifo", head_of_line=head_of_line, backfill=Backfill(**backfill))  # type: ignore[arg-type]


def starts(jobs: list[Job], policy: PoolPolicy, nodes: list[Node] | None = None) -> list[int | None]:
    return [outcome.start for outcome in simulate(nodes or ONE_NODE, jobs, policy).outcomes]


def replayed(jobs: list[Job], policy: PoolPolicy, nodes: list[Node] = ONE_NODE) -> tuple[Figures, Sequence[JobOutcome]]:
    scenario = Scenario(nodes, jobs, {"default": policy})
    result = replay(scenario)
    return figures_of(result, scenario), result.outcomes


# Job 0 takes 3 of 4 cores until 100; job 1 needs all 4. Job 2 ends before 100, job 3 does not.
BLOCKED = [job(0, 0, 100, 3), job(1, 10, 50, 4), job(2, 20, 30, 1), job(3, 30, 200, 1)]


@pytest.mark.parametrize(
    ("head_of_line", "expected"),
    [
        (HeadOfLine.STRICT, [0, 100, 150, 150]),
        (HeadOfLine.BACKFILL, [0, 100, 20, 150]),
        # Job 3 starts when job 2 ends at 50, and delays job 1 until 250.
        (HeadOfLine.SKIP, [0, 250, 20, 50]),
    ],
)
def test_head_of_line_rule_of_the_policy_decides_the_starts(head_of_line: HeadOfLine, expected: list[int]):
    assert starts(BLOCKED, fifo(head_of_line)) == expected


def test_backfill_order_of_the_policy_decides_between_two_that_fit():
    jobs = [job(0, 0, 100, 3), job(1, 0, 50, 4), job(2, 0, 80, 1), job(3, 0, 40, 1)]
    assert starts(jobs, fifo(HeadOfLine.BACKFILL)) == [0, 100, 0, 150]
    assert starts(jobs, fifo(HeadOfLine.BACKFILL, order=BackfillOrder.SHORTEST)) == [0, 100, 150, 0]


def test_plans_use_time_limits_and_ends_use_run_times():
    # By its limit job 0 ends at 100, so job 2 (limit 90) may start before job 1; in fact job 0 ends at 40.
    jobs = [job(0, 0, 40, 3, limit=100), job(1, 0, 10, 4), job(2, 0, 20, 1, limit=90)]
    assert starts(jobs, fifo(HeadOfLine.BACKFILL)) == [0, 40, 0]


def test_gang_starts_when_all_its_tasks_fit():
    nodes = [Node(name=f"node-{number}", allocatable={"cpu": 1000}) for number in range(3)]
    jobs = [job(0, 0, 60, 1), job(1, 5, 10, 1, tasks=3), job(2, 6, 10, 1, tasks=2)]
    assert starts(jobs, fifo(HeadOfLine.STRICT), nodes) == [0, 60, 70]


def test_job_larger_than_the_cluster_never_starts_and_blocks_no_other():
    figures, outcomes = replayed([job(0, 0, 10, 5), job(1, 1, 10, 4)], fifo(HeadOfLine.BACKFILL))
    assert [outcome.start for outcome in outcomes] == [None, 1]
    assert (figures.jobs, figures.never_started) == (2, 1)


@pytest.mark.parametrize("option", [{"paused": True}, {"idle_timeout_seconds": 60}, {"binding": Binding.TWO_PHASE}])
def test_pool_options_without_a_model_are_refused(option: dict[str, Any]):
    policy = replace(fifo(HeadOfLine.STRICT), **option)
    with pytest.raises(InvalidInput, match=next(iter(option))):
        simulate(ONE_NODE, [job(0, 0, 10, 1)], policy)


def test_figures_of_two_jobs():
    # Waits 0 and 100; slowdowns 1 and (100 + 5) / 10. 4 cores * 105 s of 4 cores * 105 s.
    figures, _ = replayed([job(0, 0, 100, 4), job(1, 0, 5, 4)], fifo(HeadOfLine.STRICT))
    assert figures.mean_wait_seconds == 50
    assert figures.mean_bounded_slowdown == pytest.approx((1 + 10.5) / 2)
    assert figures.utilisation == {"cpu": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize(("order", "published"), [(BackfillOrder.QUEUE, 92.577), (BackfillOrder.SHORTEST, 69.4)])
def test_published_slowdowns_of_kth_sp2_are_reproduced(
    trace: Callable[[str], Path], order: BackfillOrder, published: float
):
    with gzip.open(trace("swf/KTH-SP2-1996-2.swf.gz"), "rt") as lines:
        jobs = read_swf(lines, "KTH-SP2", gangs=False)
    assert len(jobs) == 28_481
    machine = [Node(name="machine", allocatable={"cpu": 100_000})]
    figures, _ = replayed(jobs, fifo(HeadOfLine.BACKFILL, order=order), machine)
    assert figures.mean_bounded_slowdown == pytest.approx(published, rel=0.005)


def test_predictions_of_earlier_runs_open_gaps_that_limits_close():
    # Two runs of 10 s each are known when job 4, like them, might fill the 40 s before job 3 starts.
    jobs = [
        job(0, 0, 10, 1, limit=100),
        job(1, 0, 10, 1, limit=100),
        job(2, 20, 50, 3),
        job(3, 25, 50, 4),
        job(4, 30, 10, 1, limit=100),
    ]
    assert starts(jobs, fifo(HeadOfLine.BACKFILL)) == [0, 0, 20, 70, 120]
    assert starts(jobs, fifo(HeadOfLine.BACKFILL, expectation=Expectation.RECENT)) == [0, 0, 20, 70, 30]


def test_wrong_prediction_delays_the_head_but_never_exceeds_the_node():
    jobs = [
        job(0, 0, 10, 1, limit=100),
        job(1, 0, 10, 1, limit=100),
        job(2, 20, 50, 3),
        job(3, 25, 50, 4),
        job(4, 30, 100, 1, limit=100),
    ]
    assert starts(jobs, fifo(HeadOfLine.BACKFILL, expectation=Expectation.RECENT)) == [0, 0, 20, 130, 30]


def test_history_is_not_simulated():
    with pytest.raises(InvalidInput) as failure:
        starts([job(0, 0, 10, 1)], fifo(HeadOfLine.BACKFILL, expectation=Expectation.HISTORY))
    assert failure.value.code == "not-modelled"


@pytest.mark.parametrize("frozen_by_caller", [False, True])
def test_replay_leaves_the_garbage_collector_as_the_caller_set_it(frozen_by_caller: bool):
    before = gc.get_freeze_count()
    # The tests freeze their modules; without that, the replay freezes and releases what it finds.
    gc.freeze() if frozen_by_caller else gc.unfreeze()
    frozen, thresholds = gc.get_freeze_count() > 0, gc.get_threshold()
    starts(BLOCKED, fifo(HeadOfLine.STRICT))
    assert (gc.get_freeze_count() > 0, gc.get_threshold()) == (frozen, thresholds)
    if before:
        gc.freeze()
