"""The kernels of the expected fill decide exactly as its definition, over several batches on the same cluster."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.nodes.node import Node
from mooring.model.resources.devices import WHOLE, Device, DeviceDemand
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Workload, new_tasks
from mooring.scheduling import Cluster, Registry, Scheduler
from mooring.scheduling.cluster.typical_requests import TypicalRequest
from tests.properties.test_decisions import answers, cluster_of
from tests.properties.worlds import START, world
from tests.selection import examples

SEEDS = st.integers(0, 2**32 - 1)
MODELS = ("A", "B", "C")
AMOUNTS = (0, 0, 150, 300, 500, 700, 1000, 1000, 2000, 4000)


def node(random: Random, number: int) -> Node:
    count, model = random.choice((0, 1, 2, 4, 8)), random.choice(MODELS)
    devices = tuple(Device(index, model=model, taken=random.choice((0, 0, 300, 1000))) for index in range(count))
    return Node(
        name=f"node-{number:02}",
        pool=random.choice(("default", "default", "other")),
        schedulable=random.random() > 0.1,
        allocatable={"cpu": random.choice((4_000, 16_250, 64_000)), "memory": 1 << 36, "gpu": WHOLE * count},
        devices={"gpu": devices},
    )


def workload(random: Random, number: int) -> Workload:
    request = {"cpu": random.choice((100, 900, 2_000, 7_750)), "memory": 1 << 20, "gpu": random.choice(AMOUNTS)}
    models = frozenset(random.sample(MODELS, random.choice((1, 2)))) if random.random() < 0.3 else frozenset()
    wanted = (DeviceDemand("gpu", models),) if models and request["gpu"] else ()
    return Workload(
        name=f"work-{number}",
        pool=random.choice(("default", "default", "other")),
        request={slot: amount for slot, amount in request.items() if amount},
        constraints=Constraints(devices=wanted),
        tasks=new_tasks(f"work-{number}", random.choice((1, 1, 1, 2, 3))),
    )


def demand(random: Random) -> list[TypicalRequest]:
    return [
        TypicalRequest(
            {"cpu": random.choice((0, 500, 3_000, 8_000)), "gpu": random.choice(AMOUNTS)},
            random.randint(1, 9),
            frozenset(random.sample(MODELS, 1)) if random.random() < 0.3 else frozenset(),
        )
        for _ in range(random.randint(1, 6))
    ]


def history(seed: int, *, compiled: bool) -> list[object]:
    """Place batches of workloads, with changes of the demand and of nodes in between, and return all decisions."""
    random = Random(seed)
    nodes = [node(random, number) for number in range(random.randint(1, 8))]
    cluster = Cluster(nodes)
    scheduler = Scheduler(cluster=cluster, profile=Registry().profile("gpu"), compiled=compiled)
    decided: list[object] = []
    for batch in range(3):
        if random.random() < 0.6:
            cluster.set_typical_requests(random.choice(("default", "other")), demand(random))
        if batch and random.random() < 0.3:
            cluster.upsert(node(random, 20 + batch))
        decided.append(answers(scheduler.run([workload(random, at) for at in range(random.randint(1, 45))], START)))
    return decided


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS)
def test_the_kernels_decide_as_the_definition(seed: int) -> None:
    assert history(seed, compiled=True) == history(seed, compiled=False)


@settings(max_examples=examples(150), deadline=None)
@given(SEEDS)
def test_the_kernels_decide_as_the_definition_with_all_constraints_mixed(seed: int) -> None:
    def decided(compiled: bool) -> object:
        made = world(seed)
        scheduler = Scheduler(cluster=cluster_of(made), profile=Registry().profile("gpu"), compiled=compiled)
        return answers(scheduler.run(made.queue, START))

    assert decided(True) == decided(False)


@pytest.mark.soak
@settings(max_examples=3_000, deadline=None)
@given(SEEDS)
def test_the_kernels_decide_as_the_definition_over_many_histories(seed: int) -> None:
    assert history(seed, compiled=True) == history(seed, compiled=False)
