"""Several schedulers on one PostgreSQL: one leads, and whatever happens to it another goes on with its work."""

from __future__ import annotations

import os
import signal

import pytest

from mooring.client import Client
from mooring.wire.api import WorkloadRequest
from tests.servers import PostgresServer, running_etcd
from tests.system.conftest import Servers
from tests.system.servers import eventually

KEY = {"MOORING_SIGNING_KEY": "one key that all of the servers share", "LEADER_LEASE_TTL": "4"}
FLAGS = ("--no-agent", "--demo", "--simulate", "3")


def _work(name: str) -> WorkloadRequest:
    container = {"image": "nginx:latest", "resources": {"cpu": 1, "memory": "64Mi"}}
    return WorkloadRequest.model_validate({"name": name, "kind": "deployment", "containers": [container]})


def _runs(client: Client, name: str) -> None:
    client.submit(_work(name))
    eventually(lambda: client.wait(name, "running", timeout_seconds=60).status == "RUNNING")


def test_terms_go_on_when_etcd_is_made_anew_and_when_leadership_moves_into_the_database(
    servers: Servers, postgres_server: PostgresServer, postgres_url: str
) -> None:
    def term() -> int:
        return int(postgres_server.value(postgres_url, "SELECT term FROM leadership"))

    with running_etcd() as etcd:
        at_etcd = {"ETCD_HOST": "127.0.0.1", "ETCD_PORT": str(etcd.port)}
        server = servers.start(*FLAGS, "--database", postgres_url, environment={**KEY, **at_etcd})
        eventually(server.leads)
        first = term()
    with running_etcd(port=etcd.port):
        eventually(lambda: term() > first and server.leads())
        second = term()
        server.stop()
    server.environment = {name: value for name, value in server.environment.items() if name not in at_etcd}
    server.start()
    eventually(server.leads)
    assert term() > second
    with server.client() as client:
        _runs(client, "after-all-of-it")


@pytest.mark.parametrize("kind", ["database", "etcd"])
def test_another_scheduler_goes_on_when_the_leader_is_killed_stopped_or_frozen(
    servers: Servers, postgres_url: str, kind: str
) -> None:
    with running_etcd() as etcd:
        coordination = {"ETCD_HOST": "127.0.0.1", "ETCD_PORT": str(etcd.port)} if kind == "etcd" else {}
        environment = {**KEY, **coordination}
        flags = (*FLAGS, "--database", postgres_url)
        first = servers.start(*flags, name="first", environment=environment)
        second = servers.start(*flags, name="second", environment=environment)
        assert first.leads()
        assert not second.leads()
        assert second.status("/ready") == 200
        with second.client() as client:
            _runs(client, "before")

            first.kill()
            eventually(second.leads)
            _runs(client, "after-a-kill")

            first.start()
            assert not first.leads()
            os.kill(second.pid, signal.SIGSTOP)
            try:
                eventually(first.leads)
                with first.client() as other:
                    _runs(other, "during-a-pause")
            finally:
                os.kill(second.pid, signal.SIGCONT)
            eventually(lambda: not second.leads())
            _runs(client, "after-a-pause")

            first.stop()
            eventually(second.leads)
            _runs(client, "after-a-stop")
        second.assert_books_agree()
        second.stop()
