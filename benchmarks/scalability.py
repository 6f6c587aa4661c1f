"""The cost of a decision from 1,000 to 50,000 nodes and from 1,000 to 1,000,000 tasks; takes minutes.

Figures are decisions per second of processor time, as in `placement`. `basic_scan` looks at every node for every task
and keeps nothing between tasks, which shows the benefit of known shapes. `scripts/plot_scalability.py` draws the
figures.
"""

from __future__ import annotations

import resource
from pathlib import Path

from benchmarks.placement import (
    NOW,
    Work,
    basic_forms,
    deployment,
    diverse_forms,
    make_nodes,
    measure,
    mixed_forms,
    queue,
    spread_forms,
    workload,
)
from mooring.scheduling import Scheduler
from mooring.scheduling.compiled import compilation, layout

NODES = (1_000, 5_000, 10_000, 50_000)
TASKS = (1_000, 10_000, 100_000, 1_000_000)
NODES_FOR_TASKS = 10_000


def run() -> dict[str, float]:
    """Decisions per second by size, and the memory of 50,000 nodes with 500,000 placed tasks."""
    if not compilation.wait():
        raise RuntimeError(f"the kernels cannot be compiled here: {compilation.failure()}")
    # First, while the process is small: the figure is what the cluster and its tasks take, not what others left.
    figures = {"resident_mib_50000_nodes_500000_tasks": resident_mib(50_000, 500_000)}
    for nodes in NODES:
        for work in (
            Work("one_deployment", [deployment(20_000)]),
            Work("basic", queue(basic_forms(20), 10_000)),
            Work("spread", queue(spread_forms(), 10_000)),
            Work("mixed", queue(mixed_forms(), 10_000)),
            Work("diverse", queue(diverse_forms(2000), 2000, shuffle=False)),
        ):
            figures[f"{work.name}_{nodes}_nodes"] = measure(work, nodes, rounds=3, compare=False)[work.name]
        scan = Work("basic", queue(basic_forms(20), 1000))
        rate = measure(scan, nodes, rounds=3, compare=False, mode=layout.ALWAYS_SCAN)["basic"]
        figures[f"basic_scan_{nodes}_nodes"] = rate
    for tasks in TASKS:
        work = Work("basic", queue(basic_forms(20), tasks))
        rounds = 1 if tasks == TASKS[-1] else 3
        figures[f"basic_{tasks}_tasks"] = measure(work, NODES_FOR_TASKS, rounds=rounds, compare=False)["basic"]
    return figures


def resident_mib(nodes: int, tasks: int) -> float:
    """Return the memory in use after placing this many tasks."""
    scheduler = Scheduler(make_nodes(nodes), compiled=True)
    forms = [*basic_forms(20), *spread_forms()]
    for first in range(0, tasks, 10_000):
        scheduler.run([workload(first + number, forms[number % len(forms)]) for number in range(10_000)], NOW)
    resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return resident_pages * resource.getpagesize() / (1 << 20)
