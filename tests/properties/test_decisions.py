"""The scheduler's decisions equal those of the slow placer, with all constraints mixed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.nodes.node import Node
from mooring.scheduling import Cluster, Pass, Registry, Scheduler
from mooring.scheduling.plugins.profiles import PRESETS
from tests.properties.kubernetes import KubernetesPlacer
from tests.properties.placer import Answer, Place, Placer
from tests.properties.worlds import PROJECT_LABELS, START, World, world
from tests.selection import examples

PROFILES = ("locality", "balanced", "pack", "spread", "kubernetes", "fragmentation")
FRAGMENTATION = {**PRESETS["gpu"], "fragmentation": PRESETS["gpu"]["expected_fill"]}
del FRAGMENTATION["expected_fill"]
"""The profile `gpu` with another scorer for devices; `test_expected_fill` covers its own."""
SEEDS = st.integers(0, 2**32 - 1)


def cluster_of(made: World) -> Cluster:
    cluster = Cluster(made.nodes)
    for project, labels in PROJECT_LABELS.items():
        cluster.label_project(project, labels)
    for node_id, tasks in made.running.items():
        cluster.set_tasks(node_id, [(task, 1) for task in tasks])
    for pool in made.fragmented:
        cluster.allow_fragmentation(pool)
    for pool, typical in made.typical.items():
        cluster.set_typical_requests(pool, typical)
    return cluster


def slow_answers(made: World, preset: str) -> list[Answer]:
    def place(node: Node) -> Place:
        return Place(node, list(made.running.get(node.id, ())))

    places = [place(node) for node in made.nodes]
    if preset == "kubernetes":
        return KubernetesPlacer(places, PROJECT_LABELS, fragmented=made.fragmented).decide_all(made.queue)
    weights = FRAGMENTATION if preset == "fragmentation" else dict(PRESETS[preset])
    placer = Placer(places, PROJECT_LABELS, weights, fragmented=made.fragmented, typical=made.typical)
    return placer.decide_all(made.queue)


def answers(result: Pass) -> list[Answer]:
    return [
        Answer(
            decision.workload.name,
            decision.outcome,
            tuple((place.node_name, place.score, place.ports, place.devices) for place in decision.placements),
        )
        for decision in result.decisions
    ]


def check(seed: int, preset: str, *, compiled: bool, largest: int = 8) -> None:
    made = world(seed, largest=largest)
    profile = (
        Registry().profile("gpu", weights=FRAGMENTATION) if preset == "fragmentation" else Registry().profile(preset)
    )
    scheduler = Scheduler(cluster=cluster_of(made), profile=profile, compiled=compiled)
    assert answers(scheduler.run(made.queue, START)) == slow_answers(made, preset)


@pytest.mark.parametrize("preset", PROFILES)
@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
def test_decisions_equal_those_of_the_reference_placer(preset: str, compiled: bool) -> None:
    @settings(max_examples=examples(300), deadline=None)
    @given(SEEDS)
    def decides_alike(seed: int) -> None:
        check(seed, preset, compiled=compiled)

    decides_alike()


@pytest.mark.soak
@pytest.mark.parametrize("preset", PROFILES)
@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
def test_decisions_equal_those_of_the_reference_placer_on_many_larger_clusters(preset: str, compiled: bool) -> None:
    @settings(max_examples=5_000, deadline=None)
    @given(SEEDS)
    def decides_alike(seed: int) -> None:
        check(seed, preset, compiled=compiled, largest=20)

    decides_alike()
