"""The compiled engine decides as the NumPy path does, in every mode of picking a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mooring.model.decisions import Decision, Outcome
from mooring.model.labels import Operator, Requirement, Selector, equal_to
from mooring.model.nodes.node import Node
from mooring.model.resources.devices import Device, DeviceDemand
from mooring.model.workloads.constraints import (
    Constraints,
    Effect,
    HostPort,
    NodeTerm,
    PreferredNodes,
    PreferredTasks,
    Spread,
    Taint,
    TaskTerm,
    Toleration,
)
from mooring.model.workloads.workload import OnInsufficient, Workload, new_tasks
from mooring.scheduling import (
    Cluster,
    Profile,
    Registry,
    Scheduler,
)
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.compiled import compilation, engine, layout, placement_kernels, scorer_kernel
from mooring.scheduling.compiled.engine import CompiledEngine
from mooring.scheduling.plugins.protocols import DependsOn
from tests.scheduling.builders import NOW
from tests.selection import examples

HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
MODES = (layout.AUTOMATIC, layout.ALWAYS_REFRESH, layout.ALWAYS_REBUILD, layout.ALWAYS_SCAN)
PROFILES = ("locality", "balanced", "pack", "spread", "kubernetes", "gpu", "gpu")


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert compilation.wait(), compilation.failure()


def one_in(number: int) -> st.SearchStrategy[bool]:
    return st.sampled_from([True, *[False] * (number - 1)])


def some(strategy: st.SearchStrategy[Any], chance: int = 4, most: int = 2) -> st.SearchStrategy[tuple[Any, ...]]:
    """Mostly nothing, sometimes one or a few."""
    lists = st.lists(strategy, min_size=1, max_size=most).map(tuple)
    return st.sampled_from(range(chance)).flatmap(lambda drawn: lists if drawn == 0 else st.just(()))


selectors: st.SearchStrategy[Selector] = st.sampled_from([equal_to({"app": app}) for app in "abc"])
keys = st.sampled_from((HOST, ZONE, RACK))
task_terms = st.builds(
    TaskTerm, keys, selectors, st.sampled_from([frozenset(), frozenset(("q",)), frozenset(("default", "q"))])
)
spreads = st.builds(
    Spread,
    keys,
    st.integers(1, 2),
    selectors,
    hard=st.booleans(),
    min_domains=st.sampled_from([None, None, 2]),
    honor_node_taints=st.booleans(),
)
on_ssd = NodeTerm((Requirement("disk", Operator.IN, ("ssd",)),))
names = [f"node-{number}" for number in range(12)]
node_ids = [Node(name=name).id for name in names]

constraints = st.builds(
    Constraints,
    labels=st.sampled_from([(("app", app),) for app in "abc"]),
    project=st.sampled_from(["default", "default", "default", "q"]),
    node_selector=some(st.just(("disk", "ssd")), most=1),
    preferred_nodes=some(st.just(PreferredNodes(5, on_ssd)), most=1),
    tolerations=some(st.just(Toleration("keep", exists=True)), most=1),
    affinity=some(task_terms, chance=6),
    anti_affinity=some(task_terms, chance=5),
    preferred_tasks=some(st.builds(PreferredTasks, st.sampled_from([-5, 3, 10]), task_terms)),
    spread=some(spreads, chance=3),
    host_ports=some(st.builds(HostPort, st.sampled_from([80, 81])), chance=7),
    ports_wanted=st.sampled_from([0] * 15 + [2]),
    licence=st.sampled_from([None] * 15 + ["personal"]),
    devices=some(st.builds(DeviceDemand, st.just("gpu"), memory=st.sampled_from([0, 8 << 30])), most=1),
    designated=st.sampled_from([frozenset()] * 6 + [frozenset(names[:3])]),
    failed_on=st.sampled_from([frozenset()] * 6 + [frozenset(node_ids[1:4])]),
)


GPUS = {"gpu": (Device(0, model="A", memory=16 << 30), Device(1, model="A", memory=16 << 30, taken=500))}


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = {
        HOST: name,
        ZONE: draw(st.sampled_from(["z0", "z1", "z2", ""])),
        RACK: draw(st.sampled_from(["r0", "r1", ""])),
    }
    taints = draw(some(st.sampled_from([Taint("keep"), Taint("avoid", effect=Effect.PREFER_NO_SCHEDULE)]), chance=5))
    return Node(
        name=name,
        pool=draw(st.sampled_from(["default"] * 7 + ["other"])),
        labels={key: value for key, value in labels.items() if value} | draw(st.sampled_from([{}, {"disk": "ssd"}])),
        taints=taints,
        schedulable=not draw(one_in(12)),
        region=draw(st.sampled_from([None, "us-east", "eu-west"])),
        licence=draw(st.sampled_from([None, "personal"])),
        max_tasks=draw(st.sampled_from([None, None, 2, 6])),
        cpu_percent=draw(st.sampled_from([0.0, 30.0, 70.0])),
        allocatable={
            "cpu": draw(st.sampled_from([4000, 8000, 8000, 16000])),
            "memory": draw(st.sampled_from([8, 16])) << 30,
            **(gpu := draw(st.sampled_from([{}, {"gpu": 2000}, {"gpu": 4000}]))),
        },
        devices=draw(st.sampled_from([{}, GPUS])) if gpu else {},
    )


@dataclass
class Story:
    """A cluster, and passes with what happens to the nodes after each."""

    nodes: list[Node]
    profile: str
    passes: list[list[Workload]]
    events: list[list[tuple[str, Node]]]
    running: list[tuple[Constraints, int]]
    """Tasks on nodes that are set again."""


@st.composite
def stories(draw: st.DrawFn) -> Story:
    present = [draw(nodes(name)) for name in names[: draw(st.sampled_from([1, 3, 6, 10]))]]
    late = draw(nodes("node-0-late"))
    shapes = draw(
        st.lists(
            st.tuples(
                st.just(Constraints()) | constraints,
                st.sampled_from(
                    [
                        {"cpu": 100},
                        {"cpu": 500, "memory": 1 << 30},
                        {"cpu": 3000, "memory": 3 << 30},
                        {"gpu": 1000},
                        {"cpu": 100, "gpu": 300},
                        {"gpu": 700},
                        {"gpu": 1500},
                    ]
                ),
            ),
            min_size=1,
            max_size=5,
        )
    )
    passes = []
    for number in range(2):
        count = draw(st.integers(1, 14))
        passes.append([draw(workloads(f"work-{number}-{index}", shapes)) for index in range(count)])
    kinds = st.sampled_from(["remove", "free", "load"])
    events = [[(draw(kinds), node) for node in present if draw(one_in(3))] + [("add", late)] for _ in passes]
    running = [(of_it, 1) for of_it, _ in shapes if draw(one_in(2))]
    return Story(present, draw(st.sampled_from(PROFILES)), passes, events, running)


@st.composite
def workloads(draw: st.DrawFn, name: str, shapes: Sequence[tuple[Constraints, dict[str, int]]]) -> Workload:
    of_it, request = draw(st.sampled_from(shapes))
    return Workload(
        name=name,
        request=request,
        constraints=of_it,
        tasks=new_tasks(name, draw(st.sampled_from([1, 1, 1, 2, 5]))),
        gang=draw(one_in(3)),
        min_tasks=draw(st.sampled_from([None, None, None, 2, 4])),
        single_node=draw(one_in(6)),
        pack=draw(st.sampled_from([(), (), (), (ZONE,), (ZONE, RACK)])),
        max_per_node=draw(st.sampled_from([None, None, None, 1, 2])),
        spread=draw(one_in(5)),
        occupied=draw(st.sampled_from([{}, {}, {node_ids[0]: 1, node_ids[2]: 2}])),
        region=draw(st.sampled_from([None, "us-east"])),
        on_insufficient=draw(st.sampled_from([OnInsufficient.WAIT] * 5 + [OnInsufficient.FAIL])),
    )


def pair(story: Story, mode: int) -> tuple[Scheduler, Scheduler]:
    """The NumPy path, and the engine in one mode of picking."""
    profile = Registry().profile(story.profile)
    plain = Scheduler(story.nodes, profile=profile, compiled=False)
    quick = Scheduler(story.nodes, profile=profile, compiled=True)
    quick._placer._engine = CompiledEngine(quick.cluster, quick.profile, mode=mode)
    return plain, quick


def happen(
    cluster: Cluster, events: Sequence[tuple[str, Node]], running: Sequence[tuple[Constraints, int]] = ()
) -> None:
    for kind, node in events:
        if kind == "remove":
            cluster.remove(node.id)
        elif kind == "load":
            cluster.set_load(node.id, 90.0, 10.0)
        else:
            cluster.upsert(node)
            cluster.set_tasks(node.id, running, leaving=running[:1])


def answers(decisions: Sequence[Decision]) -> list[tuple[object, ...]]:
    return [
        (
            decision.workload.name,
            decision.outcome,
            decision.placements,
            decision.feasible_nodes,
            decision.reason,
        )
        for decision in decisions
    ]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(stories(), st.sampled_from(MODES))
def test_the_engine_decides_as_the_numpy_path(story: Story, mode: int) -> None:
    plain, quick = pair(story, mode)
    for scheduler in (plain, quick):
        happen(scheduler.cluster, [("tell", node) for node in story.nodes[:2]], story.running)
    for waiting, events in zip(story.passes, story.events, strict=True):
        assert answers(quick.run(waiting, NOW).decisions) == answers(plain.run(waiting, NOW).decisions)
        for column in ("taken", "tasks", "uncounted"):
            assert np.array_equal(getattr(quick.cluster, column), getattr(plain.cluster, column)), column
        for slot, devices in quick.cluster.devices.columns.items():
            assert np.array_equal(devices.free, plain.cluster.devices.columns[slot].free)
        happen(plain.cluster, events, story.running)
        happen(quick.cluster, events, story.running)


def machines(count: int, **fields: Any) -> list[Node]:
    return [
        Node(name=f"node-{number:03}", labels={HOST: f"node-{number:03}", ZONE: f"zone-{number % 3}"}, **fields)
        for number in range(count)
    ]


def work(name: str, tasks: int = 1, cpu: int = 100, **fields: Any) -> Workload:
    return Workload(name=name, request={"cpu": cpu}, tasks=new_tasks(name, tasks), **fields)


def both(nodes: Sequence[Node], *waiting: Workload, mode: int = layout.AUTOMATIC) -> tuple[Decision, ...]:
    """Return the engine's decisions after comparing them with those of the NumPy path."""
    plain, quick = pair(Story(list(nodes), "locality", [], [], []), mode)
    decisions = quick.run(waiting, NOW).decisions
    assert answers(decisions) == answers(plain.run(waiting, NOW).decisions)
    return decisions


