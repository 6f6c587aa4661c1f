"""Unschedulable work has a planned start, and others run only where they do not delay it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mooring.model.decisions import Decision, Outcome
from mooring.model.policy.pools import Backfill, BackfillOrder, HeadOfLine
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler, placer
from mooring.scheduling.calendar.backfill import Planned, Planner
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.explain.unschedulable_reasons import UnplacedTasks
from tests.scheduling.builders import NOW, NodeBuilder, WorkloadBuilder, decision_of, id_of, node, workload

EITHER_WAY = pytest.mark.parametrize("compiled", [False, True])
HOUR = 3600


@pytest.fixture(autouse=True)
def kernels_place_few_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernels, where they are used, place even a few workloads beside promises."""
    monkeypatch.setattr(placer, "_FEW_WORKLOADS", 0)


def limited(builder: WorkloadBuilder, seconds: int | None) -> WorkloadBuilder:
    return WorkloadBuilder(replace(builder.workload, time_limit_seconds=seconds))


def backfilling(*nodes: NodeBuilder, compiled: bool = False, **rules: Any) -> Scheduler:
    return Scheduler(
        [each.node for each in nodes], head_of_line=HeadOfLine.BACKFILL, backfill=Backfill(**rules), compiled=compiled
    )


def running(scheduler: Scheduler, name: str, cores: int, seconds: int) -> None:
    """Something on a node that is expected to end in so many seconds."""
    row = scheduler.cluster.row_of(id_of(name))
    assert row is not None
    scheduler.cluster.timeline.expect(f"on {name}", row, seconds_of(NOW) + seconds, {"cpu": cores * 1000})


def decided(scheduler: Scheduler, *waiting: WorkloadBuilder) -> dict[str, Decision]:
    decisions = scheduler.run([each.workload for each in waiting], NOW).decisions
    return {each.workload.name: decision_of(decisions, each.workload.name) for each in waiting}


def placed(decisions: dict[str, Decision]) -> set[str]:
    return {name for name, decision in decisions.items() if decision.outcome is Outcome.PLACED}


@EITHER_WAY
def test_only_short_work_runs_before_the_planned_start_of_work_that_lacks_capacity(compiled: bool):
    scheduler = backfilling(node("n").cpu(4).used(cpu=2), compiled=compiled)
    running(scheduler, "n", 2, HOUR)
    decisions = decided(
        scheduler,
        limited(workload("head").cpu(4).created(3), HOUR),
        limited(workload("long").cpu(1).created(2), HOUR + 1),
        limited(workload("short").cpu(1).created(1), HOUR),
        workload("open").cpu(1),
    )
    assert placed(decisions) == {"short"}
    assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
    reason = decisions["long"].reason
    assert reason is not None
    assert (reason.code, reason.by) == ("booked", "timeline")
    assert "promised to others before it would end" in reason.message


@EITHER_WAY
def test_long_work_runs_beside_the_planned_start_where_both_fit(compiled: bool):
    scheduler = backfilling(node("n").cpu(5).used(cpu=2), compiled=compiled)
    running(scheduler, "n", 2, HOUR)
    decisions = decided(
        scheduler,
        limited(workload("head").cpu(4).created(3), HOUR),
        workload("beside").cpu(1).created(2),
        limited(workload("too much").cpu(1).created(1), HOUR + 1),
    )
    assert placed(decisions) == {"beside"}


def test_work_started_in_the_same_pass_has_an_end_in_the_plan():
    scheduler = backfilling(node("n").cpu(4))
    decisions = decided(
        scheduler,
        limited(workload("first").cpu(3).created(3), 100),
        limited(workload("head").cpu(4).created(2), HOUR),
        limited(workload("short").cpu(1).created(1), 100),
    )
    assert placed(decisions) == {"first", "short"}
    assert decisions["head"].planned_start == NOW + timedelta(seconds=100)


def test_a_gang_is_planned_on_several_nodes():
    nodes = [node(name).cpu(4).used(cpu=4) for name in ("a", "b", "c")]
    scheduler = backfilling(*nodes, node("d").cpu(4))
    for name, seconds in (("a", 300), ("b", 200), ("c", 100)):
        running(scheduler, name, 4, seconds)
    decisions = decided(
        scheduler,
        limited(workload("gang").cpu(4).replicas(3).gang().created(2), HOUR),
        limited(workload("short").cpu(4).created(1), 200),
    )
    assert decisions["gang"].planned_start == NOW + timedelta(seconds=200)
    assert placed(decisions) == {"short"}


def test_as_many_starts_are_planned_as_the_pool_says():
    waiting = [limited(workload(f"w{number}").cpu(4).created(9 - number), 100) for number in range(3)]
    for depth in (1, 2, 3):
        scheduler = backfilling(node("n").cpu(4).used(cpu=4), depth=depth)
        running(scheduler, "n", 4, 50)
        starts = [decision.planned_start for decision in decided(scheduler, *waiting).values()]
        expected = [NOW + timedelta(seconds=50 + 100 * number) for number in range(depth)]
        assert starts == [*expected, *[None] * (3 - depth)]


def test_a_planned_start_is_not_put_off_when_one_before_it_could_start_sooner():
    scheduler = backfilling(node("n").cpu(4), depth=2)
    for name, seconds in (("long", 100), ("short", 60)):
        assert placed(decided(scheduler, limited(workload(name).cpu(2), seconds))) == {name}
    three = limited(workload("three").cpu(3).created(9), 50)
    two = limited(workload("two").cpu(2).created(8), 40)
    starts = [decision.planned_start for decision in decided(scheduler, three, two).values()]
    assert starts == [NOW + timedelta(seconds=100), NOW + timedelta(seconds=60)]
    # The first could start at 60 now, in place of the second.
    later = NOW + timedelta(seconds=30)
    row = scheduler.cluster.row_of(id_of("n"))
    assert row is not None
    scheduler.cluster.count_amounts([row], [{"cpu": 2000}], -1)
    scheduler.cluster.timeline.remove(workload("long").workload.tasks[0].id)
    decisions = scheduler.run([three.workload, two.workload], later).decisions
    assert decision_of(decisions, "two").placements
    assert decision_of(decisions, "three").planned_start == NOW + timedelta(seconds=100)
    # The place of the second, which runs, is free for the next look.
    [again] = scheduler.run([three.workload], later).decisions
    assert again.planned_start == NOW + timedelta(seconds=70)


def test_work_ahead_of_planned_work_makes_it_give_way_only_where_that_helps():
    scheduler = backfilling(node("n").cpu(4), depth=3)
    assert placed(decided(scheduler, limited(workload("running").cpu(4), 100))) == {"running"}
    planned = limited(workload("planned").cpu(4).created(9), 50)
    assert decided(scheduler, planned)["planned"].planned_start == NOW + timedelta(seconds=100)
    hopeless = limited(workload("hopeless").cpu(8).priority(50), 50)
    assert decided(scheduler, planned, hopeless)["planned"].planned_start == NOW + timedelta(seconds=100)
    urgent = limited(workload("urgent").cpu(4).priority(50), 50)
    decisions = decided(scheduler, planned, hopeless, urgent)
    assert decisions["urgent"].planned_start == NOW + timedelta(seconds=100)
    assert decisions["planned"].planned_start == NOW + timedelta(seconds=150)


def test_a_high_depth_plans_everything():
    scheduler = backfilling(node("n").cpu(1), depth=1 << 30)
    assert placed(decided(scheduler, limited(workload("running").cpu(1), 10))) == {"running"}
    waiting = [limited(workload(f"w{number}").cpu(1).created(999 - number), 10) for number in range(150)]
    starts = [decision.planned_start for decision in decided(scheduler, *waiting).values()]
    assert starts == [NOW + timedelta(seconds=10 * (number + 1)) for number in range(150)]


def test_the_shortest_goes_first_into_a_gap_where_the_pool_says_so():
    waiting = [
        limited(workload("head").cpu(4).created(3), HOUR),
        limited(workload("longer").cpu(1).created(2), 50),
        limited(workload("shorter").cpu(1).created(1), 40),
    ]
    for order, expected in ((BackfillOrder.QUEUE, "longer"), (BackfillOrder.SHORTEST, "shorter")):
        scheduler = backfilling(node("n").cpu(4).used(cpu=3), order=order)
        running(scheduler, "n", 3, HOUR)
        assert placed(decided(scheduler, *waiting)) == {expected}


@pytest.mark.parametrize("waited", [0, HOUR - 1, HOUR, 1000 * HOUR])
def test_a_head_behind_work_without_an_end_holds_nothing_back_however_long_it_waits(waited: int):
    scheduler = backfilling(node("n").cpu(4).used(cpu=2))
    head = workload("head").cpu(4).created(waited)
    decisions = decided(scheduler, head, limited(workload("short").cpu(1), HOUR), workload("open").cpu(1))
    assert decisions["head"].planned_start is None
    assert placed(decisions) == {"short", "open"}
    reason = decisions["head"].reason
    assert reason is not None
    assert reason.details["plan"]["code"] == "no-planned-start"
    assert not scheduler.cluster.timeline.planned


@EITHER_WAY
def test_a_head_without_a_plan_does_not_keep_the_next_one_from_having_one(compiled: bool):
    scheduler = backfilling(node("a").cpu(4).used(cpu=3), node("b").cpu(2).used(cpu=1), compiled=compiled)
    running(scheduler, "b", 1, HOUR)
    decisions = decided(
        scheduler,
        *(workload(f"endless{number}").cpu(4).created(HOUR + 99 - number) for number in range(70)),
        *(workload(f"large{number}").cpu(40 + number).created(HOUR) for number in range(10)),
        limited(workload("head").cpu(2).created(9), HOUR),
        limited(workload("long").cpu(1).created(8), HOUR + 1),
        limited(workload("too_long").cpu(1).created(7), HOUR + 1),
        limited(workload("short").cpu(1).created(6), HOUR),
    )
    assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
    assert placed(decisions) == {"long", "short"}
    for name in ("endless0", "endless69", "large9"):
        reason = decisions[name].reason
        assert reason is not None
        assert reason.details["plan"]["code"] == "no-planned-start"


def test_a_gang_that_waits_for_many_ends_has_a_plan():
    scheduler = backfilling(*(node(f"n{number}").cpu(1) for number in range(300)))
    jobs = [limited(workload(f"job{number:03}").cpu(1), number + 1) for number in range(300)]
    assert len(placed(decided(scheduler, *jobs))) == 300
    gang = limited(workload("gang").cpu(1).replicas(299).gang(), HOUR)
    assert decided(scheduler, gang)["gang"].planned_start == NOW + timedelta(seconds=299)


def test_work_that_no_node_can_ever_take_blocks_nothing():
    scheduler = backfilling(node("n").cpu(4))
    decisions = decided(scheduler, workload("hopeless").cpu(8).created(2 * HOUR), workload("behind").cpu(1))
    assert placed(decisions) == {"behind"}


