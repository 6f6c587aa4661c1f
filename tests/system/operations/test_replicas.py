"""Several servers on one PostgreSQL: API replicas with a leader, and servers whose scheduler is down."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from mooring.client import Client
from mooring.model.errors import Conflict, MooringError
from mooring.wire.cluster.health import Ready
from mooring.wire.workloads.workloads import WorkloadAccepted, WorkloadRequest
from tests.servers import PostgresServer
from tests.system.conftest import Servers
from tests.system.servers import Server, eventually

KEY = {"MOORING_SIGNING_KEY": "one key that all of the replicas share"}
CORES = 112  # of six simulated nodes: twice 8, twice 16 and twice 32


def _one_core(name: str) -> WorkloadRequest:
    container = {"image": "nginx:latest", "resources": {"cpu": 1, "memory": "64Mi"}}
    return WorkloadRequest.model_validate({"name": name, "kind": "deployment", "containers": [container]})


@pytest.mark.slow
def test_replicas_that_start_and_submit_at_once_fill_the_cluster_exactly(servers: Servers, postgres_url: str) -> None:
    roles = {"leader": ("--simulate", "6", "--demo", "--no-agent"), "one": ("--role", "api"), "two": ("--role", "api")}
    started = [
        servers.prepare(*flags, "--database", postgres_url, name=name, environment=KEY) for name, flags in roles.items()
    ]
    # On an empty database all of them want to make the tables and the first user.
    for server in started:
        server.launch()
    clients = [server.wait().client() for server in started]

    def submit(client: Client, name: str) -> WorkloadAccepted | None:
        try:
            return client.submit(_one_core(name))
        except Conflict as taken:
            if taken.code != "name-taken":
                raise
            return None

    names = [f"one-{number}" for number in range(CORES)]
    # Every name is asked for at two of the servers at the same time.
    asked = [(clients[(number + iterate) % 3], name) for number, name in enumerate(names) for iterate in (0, 1)]
    with ThreadPoolExecutor(8) as pool:
        accepted = [found for found in pool.map(lambda pair: submit(*pair), asked) if found is not None]
    assert Counter(workload.name for workload in accepted) == Counter(names)

    one, another, third = clients
    eventually(lambda: one.workloads(status="RUNNING", limit=1).total == CORES)
    nodes = another.nodes().nodes
    assert sum(node.tasks for node in nodes) == CORES
    assert {node.slots["cpu"].free for node in nodes} == {"0"}

    # Full: the next waits, and starts when any replica is notified of an end.
    late = third.submit(_one_core("late"))
    eventually(lambda: third.workload("late").reason)
    assert third.workload("late").status == "PENDING"
    another.remove("one-0")
    assert one.wait(str(late.id), "running", timeout_seconds=60).status == "RUNNING"

    # Scaled at two places at once, it has what one of them asked for, and as many tasks.
    for name in names[1:40]:
        one.remove(name)
    with ThreadPoolExecutor(4) as pool:
        scaling = [pool.submit(clients[iterate % 3].scale, "late", 1 + iterate) for iterate in range(9)]
    for future in scaling:
        future.result()
    eventually(lambda: (found := one.workload("late")).running == found.replicas)
    for client in clients:
        client.close()


@pytest.mark.slow
def test_a_replica_with_another_signing_key_refuses_to_start(servers: Servers, postgres_url: str) -> None:
    database = ("--database", postgres_url)
    leader = servers.start("--no-agent", *database, name="leader", environment=KEY)
    stranger = servers.prepare("--role", "api", *database, name="stranger")
    stranger.launch()
    assert stranger.exit_code() == 1
    assert "signing-key-not-shared" in stranger.log
    assert "MOORING_SIGNING_KEY" in stranger.log
    assert KEY["MOORING_SIGNING_KEY"] not in stranger.log + leader.log


@pytest.mark.slow
def test_the_api_works_while_the_scheduler_cannot_start(servers: Servers) -> None:
    server = servers.start("--simulate", "3", "--no-agent")
    server.stop()
    with sqlite3.connect(server.data / "mooring.db") as database:
        database.execute("UPDATE nodes SET runtimes = '7'")
    servers.trouble_expected = True
    server.flags = ("--no-agent",)
    server.start(ready=False)
    with server.client() as client:
        accepted = client.submit(_one_core("patient"))
        _assert_scheduler_down(server, client, "scheduler")
        assert client.workload(str(accepted.id)).status == "PENDING"
    server.stop()
    with sqlite3.connect(server.data / "mooring.db") as database:
        database.execute("""UPDATE nodes SET runtimes = '["container"]'""")
    server.start()
    with server.client() as client:
        assert client.wait("patient", "running", timeout_seconds=60).status == "RUNNING"


def _assert_scheduler_down(server: Server, client: Client, word: str) -> None:
    def not_ready() -> Ready | None:
        found = client.ready()
        return found if not found.ready else None

    found = eventually(not_ready)
    assert found is not None
    assert any(word in f"{part} {what}" for part, what in found.checks.items() if what != "ok"), found.checks
    assert server.status("/ready") == 503
    assert server.status("/health") == 200
    assert client.health().role != "leader"


@pytest.mark.slow
def test_a_database_that_drops_its_connections_costs_no_accepted_work(
    servers: Servers, postgres_url: str, postgres_server: PostgresServer
) -> None:
    servers.trouble_expected = True
    server = servers.start("--simulate", "6", "--demo", "--no-agent", "--database", postgres_url)
    database = postgres_url.rpartition("/")[2]
    accepted: list[str] = []
    with server.client() as client, ThreadPoolExecutor(4) as pool:

        def submit(name: str) -> None:
            with contextlib.suppress(MooringError):
                accepted.append(str(client.submit(_one_core(name)).id))

        submitting = [pool.submit(submit, f"one-{number}") for number in range(80)]
        for _ in range(5):
            postgres_server.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
            )
        for future in submitting:
            future.result()
        assert accepted
        for ref in accepted:
            assert client.wait(ref, "running", timeout_seconds=60).status == "RUNNING"
        eventually(lambda: client.ready().ready)