def test_a_gang_that_does_not_fit_changes_nothing() -> None:
    nodes = machines(4, allocatable={"cpu": 1000})
    gang, after = work("a-gang", 9, cpu=500, gang=True), work("b-after", 8, cpu=500, gang=True)
    decisions = {decision.workload.name: decision for decision in both(nodes, gang, after)}
    assert decisions["a-gang"].outcome is Outcome.WAITING
    assert decisions["b-after"].outcome is Outcome.PLACED


@pytest.mark.parametrize("mode", MODES)
def test_so_many_nodes_that_their_trees_have_several_levels(mode: int) -> None:
    nodes = [replace(node, cpu_percent=number * 7 % 100) for number, node in enumerate(machines(210))]
    kinds = [
        Constraints(),
        Constraints(labels=(("app", "a"),), spread=(Spread(ZONE, 1, equal_to({"app": "a"})),)),
        Constraints(labels=(("app", "a"),), anti_affinity=(TaskTerm(HOST, equal_to({"app": "a"})),)),
        Constraints(preferred_tasks=(PreferredTasks(3, TaskTerm(HOST, equal_to({"app": "a"}))),)),
    ]
    waiting = [
        work(f"work-{number}", number % 3 + 1, 100 + number % 2, constraints=kinds[number % 4]) for number in range(40)
    ]
    nodes = [replace(node, allocatable={"cpu": 600}) for node in nodes]
    assert sum(len(decision.placements) for decision in both(nodes, *waiting, mode=mode)) == 79


