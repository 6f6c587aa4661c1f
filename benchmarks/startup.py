"""From the start of a process to its first decision, and to compiled kernels, with an empty and a filled cache.

Then a server with warm kernels: until it is ready, and `mooring run -- true` on it from start to exit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from mooring.scheduling.compiled import compilation
from tests.system.servers import PASSWORD, Cli, Server

ROUNDS = 3
RUNS = 5
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
    figures = {
        f"{temperature}_{figure}": median(each[figure] for each in starts)
        for temperature, starts in rounds.items()
        for figure in starts[0]
    }
    return figures | _server()


def _server() -> dict[str, float]:
    """Medians for a server on this machine, with SQLite and an agent, and for commands on it."""
    if not compilation.wait():
        raise RuntimeError(f"the kernels cannot be compiled here: {compilation.failure()}")
    ready, run_true = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="mooring-bench-") as folder:
            # With the default requests of its pools: to clear them would count as start-up here.
            server = Server(
                Path(folder) / "data",
                ("--log-level", "warning"),
                {"MOORING_ADMIN_PASSWORD": PASSWORD},
                default_requests=True,
            )
            started = time.perf_counter()
            try:
                server.start()
                ready.append(time.perf_counter() - started)
                cli = Cli(Path(folder) / "home", _environment(server))
                run_true += [_run_true(cli) for _ in range(RUNS)]
            finally:
                server.stop()
    return {"server_ready_seconds": median(ready), "run_true_ms": 1000 * median(run_true)}


def _environment(server: Server) -> dict[str, str]:
    token = server.credential("admin")["Authorization"].removeprefix("Bearer ")
    return {"MOORING_SERVER": server.url, "MOORING_TOKEN": token}


def _run_true(cli: Cli) -> float:
    started = time.perf_counter()
    cli.out("run", "--", "true")
    return time.perf_counter() - started


def _start(cache: str) -> dict[str, float]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "BORN": str(time.time())}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, stdout=subprocess.PIPE)
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures
