"""Without a leader, every server reports since when and why; servers with another election method are refused."""

from __future__ import annotations

import pytest

from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import etcd_host
from tests.system.conftest import Servers
from tests.system.servers import PASSWORD, eventually

KEY = {"MOORING_SIGNING_KEY": "one key that all of the servers share", "LEADER_LEASE_TTL": "3"}
FLAGS = ("--no-agent", "--demo", "--simulate", "1")


@pytest.mark.slow
def test_every_server_reports_since_when_and_why_there_is_no_leader(servers: Servers, postgres_url: str) -> None:
    servers.trouble_expected = True
    with etcd_host() as etcd:
        environment = {**KEY, "ETCD_HOST": "127.0.0.1", "ETCD_PORT": str(etcd.port)}
        flags = (*FLAGS, "--database", postgres_url)
        leader = servers.start(*flags, name="leader", environment=environment)
        api = servers.start("--role", "api", "--database", postgres_url, name="api", environment=environment)
        eventually(leader.leads)
        with leader.client() as client, api.client() as other:
            assert not client.leader().vacant
            assert "leadership" not in other.ready().degraded
            etcd.stop()
            eventually(lambda: client.leader().vacant)
            eventually(lambda: "cannot campaign" in (other.leader().vacant_reason or ""))
            found = other.leader()
            assert found.vacant_since is not None
            assert "etcd" in (found.vacant_reason or "")
            listed = other.servers()
            assert "etcd" in (listed.vacant_reason or "")
            eventually(lambda: {server.standing for server in other.servers().servers} == {"standby", "api"})
            eventually(lambda: "nobody leads since" in client.ready().checks["leadership"])
            eventually(lambda: "etcd does not answer" in client.ready().checks["leadership"])
            assert not client.ready().ready
            # It continues to accept work, which waits.
            assert other.ready().ready
            assert "nobody leads since" in other.ready().degraded["leadership"]
            other.submit(_work("waits"))
            assert "no server leads since" in (other.explanation("waits").scheduling or "")
            terminal = servers.cli()
            terminal.out("login", "--server", api.url, "--username", "admin", "--password-stdin", given=PASSWORD)
            assert "none since" in terminal.out("leader")
            assert "none since" in terminal.out("servers")
            assert "no server leads" in terminal.out("explain", "waits")
            etcd.start()
            eventually(leader.leads)
            eventually(lambda: other.ready().degraded == {})
            eventually(lambda: not other.leader().vacant)
            assert other.wait("waits", "running", timeout_seconds=60).status == "RUNNING"
            assert other.explanation("waits").scheduling is None
        # One warning when it went away, for each part that depends on it, however long it was away.
        for consequence in ("cannot campaign for leadership", "signals of other servers do not arrive"):
            assert leader.log.count(consequence) == 1


@pytest.mark.slow
def test_a_server_with_another_kind_of_election_is_refused_until_the_others_are_stopped(
    servers: Servers, postgres_url: str
) -> None:
    with etcd_host() as etcd:
        at_etcd = {"ETCD_HOST": "127.0.0.1", "ETCD_PORT": str(etcd.port)}
        flags = (*FLAGS, "--database", postgres_url)
        first = servers.start(*flags, name="first", environment={**KEY, **at_etcd})
        eventually(first.leads)
        with first.client() as client:
            eventually(lambda: [server.election for server in client.servers().servers] == ["etcd"])
        second = servers.prepare(*flags, name="second", environment=KEY)
        second.launch()
        assert second.exit_code() != 0
        assert "elects the leader through etcd, and this server would through the database" in second.log
        eventually(first.leads)
        first.stop()
        second.start()
        eventually(second.leads)


def _work(name: str) -> WorkloadRequest:
    container = {"image": "nginx:latest", "resources": {"cpu": 1, "memory": "64Mi"}}
    return WorkloadRequest.model_validate({"name": name, "kind": "deployment", "containers": [container]})