def test_a_head_is_planned_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch):
    scheduler = backfilling(node("n").cpu(4).used(cpu=2))
    running(scheduler, "n", 2, HOUR)
    head = limited(workload("head").cpu(4).created(3), HOUR).workload
    planned: list[str] = []

    class Counting(Planner):
        def plan(self, workload: Workload, unplaced: UnplacedTasks, not_before: int = 0) -> Planned:
            planned.append(workload.name)
            return super().plan(workload, unplaced, not_before)

    monkeypatch.setattr("mooring.scheduling.scheduler.Planner", Counting)
    first = scheduler.place([head], NOW).decisions[0]
    for seconds in (1, 60):
        long = limited(workload(f"long-{seconds}").cpu(1), 2 * HOUR).workload
        decisions = scheduler.place([head, long], NOW + timedelta(seconds=seconds)).decisions
        assert decision_of(decisions, "head") == first
        assert decision_of(decisions, long.name).outcome is Outcome.WAITING
    assert planned == ["head"]
    scheduler.cluster.timeline.remove("on n")
    running(scheduler, "n", 2, HOUR // 2)
    sooner = scheduler.place([head], NOW + timedelta(seconds=61)).decisions[0]
    assert sooner.planned_start == NOW + timedelta(seconds=HOUR // 2)
    assert planned == ["head", "head"]


def test_planned_starts_count_until_the_next_pass_of_their_pool():
    scheduler = backfilling(node("n").cpu(4).used(cpu=2))
    running(scheduler, "n", 2, HOUR)
    head, other = limited(workload("head").cpu(4), HOUR), workload("other").cpu(1)
    decided(scheduler, head)
    explained = scheduler.explain(other.workload, NOW).reason
    assert explained is not None
    assert explained.code == "booked"
    itself = scheduler.explain(head.workload, NOW).reason
    assert itself is not None
    assert itself.code == "insufficient-resources"
    assert placed(decided(scheduler, other)) == {"other"}
    assert not scheduler.cluster.timeline.booked


@EITHER_WAY
def test_a_task_starts_on_a_booked_node_only_if_it_ends_before_the_booking_or_fits_beside_it(compiled: bool):
    def scheduler() -> Scheduler:
        made = Scheduler([node("n").cpu(4).node], compiled=compiled)
        row = made.cluster.row_of(id_of("n"))
        assert row is not None
        made.cluster.timeline.add("lab", row, seconds_of(NOW) + HOUR, seconds_of(NOW) + 2 * HOUR, {"cpu": 3000})
        return made

    cases = [("ends before", 4, HOUR, True), ("touches", 2, HOUR + 1, False), ("beside", 1, None, True)]
    for name, cores, seconds, fits in cases:
        decisions = decided(scheduler(), limited(workload(name).cpu(cores), seconds))
        assert placed(decisions) == ({name} if fits else set()), name


def test_an_estimate_does_not_add_up_the_time_that_tasks_have_to_stop():
    scheduler = backfilling(node("n").cpu(1), depth=3)
    jobs = [
        replace(limited(workload(f"w{number}").cpu(1).created(9 - number), 100).workload, stop_grace_seconds=10)
        for number in range(4)
    ]
    decisions = scheduler.run(jobs, NOW).decisions
    assert decision_of(decisions, "w3").planned_start == NOW + timedelta(seconds=330)
    assert scheduler.estimate(jobs[3], jobs[1:], NOW) == NOW + timedelta(seconds=300)
    # What was planned stands as it did.
    assert scheduler.cluster.timeline.planned_owners({"default"}) == {job.id for job in jobs[1:]}


def test_a_head_that_can_be_planned_at_last_is_planned_beside_the_starts_that_were_promised_meanwhile():
    scheduler = backfilling(node("n").cpu(4), depth=3)
    for name, seconds in (("endless", None), ("limited", 100)):
        assert placed(decided(scheduler, limited(workload(name).cpu(2), seconds))) == {name}
    head, behind = limited(workload("head").cpu(4).created(9), 50), limited(workload("behind").cpu(2).created(8), 50)
    decisions = decided(scheduler, head, behind)
    assert decisions["head"].planned_start is None
    assert decisions["behind"].planned_start == NOW + timedelta(seconds=100)
    row = scheduler.cluster.row_of(id_of("n"))
    assert row is not None
    scheduler.cluster.timeline.expect("endless", row, seconds_of(NOW) + 60, {"cpu": 2000})
    decisions = decided(scheduler, head, behind)
    assert decisions["behind"].planned_start == NOW + timedelta(seconds=60)
    assert decisions["head"].planned_start == NOW + timedelta(seconds=150)