def test_a_failed_shape_is_tried_again_once_capacity_is_released() -> None:
    full = machines(3, allocatable={"cpu": 1000}, used={"cpu": 900})
    scheduler = Scheduler(full, compiled=True)
    shapes = [work(f"work-{number}", cpu=200 + number) for number in range(40)]
    assert scheduler.run(shapes, NOW).placements == 0
    scheduler.cluster.upsert(replace(full[0], used={}))
    assert scheduler.run(shapes[:3], NOW).placements == 3


def test_a_spread_over_hosts_holds_above_the_counts_in_the_histogram() -> None:
    apart = Constraints(labels=(("app", "a"),), spread=(Spread(HOST, 1, equal_to({"app": "a"})),))
    decisions = both(machines(2, allocatable={"cpu": 10**9}), work("many", 2300, cpu=1, constraints=apart))
    assert len(decisions[0].placements) == 2300


def test_more_slots_than_the_columns_had() -> None:
    slots = {f"slot-{number}": 10 for number in range(9)}
    waiting = [Workload(name=f"work-{slot}", request={"cpu": 1, slot: 1}) for slot in (*slots, "slot-99")]
    decisions = both(machines(3, allocatable={"cpu": 1000, **slots}), *waiting)
    assert sum(decision.outcome is Outcome.PLACED for decision in decisions) == 9


