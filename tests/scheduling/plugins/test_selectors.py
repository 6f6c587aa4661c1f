"""Selectors: the named strategies with worked numbers, and the tie-breakers."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from mooring.model.decisions import SCORE_ONE
from mooring.model.errors import InvalidInput
from mooring.model.labels import equal_to
from mooring.model.nodes.node import Node
from mooring.model.resources.slots import parse_amounts
from mooring.model.workloads.constraints import Constraints, PreferredTasks, TaskTerm
from mooring.model.workloads.workload import Workload, new_tasks
from mooring.scheduling import Cluster, Registry, Scheduler
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.plugins.protocols import Candidates
from mooring.scheduling.plugins.scorers.lab import LARGEST, LabScorer, lab_value
from mooring.scheduling.plugins.selectors import HighestScore, RoundRobin
from mooring.scheduling.plugins.weights import Weight, whole_weights


def agent(name: str, cpu: int, memory: str, gpu: int = 0, **more: object) -> Node:
    slots: dict[str, str | int] = {"cpu": cpu, "mem": memory_bytes(memory)}
    if gpu:
        slots["cuda.device"] = gpu
    return Node(name=name, allocatable=parse_amounts(slots), **more)  # type: ignore[arg-type]


def memory_bytes(text: str) -> int:
    return parse_amounts({"memory": text})["memory"]


# The amounts are those that are free: nothing is taken.
AGENTS = [agent("a", 6, "32Gi"), agent("b", 4, "64Gi"), agent("c", 2, "8Gi", gpu=4)]
ASKS = {"cpu": 2000, "mem": 4 << 30}


def placed(nodes: list[Node], profile: str, request: dict[str, int], tasks: int = 1, **more: object) -> list[str]:
    work = Workload(name="work", request=request, tasks=new_tasks("work", tasks))
    scheduler = Scheduler(nodes, profile=Registry().profile(profile), **more)  # type: ignore[arg-type]
    return [placement.node_name for placement in scheduler.decide(work).placements]


@pytest.mark.parametrize("request_", [ASKS, {**ASKS, "cuda.device": 0}], ids=["absent", "named as 0"])
def test_concentrated_takes_the_fullest_node_and_avoids_gpus(request_):
    # (unused, cpu left, memory left): a (0, 6, 32), b (0, 4, 64), c (1, 2, 8); the smallest is b.
    # A slot named with amount 0 that a node lacks counts as endless for all of a and b alike.
    assert placed(AGENTS, "concentrated", request_) == ["b"]


@pytest.mark.parametrize("request_", [ASKS, {**ASKS, "cuda.device": 0}], ids=["absent", "named as 0"])
@pytest.mark.parametrize("strategy", ["dispersed", "legacy"])
def test_dispersed_takes_the_emptiest_node_and_avoids_gpus(strategy, request_):
    # (-unused, cpu left, memory left): a (0, 6, 32) is the largest.
    assert placed(AGENTS, strategy, request_) == ["a"]


def test_both_selectors_rank_a_node_without_a_listed_slot_last():
    nodes = [agent("has", 4, "8Gi", gpu=1), Node(name="lacks", allocatable=parse_amounts({"cpu": 4}))]
    assert placed(nodes, "concentrated", {"cpu": 1000, "cuda.device": 0}) == ["lacks"], "a free gpu weighs more"
    nodes = [
        Node(name="has", allocatable=parse_amounts({"cpu": 4, "x": 2}), used={"x": 2}),
        Node(name="a-lacks", allocatable=parse_amounts({"cpu": 4})),
    ]
    for strategy in ("concentrated", "dispersed"):
        assert placed(nodes, strategy, {"cpu": 1000, "x": 0}) == ["has"]


def test_round_robin_continues_from_a_stored_position_past_a_full_node():
    full = agent("b", 4, "64Gi", used={"cpu": 4000})
    selector = RoundRobin(position=1)
    work = Workload(name="work", request=ASKS)
    nodes = [AGENTS[0], full, agent("c", 2, "8Gi")]
    decision = Scheduler(nodes, selector=selector).decide(work)
    assert decision.placements[0].node_name == "c"
    assert selector.position == 0


def test_round_robin_cycles_through_the_nodes():
    nodes = [agent(name, 8, "32Gi") for name in "abc"]
    assert placed(nodes, "round_robin", ASKS, tasks=4) == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("cpu", "memory", "sessions", "expected"),
    [
        (500_000, 250_000, 3, 405_000),  # (0.5 + 0.25) / 2 + 0.03
        (800_000, 700_000, 9, 800_000),  # 0.75 + min(0.05, 0.09)
        (0, 0, 0, 0),
    ],
)
def test_the_lab_score_has_the_worked_values(cpu, memory, sessions, expected):
    value = lab_value(np.array([cpu]), np.array([memory]), np.array([sessions]))
    assert int(value[0]) == expected


def test_the_lab_profile_takes_the_fullest_worker():
    def worker(name: str, cpu: int, memory: int, sessions: int) -> Node:
        return Node(
            name=name,
            allocatable={"cpu": 10_000, "memory": 1000},
            used={"cpu": cpu, "memory": memory},
            tasks=sessions,
        )

    workers = [worker("empty", 0, 0, 0), worker("fuller", 8000, 700, 9), worker("half", 5000, 250, 3)]
    cluster = Cluster(workers)
    shape = shape_of(Workload(name="lab", request={"cpu": 1000}), cluster)
    scores = LabScorer().score(shape, cluster, cluster.rows)
    by_name = {cluster.node(row).name: int(scores[at]) for at, row in enumerate(cluster.rows.tolist())}
    expected = {"empty": 0, "half": 405_000, "fuller": 800_000}
    assert by_name == {name: value * SCORE_ONE // LARGEST for name, value in expected.items()}
    assert placed(workers, "lab", {"cpu": 1000}) == ["fuller"]


def test_weights_are_priority_times_coefficient():
    # (1 x 1) : (10 x 3) : (1 x 0.5)
    high, low = Weight(10, Fraction(3)), Weight(1, Fraction(1, 2))
    assert whole_weights({"resources": Weight(), "load": high, "locality": low}) == {
        "resources": 2,
        "load": 60,
        "locality": 1,
    }


EQUALS = [Node(name=name, allocatable={"cpu": 8000, "memory": 1 << 33}) for name in "abcd"]


def choices(selector: HighestScore, count: int, nodes: list[Node] | None = None) -> list[str]:
    """Return the nodes chosen for `count` tasks, each on the same empty nodes."""
    made = []
    for number in range(count):
        scheduler = Scheduler(EQUALS if nodes is None else nodes, selector=selector)
        decision = scheduler.decide(Workload(name=f"work-{number}", request={"cpu": 1000}))
        made.append(decision.placements[0].node_name)
    return made


def test_among_equals_the_lowest_name_wins():
    assert choices(HighestScore(), 2) == ["a", "a"]


def test_random_choices_come_from_the_seed():
    first = choices(HighestScore("random", seed=7), 40)
    assert first == choices(HighestScore("random", seed=7), 40)
    assert first != choices(HighestScore("random", seed=8), 40)
    assert set(first) == set("abcd")


def test_round_robin_among_equals_continues_after_a_restart():
    selector = HighestScore("round_robin")
    assert choices(selector, 3) == ["a", "b", "c"]
    assert choices(HighestScore("round_robin", last=selector.last), 3) == ["d", "a", "b"]


def test_the_least_loaded_of_the_best_few_is_chosen_by_measured_load():
    nodes = [
        Node(name="a", allocatable={"cpu": 8000}, cpu_percent=50),
        Node(name="b", allocatable={"cpu": 8000}, cpu_percent=10),
        Node(name="c", allocatable={"cpu": 8000}, cpu_percent=30),
    ]
    assert choices(HighestScore("least_loaded", top=3), 1, nodes) == ["b"]


def test_weighted_random_is_proportional_to_the_score_among_the_best():
    cluster = Cluster(EQUALS)
    work = Workload(name="work", request={"cpu": 1000})
    rows = cluster.rows[np.argsort(-cluster.precedence[cluster.rows])]
    scores = np.array([600_000, 300_000, 100_000, 0])
    candidates = Candidates(work, shape_of(work, cluster), cluster, rows, scores, np.zeros(cluster.capacity, np.int64))
    selector = HighestScore("weighted_random", top=3, seed=1)
    counts = Counter(selector.choose(candidates) for _ in range(6000))
    assert counts[3] == 0
    for position, share in enumerate((0.6, 0.3, 0.1)):
        assert abs(counts[position] / 6000 - share) < 0.03


def test_affinity_based_prefers_matching_tasks_then_tasks_of_the_workload():
    cluster = Cluster(EQUALS)
    web = Constraints(labels=(("app", "web"),))
    cluster.set_tasks(EQUALS[1].id, [(web, 1)])
    cluster.set_tasks(EQUALS[2].id, [(web, 3)])
    wish = PreferredTasks(5, TaskTerm("metadata.name", equal_to({"app": "web"})))
    scorers = [pair for pair in Registry().profile().scorers if pair[0].name == "resources"]
    scheduler = Scheduler(cluster=cluster, scorers=scorers, selector=HighestScore("affinity_based"))
    near = Workload(name="near", request={"cpu": 1000}, constraints=Constraints(preferred_tasks=(wish,)))
    assert scheduler.decide(near).placements[0].node_name == "c"
    again = Workload(name="again", request={"cpu": 1000}, occupied={EQUALS[3].id: 2})
    assert scheduler.decide(again).placements[0].node_name == "d"


def test_an_unknown_tie_breaker_is_rejected_with_the_known_ones():
    with pytest.raises(InvalidInput, match=r"known are name, random, least_loaded"):
        HighestScore("fastest")
