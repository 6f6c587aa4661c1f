"""Several schedulers on one PostgreSQL: one leads, and another continues its work after any failure."""

from __future__ import annotations

import os
import signal

import pytest

from mooring.client import Client
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import PostgresServer, etcd_host, running_etcd
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


@pytest.mark.slow
def test_terms_keep_growing_when_etcd_is_recreated_and_when_leadership_moves_to_the_database(
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["database", "etcd"])
def test_another_scheduler_takes_over_when_the_leader_is_killed_stopped_or_frozen(
    servers: Servers, postgres_url: str, kind: str
) -> None:
    with running_etcd() as etcd:
        coordination = {"ETCD_HOST": "127.0.0.1", "ETCD_PORT": str(etcd.port)} if kind == "etcd" else {}
        environment = {**KEY, **coordination}
        flags = (*FLAGS, "--database", postgres_url)
        first = servers.start(*flags, name="first", environment=environment)
        eventually(first.leads)
        second = servers.start(*flags, name="second", environment=environment)
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


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["wiped", "restored"])
def test_a_standby_leads_when_the_leader_dies_after_etcd_lost_its_data(
    servers: Servers, postgres_url: str, loss: str
) -> None:
    servers.trouble_expected = True
    with etcd_host() as etcd:
        environment = {**KEY, "ETCD_HOST": "127.0.0.1", "ETCD_PORT": str(etcd.port)}
        etcd.stop()
        etcd.save()
        etcd.start()
        flags = (*FLAGS, "--database", postgres_url)
        both = [servers.start(*flags, name=name, environment=environment) for name in ("first", "second")]
        eventually(both[0].leads)
        with both[1].client() as client:
            _runs(client, "before")
            etcd.stop()
            etcd.wipe() if loss == "wiped" else etcd.restore()
            etcd.start()
            leader = eventually(lambda: [server for server in both if server.leads()])[0]
            (standby,) = (server for server in both if server is not leader)
            _runs(client, "after-the-loss")
            leader.kill()
            eventually(standby.leads)
        with standby.client() as client:
            _runs(client, "after-a-kill")
        standby.assert_books_agree()