def test_more_shapes_than_the_engine_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_MAX_SHAPES", 3)
    plain, quick = pair(Story(machines(5, allocatable={"cpu": 4000}), "locality", [], [], []), layout.AUTOMATIC)
    for number in range(6):
        waiting = [work(f"work-{number}-{index}", cpu=10 + number + index) for index in range(4)]
        assert answers(quick.run(waiting, NOW).decisions) == answers(plain.run(waiting, NOW).decisions)


def test_rows_are_added_and_reused() -> None:
    plain, quick = pair(Story(machines(60, allocatable={"cpu": 4000}), "locality", [], [], []), layout.AUTOMATIC)
    for number in range(4):
        waiting = [work(f"work-{number}-{index}", 3, cpu=100) for index in range(20)]
        assert answers(quick.run(waiting, NOW).decisions) == answers(plain.run(waiting, NOW).decisions)
        for scheduler in (plain, quick):
            for node in machines(10):
                scheduler.cluster.remove(node.id)
            for index in range(30):
                scheduler.cluster.upsert(Node(name=f"new-{number}-{index}", allocatable={"cpu": 4000}))


@pytest.mark.parametrize("mode", MODES)
def test_nodes_on_the_highest_rows_leave_and_return(mode: int) -> None:
    nodes = machines(20, allocatable={"cpu": 4000})
    plain, quick = pair(Story(nodes, "locality", [], [], []), mode)
    for number in range(4):
        waiting = [work(f"work-{number}-{index}", 3, cpu=100) for index in range(8)]
        assert answers(quick.run(waiting, NOW).decisions) == answers(plain.run(waiting, NOW).decisions)
        for scheduler in (plain, quick):
            for node in nodes[12:]:
                if number % 2:
                    scheduler.cluster.upsert(node)
                else:
                    scheduler.cluster.remove(node.id)


def test_tasks_in_backoff_wait_while_others_of_the_batch_are_placed() -> None:
    late = replace(
        work("b-late", 2),
        tasks=tuple(replace(task, not_before=NOW.replace(year=2030)) for task in new_tasks("b-late", 2)),
    )
    decisions = both(machines(2, allocatable={"cpu": 1000}), work("a-now"), late, work("c-now"))
    assert sorted(decision.outcome.value for decision in decisions) == ["placed", "placed", "waiting"]


