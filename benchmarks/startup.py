"""From the start of a process to its first decision, and to compiled kernels, with an empty and a filled cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

ROUNDS = 3
PROGRAM = """
import json, os, resource, time
born = float(os.environ["BORN"])
from mooring import Node, Scheduler, Workload, amounts
nodes = [Node(name=f"n{number}", allocatable=amounts(cpu=8, memory="32Gi")) for number in range(1000)]
scheduler = Scheduler(nodes)
assert scheduler.decide(Workload(name="w", request=amounts(cpu=1))).placements
first = time.time() - born
from mooring.scheduling.compiled import compilation
assert compilation.wait(), compilation.failure()
compiled = time.time() - born
slowest = 0.0
for number in range(200):
    started = time.perf_counter()
    assert scheduler.decide(Workload(name="w", request=amounts(cpu=1))).placements
    slowest = max(slowest, time.perf_counter() - started)
ended, compiler = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "first_decision_seconds": first,
    "compiled_seconds": compiled,
    "slowest_decision_after_ms": slowest * 1000,
    "peak_memory_mib": ended.ru_maxrss / 1024,
    "cpu_seconds": ended.ru_utime + ended.ru_stime,
    "compiler_cpu_seconds": compiler.ru_utime + compiler.ru_stime,
}))
"""


def run() -> dict[str, float]:
    """Wall-clock seconds of a process with 1,000 nodes: medians of three cold starts, each followed by a warm one."""
    rounds: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as cache:
            for temperature in rounds:
                rounds[temperature].append(_start(cache))
    return {
        f"{temperature}_{figure}": median(each[figure] for each in starts)
        for temperature, starts in rounds.items()
        for figure in starts[0]
    }


def _start(cache: str) -> dict[str, float]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "BORN": str(time.time())}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, stdout=subprocess.PIPE)
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures
