"""Every process restarted in order and under load: no task ends, no work is lost, no request is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from mooring.client import Client
from mooring.model.errors import Conflict
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import free_port
from tests.system.conftest import Servers
from tests.system.operations.balancer import balancer
from tests.system.servers import Server, eventually

SHARED = {"MOORING_SIGNING_KEY": "one key that all of the servers share", "MOORING_HEARTBEAT_SECONDS": "0.5"}
LAST = "last"


def _small(name: str) -> WorkloadRequest:
    container = {"image": "nginx:latest", "resources": {"cpu": "1m"}}
    request = {"name": name, "kind": "deployment", "pool": "simulated", "containers": [container]}
    return WorkloadRequest.model_validate(request)


def _process(name: str) -> WorkloadRequest:
    container = {"command": ["sh", "-c", "echo $MOORING_TASK_ID; exec sleep 600"], "resources": {"cpu": "100m"}}
    return WorkloadRequest.model_validate({"name": name, "containers": [container]})


def _hand_over(leader: Server, standby: Server) -> None:
    with leader.client() as client, standby.client() as other:
        with pytest.raises(Conflict, match=leader.url) as refused:
            other.resign()
        assert refused.value.code == "not-leader"
        term = client.leader().term
        client.resign()
        eventually(lambda: other.health().role == "leader")
        assert other.leader().term > term
        assert [server.url for server in other.leader().standbys] == [leader.url]


@dataclass
class Load:
    """Users during the restarts: one submits, one waits, one follows the events."""

    entrance: Server
    accepted: list[str] = field(default_factory=list)
    answers: int = 0
    seen: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        people = [
            threading.Thread(target=self._try, args=(what,), daemon=True)
            for what in (self._submit, self._wait, self._follow)
        ]
        for person in people:
            person.start()
        try:
            yield
        finally:
            self._over.set()
            for person in people:
                person.join(60)
        assert not any(person.is_alive() for person in people)

    def _try(self, what: Callable[[Client], None]) -> None:
        try:
            with self.entrance.client() as client:
                what(client)
        except Exception as error:
            self.problems.append(f"{what.__name__}: {error!r}")

    def _submit(self, client: Client) -> None:
        for number in count():
            over = self._over.wait(0.1)
            name = LAST if over else f"small-{number}"
            client.submit(_small(name))
            self.accepted.append(name)
            if over:
                return

    def _wait(self, client: Client) -> None:
        while not self._over.is_set():
            assert client.wait("long", "ended", timeout_seconds=3).status == "RUNNING"
            self.answers += 1

    def _follow(self, client: Client) -> None:
        start = client.event_page(limit=1).next
        for event in client.events(start, expand=True):
            if event.noun == "workload" and event.version == 1 and event.workload != "long":
                self.seen.append(str(event.workload))
                if event.workload == LAST:
                    return


@pytest.mark.slow
def test_a_rolling_restart_of_every_part_loses_no_request(servers: Servers, postgres_url: str) -> None:
    ports = [free_port(), free_port()]
    flags = ("--no-agent", "--demo", "--simulate", "3", "--database", postgres_url)
    first, second = (
        servers.start(*flags, "--port", str(port), name=name, environment=SHARED)
        for name, port in zip(("first", "second"), ports, strict=True)
    )
    with balancer(ports) as url:
        entrance = replace(first, url=url)
        agent = servers.node(entrance, "node")
        with entrance.client() as client:
            client.submit(_process("long"))
            eventually(lambda: client.workload("long").status == "RUNNING")
            started = client.workload("long").tasks
            load = Load(entrance)
            with load.running():
                eventually(lambda: load.accepted and load.answers)
                for leader, standby in ((first, second), (second, first)):
                    assert leader.leads()
                    assert leader.stop() == 0
                    eventually(standby.leads)
                    leader.start()
                _hand_over(first, second)
                assert agent.stop() == 0
                agent.token = None
                heard = client.node("node").last_seen_at
                agent.launch()
                eventually(lambda: client.node("node").last_seen_at != heard)
            assert load.problems == []
            assert set(load.accepted) <= {found.name for found in client.workloads(limit=1000, all=True).workloads}
            # Without a gap and without a repeat, from whichever server.
            assert load.seen == load.accepted
            eventually(lambda: client.wait(LAST, "running", timeout_seconds=60).status == "RUNNING")
            assert client.workload("long").tasks == started
            # The leader stores the state of its loops every few seconds.
            loops = eventually(lambda: client.loops().loops)
            assert {loop.found_by_timer for loop in loops} == {0}
    for server in (first, second):
        assert "Cancel" not in server.log
