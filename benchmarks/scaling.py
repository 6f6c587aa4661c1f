"""Scale-up for 20,000 pending tasks from 10 templates: the time to decide, and the cost relative to its lower bound.

No task requests more than a quarter of the template that it was made for. The time includes the placement of every task
on the requested nodes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter, process_time

import numpy as np

from benchmarks.configuration import bound
from mooring.model.nodes.node_templates import NodeTemplate, ScaleUp, Stock
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Cluster, Registry
from mooring.scheduling.autoscaling.column_generation import Covering
from mooring.scheduling.autoscaling.node_requests import scale_up
from mooring.scheduling.solver import Whole

TASKS = 20_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SLOTS = ("cpu", "memory", "gpu")
STEPS = (500, 2**30, 1000)
"""Amounts are multiples of half a core, a gibibyte and a device."""
TEMPLATES = np.array(
    [
        [16, 16, 0],
        [16, 32, 0],
        [32, 32, 0],
        [32, 64, 0],
        [64, 128, 0],
        [128, 128, 0],
        [128, 256, 0],
        [128, 512, 0],
        [96, 96, 4],
        [128, 384, 8],
    ]
)
COSTS = np.array([100, 120, 190, 235, 460, 800, 930, 1500, 1900, 4200])
WORKLOADS = {
    "few_kinds": (8, 0.0, 1.0),
    "many_kinds": (50, 0.2, 1.2),
    "gpu": (30, 0.6, 1.5),
    "most_kinds": (150, 0.2, 3.0),
}
"""Kinds of tasks, the part of them that is made for GPU nodes, and how evenly tasks are spread over the kinds."""
SEEDS = (1, 2)


def run() -> dict[str, float]:
    scale_up(Cluster(), Registry().profile(), [], [], now=NOW, compiled=True)
    figures: dict[str, float] = {"tasks": TASKS, "templates": len(TEMPLATES)}
    for name, (kinds, gpu, evenness) in WORKLOADS.items():
        for seed in SEEDS:
            requests, demand = _case(seed, kinds, gpu, evenness)
            waiting = _workloads(requests, demand)
            stocks = [Stock(template) for template in _templates()]
            started, used = perf_counter(), process_time()
            answer = scale_up(Cluster(), Registry().profile(), waiting, stocks, now=NOW, compiled=True)
            seconds, processor = perf_counter() - started, process_time() - used
            assert not answer.unmet
            assert _promised(answer) == TASKS
            allowed = np.all(TEMPLATES[None] >= requests[:, None], axis=2)
            least = bound(Covering(requests, TEMPLATES, allowed, COSTS), demand)
            figures |= {
                f"{name}_{seed}_kinds": len(requests),
                f"{name}_{seed}_decision_ms": seconds * 1e3,
                f"{name}_{seed}_processor_ms": processor * 1e3,
                f"{name}_{seed}_nodes": sum(len(addition.nodes) for addition in answer.additions),
                f"{name}_{seed}_cost": answer.cost,
                f"{name}_{seed}_bound": least,
                f"{name}_{seed}_percent_above_bound": (answer.cost / least - 1) * 100,
            }
    return figures


def _case(seed: int, kinds: int, gpu: float, evenness: float) -> tuple[Whole, Whole]:
    """Return requests in grid steps, and the number of tasks of each."""
    random = np.random.default_rng(seed)
    with_gpu = TEMPLATES[:, 2] > 0
    made_for = np.where(
        random.random(kinds) < gpu,
        random.choice(np.flatnonzero(with_gpu), kinds),
        random.choice(np.flatnonzero(~with_gpu), kinds),
    )
    quarter = TEMPLATES[made_for] // 4
    requests = np.unique(random.integers(np.minimum(quarter, 1), quarter + 1), axis=0)
    weights = random.dirichlet(np.full(len(requests), evenness))
    demand = 1 + random.multinomial(TASKS - len(requests), weights)
    return requests, demand


def _templates() -> list[NodeTemplate]:
    return [
        NodeTemplate(f"template-{number}", allocatable=_amounts(offered), cost=int(COSTS[number]))
        for number, offered in enumerate(TEMPLATES)
    ]


def _workloads(requests: Whole, demand: Whole) -> list[Workload]:
    kinds = np.random.default_rng(0).permutation(np.repeat(np.arange(len(demand)), demand))
    asked = [_amounts(request) for request in requests]
    return [Workload(name=f"work-{number}", request=asked[kind]) for number, kind in enumerate(kinds.tolist())]


def _amounts(steps: Whole) -> dict[str, int]:
    return {slot: int(steps[at]) * STEPS[at] for at, slot in enumerate(SLOTS) if steps[at]}


def _promised(answer: ScaleUp) -> int:
    return sum(sum(tasks.values()) for addition in answer.additions for tasks in addition.nodes)
