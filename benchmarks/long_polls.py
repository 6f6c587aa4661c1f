"""Long polls: the latency of one user's submissions while another user has a thousand requests that wait.

One server on PostgreSQL. A user submits every 50 ms at most: alone, and beside 1,000 long polls of another user, each
over a connection of its own, for the ends of 10 workloads that do not end. Phases with and without them take turns, so
that other load on the machine affects both. The limits on streams and connections of a user are raised for it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from benchmarks.overload import _percentile, _pinned
from mooring.scheduling.compiled import compilation
from mooring.wire.tenancy.users import UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import running_postgres
from tests.system.flood import Answers, ask_in_turn, request
from tests.system.servers import PASSWORD, Server, eventually, running_server

NODES = 50
WAITERS = 1000
WORKLOADS = 10
SECONDS = 8.0
ROUNDS = 4
SUBMISSIONS_PER_SECOND = 20.0
_POLL_SECONDS = 290
_DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")
_WORK = {"containers": [{"image": "nginx:latest", "resources": {"cpu": "10m", "memory": "1Mi"}}]}
_LIMITS = {"MOORING_STREAM_LIMIT": str(2 * WAITERS), "MOORING_USER_CONNECTION_LIMIT": str(2 * WAITERS)}


def run() -> dict[str, float]:
    if not compilation.wait():
        raise RuntimeError(f"the kernels cannot be compiled here: {compilation.failure()}")
    cores = sorted(os.sched_getaffinity(0))
    with (
        TemporaryDirectory(prefix="mooring-bench-") as folder,
        _pinned(cores[:-1] or cores),
        running_postgres(_DURABLE) as postgres,
    ):
        url = postgres.url(postgres.create_database())
        flags = ["--simulate", str(NODES), "--no-agent", "--demo", "--log-level", "warning", "--database", url]
        with running_server(Path(folder) / "data", *flags, environment=_LIMITS) as server, _pinned(cores[-1:]):
            return _measure(server)


def _measure(server: Server) -> dict[str, float]:
    with server.client() as admin:
        for name in ("submitting", "waiting"):
            admin.create_user(UserRequest(username=name, password=PASSWORD))
    with server.client("waiting") as waiting:
        work = [str(waiting.submit(WorkloadRequest.model_validate(_WORK)).id) for _ in range(WORKLOADS)]
    shown = server.credential("waiting")
    polls = [request("GET", f"/api/workloads/{id}/wait?for=ended&timeout={_POLL_SECONDS}", shown) for id in work]
    submission = [request("POST", "/api/workloads", server.credential("submitting"), _WORK)]
    _submit(server, submission)
    alone, beside = Answers(), Answers()
    for _ in range(ROUNDS):
        alone.add(_submit(server, submission))
        with _waiting(server, polls):
            beside.add(_submit(server, submission))
    return _figures(alone, beside)


def _submit(server: Server, submission: Sequence[bytes]) -> Answers:
    return ask_in_turn(server.url, submission, 1, SECONDS, per_second=SUBMISSIONS_PER_SECOND)


@contextmanager
def _waiting(server: Server, polls: Sequence[bytes]) -> Iterator[None]:
    """Hold all waiting requests open while the block runs, from a separate process."""
    spawn = multiprocessing.get_context("spawn")
    over = spawn.Event()
    process = spawn.Process(target=_wait, args=(server.url, polls, over))
    process.start()
    try:
        eventually(lambda: _connections(server) >= WAITERS)
        yield
        if over.is_set():
            raise RuntimeError("a long poll was answered or refused")
    finally:
        over.set()
        process.join()
        eventually(lambda: _connections(server) < WAITERS)


def _connections(server: Server) -> float:
    [found] = re.findall(r"^mooring_connections (\S+)$", server.metrics(), re.MULTILINE)
    return float(found)


def _wait(url: str, polls: Sequence[bytes], over: Event) -> None:
    asyncio.run(_wait_at_all(url, polls, over))


async def _wait_at_all(url: str, polls: Sequence[bytes], over: Event) -> None:
    address = urlsplit(url)
    connections = []
    for number in range(WAITERS):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(polls[number % len(polls)])
        connections.append((reader, writer))
    answers = [asyncio.create_task(reader.read(1)) for reader, _ in connections]
    ended = asyncio.create_task(asyncio.to_thread(over.wait))
    await asyncio.wait({ended, *answers}, return_when=asyncio.FIRST_COMPLETED)
    # Also where one of them was answered: that is not a measurement of waiting.
    over.set()
    for answer in answers:
        answer.cancel()
    for _, writer in connections:
        writer.close()


def _figures(alone: Answers, beside: Answers) -> dict[str, float]:
    figures: dict[str, float] = {"waiters": float(WAITERS)}
    for name, share in (("p50", 0.50), ("p99", 0.99)):
        quiet, waited = (_percentile(found.accepted_seconds, share) for found in (alone, beside))
        figures[f"alone_{name}_ms"], figures[f"beside_{name}_ms"] = 1000 * quiet, 1000 * waited
        figures[f"{name}_ratio"] = waited / quiet
    figures["refused"] = float(beside.total - len(beside.accepted_seconds))
    counts = f"{len(alone.accepted_seconds)} and {len(beside.accepted_seconds)} submissions"
    print(f"    {counts}, statuses {dict(beside.statuses)}", file=sys.stderr, flush=True)
    return figures
