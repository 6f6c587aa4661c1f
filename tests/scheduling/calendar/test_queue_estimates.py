"""A whole queue is estimated in portions, whatever their size, and the cluster stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest

from mooring.model.decisions import Decision
from mooring.model.policy.pools import BackfillOrder, HeadOfLine
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.calendar import queue_estimates
from mooring.scheduling.calendar.queue_estimates import ExpectedEnd, QueueEstimates
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.scheduler import IncrementalPass
from tests.scheduling.builders import NOW, node, workload
from tests.scheduling.runs import Run, demanding_jobs, job, mixed_jobs, scheduler_of


def full_scheduler(nodes: int = 2) -> Scheduler:
    scheduler = Scheduler(
        [node(f"n{number}").cpu(1).node for number in range(nodes)], head_of_line=HeadOfLine.BACKFILL, compiled=False
    )
    running = [workload(f"running{number}").cpu(1).limit(100).workload for number in range(nodes)]
    assert scheduler.run(running, NOW).placements == nodes
    return scheduler


def queue_of(number: int, cores: int = 1) -> list[Workload]:
    return [workload(f"w{at}").cpu(cores).created(1000 - at).limit(100).workload for at in range(number)]


@pytest.mark.parametrize(
    ("head_of_line", "depth", "order"),
    [
        (HeadOfLine.BACKFILL, 1, BackfillOrder.QUEUE),
        (HeadOfLine.BACKFILL, 1, BackfillOrder.SHORTEST),
        (HeadOfLine.BACKFILL, 3, BackfillOrder.QUEUE),
        (HeadOfLine.BACKFILL, 100, BackfillOrder.QUEUE),
        (HeadOfLine.SKIP, 1, BackfillOrder.QUEUE),
        (HeadOfLine.STRICT, 1, BackfillOrder.QUEUE),
    ],
)
@pytest.mark.parametrize("jobs", [mixed_jobs(0, 30), demanding_jobs(1, 24)])
@pytest.mark.parametrize("after", [0, 400])
def test_estimates_are_the_starts_that_follow_where_work_runs_to_its_limits(
    head_of_line: HeadOfLine, depth: int, order: BackfillOrder, jobs: list[Workload], after: int
):
    run = Run(scheduler_of(4, 4, 8, head_of_line=head_of_line, depth=depth, order=order), jobs)
    run.until(after)
    queue = list(run.waiting.values())
    assert queue
    found = collected(QueueEstimates(run.scheduler, "default", queue, run.now), 25)
    started = set(run.starts)
    followed = run.until()
    assert found == {id: at for id, at in followed.items() if id not in started}


def test_replicas_that_start_one_by_one_are_estimated_by_the_first():
    chance = Random(5)
    jobs = [job(f"w{at}", chance.choice([1, 2]), chance.randrange(60, 600), at) for at in range(20)]
    queue = [each.replicas(chance.randrange(1, 5)).max_per_node(chance.choice([None, 1])).workload for each in jobs]
    found = collected(QueueEstimates(scheduler_of(4, 4), "default", queue, NOW), 25)
    assert found == Run(scheduler_of(4, 4), queue).until()


def test_work_beside_a_booking_waits_for_its_end_if_it_does_not_end_before():
    scheduler = scheduler_of(4)
    start = seconds_of(NOW)
    row = int(scheduler.cluster.rows[0])
    scheduler.cluster.timeline.add("booking", row, start + 100, start + 500, {"cpu": 4000})
    long, short = job("long", 4, 300).workload, job("short", 4, 50, 1).workload
    found = collected(QueueEstimates(scheduler, "default", [long, short], NOW), 25)
    assert found == {long.id: NOW + timedelta(seconds=500), short.id: NOW}


def test_estimates_use_the_stated_run_time_and_backfill_uses_the_time_limit():
    scheduler = scheduler_of(4)
    running = job("running", 3, 1000).workload
    assert scheduler.run([running], NOW).placements == 1
    head, filler, last = (
        job("head", 4, 800, 1).workload,
        job("filler", 1, 900, 2).workload,
        job("last", 4, 10, 3).workload,
    )
    too_long = job("too long", 1, 1100, 4).workload
    queue = [head, filler, last, too_long]
    node_id = scheduler.cluster.node(int(scheduler.cluster.rows[0])).id
    ends = {running.tasks[0].id: ExpectedEnd(node_id, NOW + timedelta(seconds=300), running.request)}
    half = QueueEstimates(scheduler, "default", queue, NOW, run_seconds=lambda each: 100, ends=ends)
    found = collected(half, 25)
    # The filler ends at 100, the running one at 300. The last one by its limit would not let the longer one start.
    assert in_seconds(found, *queue) == [300, 0, 400, 500]


def test_running_work_without_a_limit_ends_when_it_is_expected_to():
    scheduler = scheduler_of(4)
    running, waiting = job("running", 4, None).workload, job("waiting", 4, 60, 1).workload
    assert scheduler.run([running], NOW).placements == 1
    node_id = scheduler.cluster.node(int(scheduler.cluster.rows[0])).id
    ends = {running.tasks[0].id: ExpectedEnd(node_id, NOW + timedelta(seconds=300), running.request)}
    assert in_seconds(collected(QueueEstimates(scheduler, "default", [waiting], NOW), 25), waiting) == [None]
    found = collected(QueueEstimates(scheduler, "default", [waiting], NOW, ends=ends), 25)
    assert in_seconds(found, waiting) == [300]


def test_once_the_steps_of_the_passes_are_spent_the_rest_is_estimated_in_queue_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queue_estimates, "_FEWEST_STEPS", 60)
    monkeypatch.setattr(queue_estimates, "_STEPS_OF_A_WORKLOAD", 0)
    queue = queue_of(300)
    found = in_seconds(collected(QueueEstimates(full_scheduler(), "default", queue, NOW), 7), *queue)
    # A start that is not tried is planned for the next second at the earliest.
    late = {None if start is None else start - 100 - 100 * (at // 2) for at, start in enumerate(found)}
    assert late == {0, 1}


def test_a_shape_without_capacity_is_not_tried_again_at_the_same_moment(monkeypatch: pytest.MonkeyPatch):
    tried: list[str] = []
    offer = IncrementalPass.offer

    def counted(current: IncrementalPass, workload: Workload) -> Decision:
        tried.append(workload.name)
        return offer(current, workload)

    monkeypatch.setattr(IncrementalPass, "offer", counted)
    queue = [job(f"w{at}", 1 + at % 4, 100 + at % 50, at).workload for at in range(400)]
    found = collected(QueueEstimates(scheduler_of(4, 4), "default", queue, NOW), 25)
    assert len(found) == 400
    assert None not in found.values()
    assert len(tried) < 8 * len(queue)


def in_seconds(starts: Mapping[UUID, datetime | None], *workloads: Workload) -> list[int | None]:
    found = [starts[each.id] for each in workloads]
    return [None if start is None else int((start - NOW).total_seconds()) for start in found]


def collected(estimates: QueueEstimates, steps: int) -> dict[UUID, datetime | None]:
    found: dict[UUID, datetime | None] = {}
    while not estimates.done:
        found |= {each.workload_id: each.start for each in estimates.advance(steps)}
    return found


@pytest.mark.parametrize("steps", [1, 7, 100, 10_000])
def test_every_workload_of_a_long_queue_has_an_estimate_whatever_the_size_of_the_portions(steps: int):
    queue = queue_of(300)
    found = collected(QueueEstimates(full_scheduler(), "default", queue, NOW), steps)
    assert [found[each.id] for each in queue] == [NOW + timedelta(seconds=100 + 100 * (at // 2)) for at in range(300)]


def test_a_portion_ends_with_its_steps():
    estimates = QueueEstimates(full_scheduler(), "default", queue_of(300), NOW)
    portions = []
    while not estimates.done:
        portions.append(len(estimates.advance(10)))
    assert max(portions) <= 10
    assert sum(portions) == 300


def test_passes_between_portions_do_not_disturb_the_estimates():
    scheduler, queue = full_scheduler(), queue_of(50)
    estimates = QueueEstimates(scheduler, "default", queue, NOW)
    found: dict[UUID, datetime | None] = {}
    while not estimates.done:
        found |= {each.workload_id: each.start for each in estimates.advance(5)}
        scheduler.run(queue, NOW)
    assert [found[each.id] for each in queue] == [NOW + timedelta(seconds=100 + 100 * (at // 2)) for at in range(50)]


def test_the_cluster_and_its_plans_are_as_they_were():
    scheduler, queue = full_scheduler(), queue_of(20)
    scheduler.run(queue, NOW)
    cluster = scheduler.cluster
    taken, promises, revision = cluster.taken.copy(), dict(cluster.timeline._promises), cluster.changes.revision
    collected(QueueEstimates(scheduler, "default", queue, NOW), 10)
    assert (cluster.taken == taken).all()
    assert (cluster.timeline._promises, cluster.changes.revision) == (promises, revision)


def test_work_that_fits_nowhere_or_comes_behind_endless_work_has_no_estimate():
    endless = workload("endless").cpu(1).created(2).workload
    behind = workload("behind").cpu(1).created(1).limit(10).workload
    large = workload("large").cpu(9).created(3).limit(10).workload
    odd = workload("odd").cpu(1).slot("quantum", 1).created(4).limit(10).workload
    found = collected(QueueEstimates(full_scheduler(1), "default", [large, endless, behind], NOW), 100)
    assert found == {large.id: None, endless.id: NOW + timedelta(seconds=100), behind.id: None}
    # A slot that no node has makes the columns larger.
    found = collected(QueueEstimates(full_scheduler(1), "default", [odd, endless], NOW), 100)
    assert found == {odd.id: None, endless.id: NOW + timedelta(seconds=100)}


def test_gangs_start_together_and_replicas_by_the_first():
    gang = workload("gang").cpu(1).created(3).limit(50).replicas(2).gang().workload
    replicas = workload("replicas").cpu(1).created(2).limit(50).replicas(3).workload
    last = workload("last").cpu(1).created(1).limit(50).workload
    found = collected(QueueEstimates(full_scheduler(2), "default", [gang, replicas, last], NOW), 100)
    assert [found[each.id] for each in (gang, replicas, last)] == [
        NOW + timedelta(seconds=seconds) for seconds in (100, 150, 200)
    ]
