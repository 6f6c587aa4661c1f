"""Wall-clock and CPU time of the command line: help, completion of a command, and `mooring ps` with 20 workloads.

The server answers at once, so that the figures are those of the command alone. MOORING_BENCH_BASELINE names the
`mooring` program of another version, whose runs alternate with those of this one.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from uuid import uuid4

from mooring.wire.workloads.workloads import WorkloadList, WorkloadView

ROUNDS = 9
WORKLOADS = 20
COMPLETION = {"_MOORING_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "mooring dep"}
MEASURED: dict[str, tuple[list[str], dict[str, str]]] = {
    "help": (["--help"], {}),
    "completion": ([], COMPLETION),
    "ps": (["ps"], {}),
}


def run() -> dict[str, float]:
    """Return medians in milliseconds. Versions and commands alternate, so that other load affects all of them alike."""
    programs = {"": str(Path(sys.executable).with_name("mooring"))}
    if baseline := os.environ.get("MOORING_BENCH_BASELINE"):
        programs["baseline_"] = baseline
    took: dict[str, list[float]] = defaultdict(list)
    with _server() as url, tempfile.TemporaryDirectory() as home:
        shared = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "MOORING_SERVER": url, "MOORING_TOKEN": "token"}
        # The first round fills the page cache and is not counted.
        for round_number in range(ROUNDS + 1):
            for name, (arguments, environment) in MEASURED.items():
                for prefix, program in programs.items():
                    wall_seconds, cpu_seconds = _measured([program, *arguments], {**shared, **environment})
                    if round_number:
                        took[f"{prefix}{name}_ms"].append(wall_seconds * 1000)
                        took[f"{prefix}{name}_cpu_ms"].append(cpu_seconds * 1000)
    return {figure: median(each) for figure, each in took.items()}


def _measured(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the wall-clock time of a run and the CPU time, which other work on the machine changes less."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def _server() -> Iterator[str]:
    answer = WorkloadList(
        workloads=[_workload(number) for number in range(WORKLOADS)], total=WORKLOADS, limit=200, offset=0
    )
    content = answer.model_dump_json().encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def _workload(number: int) -> WorkloadView:
    return WorkloadView(
        id=uuid4(),
        name=f"training-{number}",
        kind="session",
        type="batch",
        status="RUNNING",
        simulated=False,
        pool="default",
        project="default",
        user="alice",
        image=None,
        command=["python", "train.py"],
        replicas=1,
        running=1,
        resources={"cpu": "2", "memory": "4Gi"},
        region=None,
        priority=10,
        labels={},
        reason=None,
        created_at=datetime.now(UTC),
        started_at=None,
        ended_at=None,
        removed=False,
        version=1,
    )
