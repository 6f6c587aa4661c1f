"""Work that lacks room has a planned start, and others run only where they do not delay it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mooring.model.decisions import Decision, Outcome
from mooring.model.pools import Backfill, BackfillOrder, HeadOfLine
from mooring.scheduling import Scheduler
from mooring.scheduling.timeline import seconds_of
from tests.scheduling.builders import NOW, NodeBuilder, WorkloadBuilder, decision_of, id_of, node, workload

EITHER_WAY = pytest.mark.parametrize("compiled", [False, True])
HOUR = 3600


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
def test_short_work_runs_before_the_planned_start_of_what_lacks_room_and_long_work_does_not(compiled: bool):
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
def test_long_work_runs_beside_the_planned_start_where_there_is_room_for_both(compiled: bool):
    scheduler = backfilling(node("n").cpu(5).used(cpu=2), compiled=compiled)
    running(scheduler, "n", 2, HOUR)
    decisions = decided(
        scheduler,
        limited(workload("head").cpu(4).created(3), HOUR),
        workload("beside").cpu(1).created(2),
        limited(workload("too much").cpu(1).created(1), HOUR + 1),
    )
    assert placed(decisions) == {"beside"}


def test_what_starts_in_the_same_pass_ends_in_the_plan():
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


def test_work_whose_start_cannot_be_planned_is_passed_for_an_hour_and_then_stops_the_others():
    for waited, expected in ((HOUR - 1, {"behind"}), (HOUR, set())):
        scheduler = backfilling(node("n").cpu(4).used(cpu=2))
        decisions = decided(scheduler, workload("head").cpu(4).created(waited), workload("behind").cpu(1))
        assert decisions["head"].planned_start is None
        assert placed(decisions) == expected


def test_work_that_no_node_can_ever_take_is_in_nobodys_way():
    scheduler = backfilling(node("n").cpu(4))
    decisions = decided(scheduler, workload("hopeless").cpu(8).created(2 * HOUR), workload("behind").cpu(1))
    assert placed(decisions) == {"behind"}


def test_what_is_planned_counts_until_the_next_pass_of_its_pool():
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
def test_a_task_starts_on_a_booked_node_only_if_it_ends_before_the_booking_or_has_room_beside_it(compiled: bool):
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
