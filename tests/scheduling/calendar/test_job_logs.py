"""Backfill on a published job log gives the published slowdown; the benchmark `backfill` runs all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import backfill
from mooring.model.decisions import Decision
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import Backfill, HeadOfLine, PoolPolicy
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.calendar.seconds import time_of
from mooring.scheduling.explain.explanation import forget
from mooring.simulation.engine import simulate
from mooring.simulation.jobs import Job, workload_of

ONE_NODE = [Node(name="machine", allocatable={"cpu": 100_000})]
NODE_PER_CORE = [Node(name=f"machine-{number}", allocatable={"cpu": 1000}) for number in range(100)]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [ONE_NODE, NODE_PER_CORE])
def test_jobs_from_the_pending_queue_start_as_in_passes_over_all_jobs(
    trace: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, nodes: list[Node]
):
    monkeypatch.setattr(backfill, "FOLDER", trace("swf/KTH-SP2-1996-2.swf.gz").parent.parent)
    jobs = backfill.kth_jobs(gangs=nodes is NODE_PER_CORE)[:300]
    policy = PoolPolicy("balanced", sequencer="fifo", head_of_line=HeadOfLine.BACKFILL)
    queued = {each.job.number: each.start for each in simulate(nodes, jobs, policy).outcomes}
    assert queued == _starts_with_all_jobs_in_every_pass(nodes, jobs)


def _starts_with_all_jobs_in_every_pass(nodes: list[Node], jobs: list[Job]) -> dict[int, int]:
    scheduler = Scheduler(nodes, head_of_line=HeadOfLine.BACKFILL, backfill=Backfill(), compiled=False)
    starts: dict[int, int] = {}
    pending: dict[int, Workload] = {}
    running: dict[int, Decision] = {}
    run_seconds = {job.number: job.run_seconds for job in jobs if job.run_seconds is not None}
    times = {job.submitted for job in jobs}
    while times:
        time = min(times)
        times.remove(time)
        arrived = [job for job in jobs if job.submitted == time]
        pending |= {job.number: workload_of(job, expected_seconds=job.limit_seconds) for job in arrived}
        for number in [each for each in running if starts[each] + run_seconds[each] == time]:
            forget(scheduler.cluster, running.pop(number))
        for decision in scheduler.place(list(pending.values()), time_of(time)).decisions:
            if decision.placements:
                number = decision.workload.id.int - 1
                starts[number], running[number] = time, decision
                times.add(time + run_seconds[number])
                del pending[number]
    return starts


@pytest.mark.slow
def test_a_sequence_of_the_lublin_log_has_the_published_slowdown(
    trace: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backfill, "FOLDER", trace("swf/lublin_256.swf.gz").parent.parent)
    fourth = backfill.lublin_sequences()[3]
    assert round(backfill.lublin(fourth, "SJF", True).slowdown, 2) == 34.96
