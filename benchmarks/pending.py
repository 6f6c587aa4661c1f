"""Cost per pending task: 4 arrays of 10,000 tasks that fit no node, SQLite; bytes of the database and of memory."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from mooring.client import AsyncClient
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.servers import PASSWORD, Server, running_server

ARRAYS = 4
SIZE = 10_000


def run() -> dict[str, float]:
    with TemporaryDirectory(prefix="mooring-bench-") as folder:
        data = Path(folder) / "data"
        with running_server(data, "--simulate", "10", "--no-agent", "--log-level", "warning") as server:
            asyncio.run(_submit(server.url, 1, 1))
            stored, memory = _stored(data), _memory(server)
            seconds = asyncio.run(_submit(server.url, ARRAYS, SIZE))
            asyncio.run(_all_tried(server.url))
            figures = {
                "accepted_tasks_per_second": ARRAYS * SIZE / seconds,
                "database_bytes_per_task": (_stored(data) - stored) / (ARRAYS * SIZE),
                "memory_bytes_per_task": (_memory(server) - memory) / (ARRAYS * SIZE),
            }
    return figures


async def _submit(url: str, arrays: int, size: int) -> float:
    """Seconds until the last array was accepted."""
    async with AsyncClient(url) as client:
        await client.login("admin", PASSWORD)
        started = time.perf_counter()
        for _ in range(arrays):
            await client.submit(
                WorkloadRequest.model_validate(
                    {
                        "array": f"0-{size - 1}",
                        # More than a simulated node has: all of them wait.
                        "containers": [{"image": "nginx:latest", "resources": {"cpu": "1000", "memory": "512Mi"}}],
                    }
                )
            )
        return time.perf_counter() - started


async def _all_tried(url: str) -> None:
    """Until the leader has looked at each of them, and holds them in memory."""
    async with AsyncClient(url) as client:
        await client.login("admin", PASSWORD)
        for _ in range(600):
            listed = await client.workloads(limit=100)
            if all(workload.reason for workload in listed.workloads):
                return
            await asyncio.sleep(0.1)
    raise RuntimeError("not every array was tried within a minute")


def _stored(data: Path) -> int:
    return sum(file.stat().st_size for file in data.glob("mooring.db*"))


def _memory(server: Server) -> int:
    return int(psutil.Process(server.pid).memory_info().rss)