class _Evens:
    """Prefers rows by a measure of its own, which placements change."""

    name = "evens"
    depends_on: DependsOn = "row"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        scores: Scores = (cluster.tasks[rows] % 2) * 1000
        return scores


def test_a_profile_with_a_plugin_without_a_kernel_is_left_to_the_numpy_path() -> None:
    given = Registry().profile()
    profile = Profile("mine", given.filters, (*given.scorers, (_Evens(), 50)))
    nodes = machines(6, allocatable={"cpu": 4000})
    waiting = [work(f"work-{number}", 3) for number in range(5)]
    plain = Scheduler(nodes, profile=profile, compiled=False).run(waiting, NOW)
    assert answers(Scheduler(nodes, profile=profile, compiled=True).run(waiting, NOW).decisions) == answers(
        plain.decisions
    )


class _MoreCapacity:
    """Prefers rows with free capacity for tasks: the same formula for arrays and for the kernels."""

    name = "more_room"
    depends_on: DependsOn = "row"
    kernel = scorer_kernel.row_score(lambda free, inverse, request, row: min(free[row, 0] - request[0], 9) * 1000)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        left = cluster.allocatable[0, rows] - cluster.taken[0, rows] - dict(shape.request).get("cpu", 0)
        scores: Scores = np.minimum(left, 9) * 1000
        return scores


@pytest.mark.parametrize("mode", MODES)
def test_a_plugin_with_a_kernel_of_its_own_is_placed_by_the_kernels(mode: int) -> None:
    given = Registry().profile()
    profile = Profile("mine", given.filters, (*given.scorers, (_MoreCapacity(), 500)))
    nodes = [Node(name=f"node-{number}", allocatable={"cpu": 5 + number % 7}) for number in range(20)]
    waiting = [work(f"work-{number}", 3, cpu=1 + number % 2) for number in range(14)]
    plain = Scheduler(nodes, profile=profile, compiled=False).run(waiting, NOW)
    quick = Scheduler(nodes, profile=profile, compiled=True)
    quick._placer._engine = CompiledEngine(quick.cluster, quick.profile, mode=mode)
    assert answers(quick.run(waiting, NOW).decisions) == answers(plain.decisions)
    assert sum(quick._placer._engine.statistics) > 0


class _PerApplication:
    """A static plugin that looks at the labels of the task: each application has a node of its own choice."""

    name = "per_application"
    depends_on: DependsOn = "static"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        favourite = dict(shape.constraints.labels)["app"]
        return np.array([1000 * cluster.node(row).name.endswith(favourite) for row in rows], dtype=np.int64)


def test_a_static_plugin_may_read_everything_in_a_shape() -> None:
    profile = Profile("mine", Registry().profile().filters, ((_PerApplication(), 1),))
    waiting = [work(f"work-{app}", constraints=Constraints(labels=(("app", app),))) for app in "210"]
    quick = Scheduler(machines(3, allocatable={"cpu": 4000}), profile=profile, compiled=True)
    placed = {decision.workload.name: decision.placements[0] for decision in quick.run(waiting, NOW).decisions}
    assert quick._placer._engine is not None
    assert {name: placement.node_name[-1] for name, placement in placed.items()} == {
        "work-0": "0",
        "work-1": "1",
        "work-2": "2",
    }


def test_the_numpy_path_decides_until_the_kernels_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "ready", lambda: False)
    scheduler = Scheduler(machines(2, allocatable={"cpu": 1000}))
    assert scheduler.decide(work("now"), NOW).outcome is Outcome.PLACED
    assert scheduler._placer._engine is None


def test_no_pass_compiles() -> None:
    both(machines(3, allocatable={"cpu": 1000}), work("some", 2, spread=True), work("gang", 2, gang=True))
    assert len(placement_kernels.place.signatures) == 1  # type: ignore[attr-defined]
