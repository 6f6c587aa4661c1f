"""Overload: one server on PostgreSQL under ten times the rate that it sustains, from many users at a fixed rate.

The highest rate without refusals is measured first, with evenly spread requests that do not wait for responses. Then
this rate and ten times this rate are offered alternately, so that other load on the machine affects both. Half of the
requests read, most of the others submit one workload, and one in sixteen submits twenty. On machines with several
cores, the clients run on the last one, and the server and its database on the others, as if the clients were remote.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from mooring.scheduling.compiled import compilation
from mooring.wire.tenancy.users import UserRequest
from tests.servers import running_postgres
from tests.system.flood import Answers, ask_in_turn, flood, request
from tests.system.servers import PASSWORD, Server, running_server

NODES = 200
USERS = 40
CONNECTIONS = 6
CLOSED_SECONDS = 5.0
SEARCH_SECONDS = 6.0
ROUND_SECONDS = 8.0
ROUNDS = 3
SMALLER = 0.85
"""Factor between the rates of the search; applied once more to the result, since a search is short."""
TIMES = 10
_DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")
_CONTAINER = {"image": "nginx:latest", "resources": {"cpu": "10m", "memory": "1Mi"}}


@dataclass
class Offered:
    """The results at one rate, over all rounds."""

    answers: Answers = field(default_factory=Answers)
    seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    resident_mib: list[float] = field(default_factory=list)
    """Measured before the first round and after each."""


def run() -> dict[str, float]:
    # The server shares what is compiled here: compiling beside it would take a core.
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
        # Many users from one address: the rate of logins is not what is measured here.
        environment = {"MOORING_ADDRESS_RATE": "1000"}
        with running_server(Path(folder) / "data", *flags, environment=environment) as server, _pinned(cores[-1:]):
            _say(f"server and database on cores {cores[:-1] or cores}, clients on {cores[-1:]}")
            return _measure(server)


def _measure(server: Server) -> dict[str, float]:
    requests = _mix(_users(server))
    rate = _sustained(server, requests)
    usual, flooded = Offered(), Offered()
    with _asking_for_health(server) as waits:
        for _ in range(ROUNDS):
            _offer(server, requests, rate, usual)
            _offer(server, requests, TIMES * rate, flooded)
    figures = {"sustainable_per_second": rate}
    for name, offered in (("1x", usual), ("10x", flooded)):
        figures |= {f"{name}_{figure}": value for figure, value in _figures(offered).items()}
    return figures | {
        "health_p50_ms": 1000 * _percentile(waits, 0.50),
        "health_p99_ms": 1000 * _percentile(waits, 0.99),
        "10x_of_1x_accepted": figures["10x_accepted_per_second"] / figures["1x_accepted_per_second"],
        "10x_of_1x_p50": figures["10x_accepted_p50_ms"] / figures["1x_accepted_p50_ms"],
        "10x_of_1x_p99": figures["10x_accepted_p99_ms"] / figures["1x_accepted_p99_ms"],
    }


def _sustained(server: Server, requests: Sequence[bytes]) -> float:
    """Return a rate without refusals, starting from the rate of a few connections that wait for each response."""
    possible = ask_in_turn(server.url, requests, CONNECTIONS, CLOSED_SECONDS)
    rate = len(possible.accepted_seconds) / CLOSED_SECONDS
    while True:
        answers = flood(server.url, requests, rate, SEARCH_SECONDS)
        _say(f"{rate:.0f} a second: {answers.statuses[429]} of {answers.total} refused")
        rate *= SMALLER
        if not answers.statuses[429]:
            return rate


def _offer(server: Server, requests: Sequence[bytes], rate: float, offered: Offered) -> None:
    offered.resident_mib = offered.resident_mib or [_resident_mib(server)]
    cpu_before = server.cpu_seconds()
    answers = flood(server.url, requests, rate, ROUND_SECONDS)
    offered.server_cpu_seconds += server.cpu_seconds() - cpu_before
    offered.seconds += ROUND_SECONDS
    offered.resident_mib.append(_resident_mib(server))
    offered.answers.add(answers)
    _say(
        f"{rate:.0f} a second: {dict(answers.statuses)}, {answers.unanswered} without an answer, "
        f"p50 {1000 * _percentile(answers.accepted_seconds, 0.50):.0f} ms, "
        f"p99 {1000 * _percentile(answers.accepted_seconds, 0.99):.0f} ms"
    )


def _figures(offered: Offered) -> dict[str, float]:
    answers, seconds = offered.answers, offered.seconds
    if answers.unexplained or set(answers.statuses) - {200, 202, 429}:
        raise RuntimeError(f"answers that nobody should get: {answers.statuses}, {answers.unexplained} unexplained")
    return {
        "offered_per_second": answers.total / seconds,
        "accepted_per_second": len(answers.accepted_seconds) / seconds,
        "accepted_p50_ms": 1000 * _percentile(answers.accepted_seconds, 0.50),
        "accepted_p99_ms": 1000 * _percentile(answers.accepted_seconds, 0.99),
        "refused_percent": 100 * answers.statuses[429] / answers.total,
        "unanswered_percent": 100 * answers.unanswered / answers.total,
        "server_cpu_percent": 100 * offered.server_cpu_seconds / seconds,
        "clients_cpu_percent": 100 * answers.cpu_seconds / seconds,
        "resident_first_mib": offered.resident_mib[0],
        "resident_last_mib": offered.resident_mib[-1],
    }


@contextmanager
def _pinned(cores: Sequence[int]) -> Iterator[None]:
    """Pin processes that are started in this context to these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _say(line: str) -> None:
    print(f"    {line}", file=sys.stderr, flush=True)


def _users(server: Server) -> list[dict[str, str]]:
    """Users by the header of their requests."""
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
    """Measure the latency of /health ten times a second."""
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
