"""Overload: one server on PostgreSQL, asked for ten times what it can do, by many users at a fixed rate.

What it can do is measured first: a few connections that each wait for their answer. Then the same mix comes at four
fifths of that rate, and at ten times that rate, whether or not answers come. Half of the requests read, most of the
others submit one workload, and one in sixteen submits twenty. Server, clients and database share the machine.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from mooring.scheduling import compilation
from mooring.wire.api import UserRequest
from tests.servers import running_postgres
from tests.system.flood import Answers, ask_in_turn, flood, request
from tests.system.servers import PASSWORD, Server, running_server

NODES = 200
USERS = 40
CONNECTIONS = 8
CLOSED_SECONDS = 8.0
OPEN_SECONDS = 15.0
SHARE = 0.8
"""Of what the few connections reached: the rate that the server is said to take."""
TIMES = 10
_DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")
_CONTAINER = {"image": "nginx:latest", "resources": {"cpu": "10m", "memory": "1Mi"}}


def run() -> dict[str, float]:
    # The server shares what is compiled here: compiling beside it would take a core.
    if not compilation.wait():
        raise RuntimeError(f"the kernels cannot be compiled here: {compilation.failure()}")
    with TemporaryDirectory(prefix="mooring-bench-") as folder, running_postgres(_DURABLE) as postgres:
        url = postgres.url(postgres.create_database())
        flags = ["--simulate", str(NODES), "--no-agent", "--demo", "--log-level", "warning", "--database", url]
        # Many users from one address: the rate of logins is not what is measured here.
        environment = {"MOORING_ADDRESS_RATE": "1000"}
        with running_server(Path(folder) / "data", *flags, environment=environment) as server:
            return _measure(server)


def _measure(server: Server) -> dict[str, float]:
    requests = _mix(_users(server))
    before = _resident_mib(server)
    possible = ask_in_turn(server.url, requests, CONNECTIONS, CLOSED_SECONDS)
    rate = SHARE * len(possible.accepted_seconds) / CLOSED_SECONDS
    usual_before = _resident_mib(server)
    usual = flood(server.url, requests, rate, OPEN_SECONDS)
    flooded_before = _resident_mib(server)
    with _asking_for_health(server) as waits:
        flooded = flood(server.url, requests, TIMES * rate, OPEN_SECONDS)
    figures = {"sustainable_per_second": rate, "resident_first_mib": before}
    for name, answers, resident in (("1x", usual, usual_before), ("10x", flooded, flooded_before)):
        figures |= {f"{name}_{figure}": value for figure, value in _figures(answers).items()}
        figures[f"{name}_resident_before_mib"] = resident
    return figures | {
        "10x_resident_after_mib": _resident_mib(server),
        "10x_health_p50_ms": 1000 * _percentile(waits, 0.50),
        "10x_health_p99_ms": 1000 * _percentile(waits, 0.99),
        "accepted_10x_of_1x_percent": 100 * len(flooded.accepted_seconds) / len(usual.accepted_seconds),
    }


def _figures(answers: Answers) -> dict[str, float]:
    print(f"    {dict(answers.statuses)}, {answers.unanswered} without an answer", file=sys.stderr, flush=True)
    if answers.unexplained or set(answers.statuses) - {200, 202, 429}:
        raise RuntimeError(f"answers that nobody should get: {answers.statuses}, {answers.unexplained} unexplained")
    return {
        "offered_per_second": answers.total / OPEN_SECONDS,
        "accepted_per_second": len(answers.accepted_seconds) / OPEN_SECONDS,
        "accepted_p50_ms": 1000 * _percentile(answers.accepted_seconds, 0.50),
        "accepted_p99_ms": 1000 * _percentile(answers.accepted_seconds, 0.99),
        "refused_percent": 100 * answers.statuses[429] / answers.total,
        "unanswered_percent": 100 * answers.unanswered / answers.total,
    }


def _users(server: Server) -> list[dict[str, str]]:
    """Users by the header that their requests show."""
    names = [f"user-{number}" for number in range(USERS)]
    with server.client() as admin:
        for name in names:
            admin.create_user(UserRequest(username=name, password=PASSWORD))
    return [server.credential(name) for name in names]


def _mix(users: Sequence[dict[str, str]]) -> list[bytes]:
    """Sixteen requests of every user, one user after the other."""
    work = {"containers": [_CONTAINER]}
    made = []
    for number in range(16):
        for headers in users:
            if number % 2 == 0:
                made.append(request("GET", "/api/workloads?limit=20", headers))
            elif number == 1:
                made.append(request("POST", "/api/workloads/batch", headers, {"workloads": [work] * 20}))
            else:
                made.append(request("POST", "/api/workloads", headers, work))
    # Spread over the time, so that no second has other work than the next.
    return [made[index * 7 % len(made)] for index in range(len(made))]


@contextmanager
def _asking_for_health(server: Server) -> Iterator[list[float]]:
    """How long /health takes to answer meanwhile, asked ten times a second."""
    waits: list[float] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.1):
            started = time.perf_counter()
            if server.status("/health") != 200:
                raise RuntimeError("/health did not answer")
            waits.append(time.perf_counter() - started)

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask)
        try:
            yield waits
        finally:
            over.set()
        asking.result()


def _resident_mib(server: Server) -> float:
    return float(psutil.Process(server.pid).memory_info().rss / 2**20)


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
