"""From the API to the bind: 1,000 deployments of 3 replicas on 1,000 simulated nodes, SQLite, 8 connections."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from mooring.client import AsyncClient
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.servers import PASSWORD, running_server

NODES = 1000
DEPLOYMENTS = 1000
REPLICAS = 3
CONNECTIONS = 8


def run() -> dict[str, float]:
    with TemporaryDirectory(prefix="mooring-bench-") as folder:
        data = Path(folder) / "data"
        with running_server(data, "--simulate", str(NODES), "--no-agent", "--log-level", "warning") as server:
            seconds, cpu_before = asyncio.run(_submit(server.url, PASSWORD)), server.cpu_seconds()
            asyncio.run(_all_running(server.url, PASSWORD))
            passes, pass_seconds, bind_seconds = _metrics(server.metrics())
        waits = _waits(data / "mooring.db")
    return {
        "accepted_per_second": DEPLOYMENTS / seconds,
        "accept_to_bound_p50_ms": _percentile(waits, 0.50),
        "accept_to_bound_p99_ms": _percentile(waits, 0.99),
        "passes": passes,
        "pass_seconds_total": pass_seconds,
        "bind_seconds_total": bind_seconds,
        "pass_share_of_run_percent": 100 * pass_seconds / seconds,
        "server_cpu_seconds_until_accepted": cpu_before,
    }


async def _submit(url: str, password: str) -> float:
    """Seconds until the last of the deployments was accepted."""
    left = iter(range(DEPLOYMENTS))
    async with AsyncClient(url) as client:
        await client.login("admin", password)

        async def work() -> None:
            for number in left:
                await client.submit(
                    WorkloadRequest.model_validate(
                        {
                            "name": f"web-{number}",
                            "kind": "deployment",
                            "replicas": REPLICAS,
                            "max_per_node": 1,
                            "gang": True,
                            "containers": [{"image": "nginx:latest", "resources": {"cpu": "500m", "memory": "512Mi"}}],
                        }
                    )
                )

        started = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
        return time.perf_counter() - started


async def _all_running(url: str, password: str) -> None:
    async with AsyncClient(url) as client:
        await client.login("admin", password)
        for _ in range(600):
            listed = await client.workloads(status="RUNNING", limit=1)
            if listed.total == DEPLOYMENTS:
                return
            await asyncio.sleep(0.1)
    raise RuntimeError("not every deployment ran within a minute")


def _waits(database: Path) -> list[float]:
    """Milliseconds from the submission's commit to the bind, by workload."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute(
            "SELECT w.created_at, max(t.scheduled_at) FROM workloads w"
            " JOIN tasks t ON t.workload_id = w.id GROUP BY w.id"
        ).fetchall()
    return [
        (datetime.fromisoformat(bound) - datetime.fromisoformat(created)).total_seconds() * 1000
        for created, bound in rows
    ]


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _metrics(text: str) -> tuple[float, float, float]:
    values = {
        line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line and not line.startswith("#")
    }
    return values["mooring_passes_total"], values["mooring_pass_seconds_sum"], values["mooring_bind_seconds_sum"]
