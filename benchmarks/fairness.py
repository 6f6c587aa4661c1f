"""Fairness: the latency of one user's quiet requests while others flood the API.

One server on PostgreSQL. A quiet user sends a request every 50 ms, alternately a list and a submission: alone, and
beside 24 and 200 connections that each send the next request as soon as the last one is answered. The user has a
token, and beside 200 connections also a keypair. The flood consists of requests of one other user, of requests
without a credential, of requests with made-up tokens, and of logins with a wrong password. Quiet and flooded phases
take turns, so that other load on the machine affects both.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.overload import _percentile, _pinned
from mooring.model.errors import TooManyAttempts
from mooring.scheduling.compiled import compilation
from mooring.wire.tenancy.tenants import KeypairCreated, KeypairRequest
from mooring.wire.tenancy.users import UserRequest
from tests.servers import running_postgres
from tests.system.flood import Answers, ask_in_turn, flood_in_turn, request
from tests.system.servers import PASSWORD, Server, eventually, running_server

NODES = 50
CONNECTIONS = (24, 200)
SECONDS = 6.0
ROUNDS = 3
QUIET_PER_SECOND = 20.0
_DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")
_WORK = {"containers": [{"image": "nginx:latest", "resources": {"cpu": "10m", "memory": "1Mi"}}]}


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
        with running_server(Path(folder) / "data", *flags) as server:
            with _pinned(cores[-1:]):
                figures = _measure(server)
            # Failed logins block further ones of this address for a while, and the books are audited at the end.
            eventually(lambda: _can_log_in(server))
            return figures


def _can_log_in(server: Server) -> bool:
    try:
        server.credential("admin")
    except TooManyAttempts:
        return False
    return True


def _measure(server: Server) -> dict[str, float]:
    with server.client() as admin:
        for name in ("quiet", "flooding"):
            admin.create_user(UserRequest(username=name, password=PASSWORD))
    with server.client("quiet") as client:
        keypair = client.create_keypair(KeypairRequest(scope="work"))
    quiet = {"token": _requests(server.credential("quiet")), "keypair": _requests(_basic(keypair))}
    login = {"username": "nobody", "password": "wrong-password"}
    floods = {
        "user": _requests(server.credential("flooding")),
        "no_credential": _requests({}),
        "made_up_token": _requests({"Authorization": "Bearer made-up"}),
        "logins": [request("POST", "/api/auth/login", {}, login)],
    }
    _ask(server, quiet["token"])
    figures: dict[str, float] = {}
    for name, requests in floods.items():
        for connections in CONNECTIONS:
            # A keypair beside the larger floods only, which are the harder case.
            for credential in quiet if connections == max(CONNECTIONS) else ("token",):
                suffix = "" if credential == "token" else f"_{credential}"
                alone, beside, flooding = Answers(), Answers(), Answers()
                for _ in range(ROUNDS):
                    alone.add(_ask(server, quiet[credential]))
                    with ThreadPoolExecutor(1) as thread:
                        running = thread.submit(flood_in_turn, server.url, requests, connections, SECONDS + 1)
                        beside.add(_ask(server, quiet[credential]))
                        flooding.add(running.result())
                figures |= _figures(f"{name}_{connections}{suffix}", alone, beside, flooding)
    return figures


def _basic(keypair: KeypairCreated) -> dict[str, str]:
    shown = base64.b64encode(f"{keypair.access_key}:{keypair.secret}".encode()).decode()
    return {"Authorization": f"Basic {shown}"}


def _requests(headers: dict[str, str]) -> list[bytes]:
    return [request("GET", "/api/workloads?limit=20", headers), request("POST", "/api/workloads", headers, _WORK)]


def _ask(server: Server, requests: Sequence[bytes]) -> Answers:
    return ask_in_turn(server.url, requests, 1, SECONDS, per_second=QUIET_PER_SECOND)


def _figures(name: str, alone: Answers, beside: Answers, flooding: Answers) -> dict[str, float]:
    quiet, flooded = _percentile(alone.accepted_seconds, 0.99), _percentile(beside.accepted_seconds, 0.99)
    found = {
        f"{name}_quiet_p50_ms": 1000 * _percentile(alone.accepted_seconds, 0.50),
        f"{name}_flooded_p50_ms": 1000 * _percentile(beside.accepted_seconds, 0.50),
        f"{name}_quiet_p99_ms": 1000 * quiet,
        f"{name}_flooded_p99_ms": 1000 * flooded,
        f"{name}_p99_ratio": flooded / quiet,
        f"{name}_quiet_user_refused": float(beside.statuses[429] + beside.unanswered),
        f"{name}_flood_per_second": flooding.total / (ROUNDS * SECONDS),
        f"{name}_flood_refused_percent": 100 * flooding.statuses[429] / max(1, flooding.total),
    }
    print(
        f"    {name}: p50 {found[f'{name}_quiet_p50_ms']:.0f} -> {found[f'{name}_flooded_p50_ms']:.0f} ms, "
        f"p99 {1000 * quiet:.0f} -> {1000 * flooded:.0f} ms ({flooded / quiet:.1f}x), quiet {dict(beside.statuses)}, "
        f"flood {dict(flooding.statuses)}, {flooding.unanswered} unanswered",
        file=sys.stderr,
        flush=True,
    )
    return found
