"""For any queue and any early ends: no work delays a planned start, and nodes never exceed their capacity."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.decisions import Outcome
from mooring.model.policy.pools import Backfill, BackfillOrder, HeadOfLine
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler, placer
from mooring.scheduling.calendar.backfill import Planned, Planner
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.scheduler import Pass
from tests.scheduling.builders import NOW, id_of, node, workload
from tests.selection import examples


@dataclass(frozen=True)
class Job:
    arrives: int
    cores: int
    tasks: int
    limit: int | None
    runs: int
    """At most as long as its limit."""


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    limit = draw(st.integers(1, 40) | st.none() if draw(st.integers(0, 9)) == 0 else st.integers(1, 40))
    return Job(
        arrives=draw(st.integers(0, 60)),
        cores=draw(st.integers(1, 4)),
        tasks=draw(st.integers(1, 3)),
        limit=limit,
        runs=draw(st.integers(1, limit or 40)),
    )


@dataclass
class World:
    """Nodes, a scheduler and a clock that jumps from event to event."""

    scheduler: Scheduler
    cores: dict[str, int]
    waiting: dict[str, Workload] = field(default_factory=dict)
    ends: list[tuple[int, str]] = field(default_factory=list)
    running: dict[str, Workload] = field(default_factory=dict)
    on: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    planned: dict[str, int] = field(default_factory=dict)
    """The first planned start of every workload that had one."""
    last_planned: dict[str, int] = field(default_factory=dict)
    decisions: list[tuple[int, str, Outcome, int, datetime | None]] = field(default_factory=list)
    """Every decision: the time, the workload, the outcome, the feasible nodes and the planned start."""

    def finish(self, name: str) -> None:
        cluster, ended = self.scheduler.cluster, self.running.pop(name)
        rows = [row for _, row in self.on.pop(name)]
        cluster.count_amounts(rows, [ended.request] * len(rows), -1)
        for task in ended.tasks:
            cluster.timeline.remove(task.id)

    def schedule(self, time: int, runs: dict[str, int]) -> None:
        result = self.scheduler.place(list(self.waiting.values()), at(time))
        for decision in result.decisions:
            name = decision.workload.name
            self.decisions.append((time, name, decision.outcome, decision.feasible_nodes, decision.planned_start))
            if decision.planned_start is not None:
                start = seconds_of(decision.planned_start) - seconds_of(NOW)
                self.planned.setdefault(name, start)
                assert start <= self.last_planned.get(name, start), f"the planned start of {name} moved later"
                self.last_planned[name] = start
            if decision.placements:
                self.starts[name] = time
                self.running[name] = self.waiting.pop(name)
                placements = [
                    (each.node_name, self.scheduler.cluster.row_of(each.node_id)) for each in decision.placements
                ]
                self.on[name] = [(node_name, row) for node_name, row in placements if row is not None]
                heappush(self.ends, (time + runs[name], name))

    def occupied(self, node_name: str) -> int:
        return sum(
            self.running[name].request["cpu"]
            for name, placements in self.on.items()
            for each, _ in placements
            if each == node_name
        )


def at(time: int) -> datetime:
    return NOW + timedelta(seconds=time)


class PlansAnew(Scheduler):
    """A scheduler that never keeps a planned start from one pass to the next."""

    def place(self, *arguments: Any, **options: Any) -> Pass:
        self._plan_memory.held = None
        return super().place(*arguments, **options)


def simulated(
    cores: list[int],
    queue: list[Job],
    rules: Backfill,
    *,
    compiled: bool = False,
    scheduler_type: type[Scheduler] = Scheduler,
) -> World:
    """Run everything to its end, checking at every event that no node has more on it than it offers."""
    nodes = {f"n{number}": count for number, count in enumerate(cores)}
    scheduler = scheduler_type(
        [node(name).cpu(count).node for name, count in nodes.items()],
        head_of_line=HeadOfLine.BACKFILL,
        backfill=rules,
        compiled=compiled,
    )
    world = World(scheduler, nodes)
    runs = {f"j{number}": job.runs for number, job in enumerate(queue)}
    arrivals = sorted((job.arrives, number) for number, job in enumerate(queue))
    while arrivals or world.ends:
        time = min([*(first for first, _ in arrivals[:1]), *(end for end, _ in world.ends[:1])])
        while world.ends and world.ends[0][0] <= time:
            world.finish(heappop(world.ends)[1])
        while arrivals and arrivals[0][0] <= time:
            _, number = arrivals.pop(0)
            job, name = queue[number], f"j{number}"
            made = workload(name).cpu(job.cores).replicas(job.tasks).gang().workload
            # Those that arrive together have their turn by number.
            created = at(job.arrives) + timedelta(microseconds=number)
            world.waiting[name] = replace(made, created_at=created, time_limit_seconds=job.limit)
        world.schedule(time, runs)
        for name, count in nodes.items():
            assert world.occupied(name) <= count * 1000
    return world


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.lists(jobs(), min_size=2, max_size=14),
    st.sampled_from(BackfillOrder),
)
def test_work_starts_by_the_time_that_was_planned_for_it(cores: list[int], queue: list[Job], order: BackfillOrder):
    world = simulated(cores, queue, Backfill(order=order))
    for name, planned in world.planned.items():
        assert world.starts[name] <= planned


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.lists(jobs(), min_size=2, max_size=14),
    st.sampled_from([2, 3, 1 << 30]),
)
def test_no_planned_start_becomes_later_at_any_depth(cores: list[int], queue: list[Job], depth: int):
    world = simulated(cores, queue, Backfill(depth=depth))
    for name, planned in world.planned.items():
        assert world.starts[name] <= planned


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.lists(jobs(), min_size=2, max_size=10))
def test_the_kernels_start_everything_when_the_definition_does(cores: list[int], queue: list[Job]):
    by_definition = simulated(cores, queue, Backfill(depth=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placer, "_FEW_WORKLOADS", 0)
        compiled = simulated(cores, queue, Backfill(depth=2), compiled=True)
    assert (compiled.starts, compiled.planned) == (by_definition.starts, by_definition.planned)
    few_without = simulated(cores, queue, Backfill(depth=2), compiled=True)
    assert (few_without.starts, few_without.planned) == (by_definition.starts, by_definition.planned)


@settings(max_examples=examples(120), deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.lists(jobs(), min_size=2, max_size=14),
    st.sampled_from([1, 2]),
)
def test_a_kept_plan_equals_a_new_one(cores: list[int], queue: list[Job], depth: int):
    incremental = simulated(cores, queue, Backfill(depth=depth))
    from_scratch = simulated(cores, queue, Backfill(depth=depth), scheduler_type=PlansAnew)
    assert (incremental.starts, incremental.decisions) == (from_scratch.starts, from_scratch.decisions)


@pytest.mark.parametrize(
    ("cores", "queue"),
    [
        ([4], [Job(0, 3, 1, 40, 40), Job(0, 1, 1, 20, 5), Job(1, 4, 1, 10, 10)]),
        ([2, 2], [Job(0, 2, 1, 40, 40), Job(0, 1, 1, 20, 5), Job(1, 2, 2, 10, 10)]),
    ],
    ids=["one task", "a gang"],
)
def test_a_plan_is_kept_when_a_task_ends_that_it_does_not_wait_for(
    monkeypatch: pytest.MonkeyPatch, cores: list[int], queue: list[Job]
):
    planned: list[str] = []
    plan = Planner.plan

    def noted(self: Planner, workload: Workload, *arguments: Any) -> Planned:
        planned.append(workload.name)
        return plan(self, workload, *arguments)

    monkeypatch.setattr(Planner, "plan", noted)
    world = simulated(cores, queue, Backfill())
    assert (world.planned, world.starts["j2"], planned) == ({"j2": 40}, 40, ["j2"])


def test_a_planned_start_becomes_earlier_when_work_ends_early():
    queue = [Job(0, 4, 1, 40, 10), Job(1, 4, 1, 10, 10), Job(2, 1, 1, 10, 10)]
    world = simulated([4], queue, Backfill())
    assert (world.planned["j1"], world.starts["j1"]) == (40, 10)
    assert id_of("j1") not in {each.id for each in world.waiting.values()}
