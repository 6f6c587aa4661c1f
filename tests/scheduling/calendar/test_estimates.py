"""An estimated start is when the scheduler's own passes would start the work, and making one changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from mooring.model.policy.pools import Backfill, HeadOfLine
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.workload import Task, Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.calendar.seconds import seconds_of
from tests.scheduling.builders import NOW, id_of, node
from tests.scheduling.runs import Run, job, mixed_jobs, scheduler_of


def in_seconds(starts: Mapping[UUID, datetime], *workloads: Workload) -> list[int | None]:
    return [int((starts[each.id] - NOW).total_seconds()) if each.id in starts else None for each in workloads]


@pytest.mark.parametrize(
    ("head_of_line", "depth"),
    [(HeadOfLine.BACKFILL, 1), (HeadOfLine.BACKFILL, 100), (HeadOfLine.SKIP, 1), (HeadOfLine.STRICT, 1)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_estimates_are_the_starts_that_follow_where_work_runs_to_its_limits(
    head_of_line: HeadOfLine, depth: int, seed: int
):
    queue = mixed_jobs(seed)
    followed = Run(scheduler_of(4, 4, head_of_line=head_of_line, depth=depth), queue).until()
    estimated = scheduler_of(4, 4, head_of_line=head_of_line, depth=depth).estimates(queue, NOW)
    assert estimated == followed


def test_short_work_that_fills_a_gap_is_estimated_to_start_before_the_work_ahead_of_it():
    scheduler = scheduler_of(4)
    first, head, short = (
        job("first", 3, 600).workload,
        job("head", 4, 600, 1).workload,
        job("short", 1, 100, 2).workload,
    )
    assert in_seconds(scheduler.estimates([first, head, short], NOW), first, head, short) == [0, 600, 0]


def test_work_that_is_not_due_starts_when_it_is_and_work_behind_endless_work_has_no_estimate():
    scheduler = scheduler_of(1)
    later = replace(job("later", 1, 60).workload, starts_at=NOW + timedelta(seconds=300))
    retried = job("retried", 1, 60, 1).backing_off(120).workload
    endless, never = job("endless", 1, None, 2).workload, job("never", 1, None, 3).workload
    first = scheduler.estimates([later, retried], NOW)
    assert in_seconds(first, later, retried) == [300, 120]
    assert in_seconds(scheduler.estimates([endless, never], NOW), endless, never) == [0, None]


def test_tasks_that_start_one_by_one_are_estimated_by_the_first_and_hold_up_others_with_all():
    scheduler = scheduler_of(2)
    replicas, behind = job("replicas", 1, 100).replicas(3).workload, job("behind", 2, 50, 1).workload
    assert in_seconds(scheduler.estimates([replicas, behind], NOW), replicas, behind) == [0, 200]


def test_once_the_steps_are_spent_the_rest_is_estimated_in_queue_order():
    queue = [job(f"w{at}", 1, 100, at).workload for at in range(20)]
    for steps in (0, 30, 100):
        found = in_seconds(scheduler_of(1).estimates(queue, NOW, steps=steps), *queue)
        # A start that is not tried is planned for the next second at the earliest.
        late = {at - 100 * number for number, at in enumerate(found) if at is not None}
        assert None not in found
        assert late <= {0, 1}


def test_an_estimate_leaves_the_cluster_and_its_plans_as_they_were():
    def used() -> tuple[Scheduler, list[Workload]]:
        nodes = [node(f"n{number}").cpu(4).slot("gpu", 2).node for number in range(3)]
        scheduler = Scheduler(nodes, head_of_line=HeadOfLine.BACKFILL, backfill=Backfill(depth=4), compiled=False)
        port = Constraints(host_ports=(HostPort(8080),))
        jobs = [replace(each, constraints=port) if at % 5 == 0 else each for at, each in enumerate(mixed_jobs(3))]
        with_devices = [
            replace(each, request={**each.request, "gpu": 1000}) if at % 3 == 0 else each
            for at, each in enumerate(jobs)
        ]
        row = scheduler.cluster.row_of(id_of("n0"))
        assert row is not None
        scheduler.cluster.timeline.add("booking", row, seconds_of(NOW) + 200, seconds_of(NOW) + 500, {"cpu": 1000})
        decisions = scheduler.place(with_devices, NOW).decisions
        return scheduler, [each.workload for each in decisions if not each.placements]

    (asked, waiting), (untouched, _) = used(), used()
    cluster, timeline = asked.cluster, asked.cluster.timeline
    columns, tasks = cluster.taken.copy(), cluster.tasks.copy()
    promises, planned = dict(timeline._promises), timeline.planned_owners({"default"})
    revision, relieved = cluster.changes.revision, set(timeline.relieved)
    assert len(asked.estimates(waiting, NOW)) == len(waiting)
    assert asked.estimates(waiting, NOW, steps=100)
    assert (cluster.taken == columns).all()
    assert (cluster.tasks == tasks).all()
    assert (timeline._promises, timeline.planned_owners({"default"})) == (promises, planned)
    assert (timeline.now, timeline.relieved, cluster.changes.revision) == (seconds_of(NOW), relieved, revision)
    for seconds in (60, 300, 900):
        at = NOW + timedelta(seconds=seconds)
        assert asked.run(waiting, at).decisions == untouched.run(waiting, at).decisions


def test_a_workload_with_too_many_ahead_has_no_estimate():
    queue = [
        Workload(name=f"w{at}", request={"cpu": 1000}, tasks=(Task(id_of(f"t{at}"), 0),), time_limit_seconds=60)
        for at in range(502)
    ]
    scheduler = scheduler_of(64, 64, 64, 64)
    assert scheduler.estimate(queue[500], queue, NOW) is not None
    assert scheduler.estimate(queue[501], queue, NOW) is None
    assert scheduler.estimate(job("elsewhere", 1, 60).workload, queue, NOW) is None
