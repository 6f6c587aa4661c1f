"""A server killed at random moments: accepted work is placed once, or fails with its reason."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import psutil
import pytest

from mooring.client import Client
from mooring.model.errors import Conflict, Unavailable
from mooring.wire.workloads.workloads import WorkloadDetail, WorkloadRequest, WorkloadView
from tests.servers import free_port
from tests.system.conftest import Servers
from tests.system.servers import PASSWORD, Server, eventually, process_of

SUBMITTERS = 4
NODES = 20
TOO_MANY = 30
ENDS = ("RUNNING", "FAILED")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("database_flags", "kills", "deployments"),
    [("sqlite", 10, 100), ("postgresql", 4, 40)],
    indirect=["database_flags"],
)
def test_a_killed_server_loses_nothing_and_places_nothing_twice(
    servers: Servers, database_flags: list[str], kills: int, deployments: int
) -> None:
    with seeded() as chance:
        kill_through_a_burst(servers, database_flags, kills, deployments, chance)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_a_server_killed_a_hundred_times_loses_nothing(servers: Servers, database_flags: list[str], seed: int) -> None:
    with seeded(seed) as chance:
        kill_through_a_burst(servers, database_flags, 100, 1000, chance)


@pytest.mark.slow
def test_an_interrupted_first_start_is_completed_by_the_next(servers: Servers) -> None:
    """Wherever the first start ends, another makes a whole server of it, and its owner can log in."""
    server = servers.prepare("--simulate", "20", "--no-agent")
    server.environment = {}  # a random password, which must not get lost
    with seeded() as chance:
        for _ in range(3):
            server.launch()
            # Not before it has begun to make something.
            eventually(lambda: (server.data / "lock").exists())
            time.sleep(chance.uniform(0, 0.4))
            server.kill()
        server.start()
        mooring = servers.cli()
        mooring.out("login", "--data", str(server.data))
        assert "sim-20" in mooring.out("nodes")
        mooring.out("audit")
    server.stop()


def test_processes_outlive_their_server_and_are_not_started_twice(servers: Servers) -> None:
    server = servers.start()
    with server.client() as client:
        gate = servers.folder / "gate"
        script = f"echo $MOORING_TASK_ID; while [ ! -e {gate} ]; do sleep 0.05; done; exit 42"
        waiting = client.submit(_process("waiting", script)).id
        brief = client.submit(
            _process("brief", f"echo $MOORING_TASK_ID; while [ ! -e {gate}-brief ]; do sleep 0.05; done; exit 7")
        ).id
        pid = _printed_pid(client, "waiting")
        brief_pid = _printed_pid(client, "brief")

    server.kill()
    assert psutil.pid_exists(pid)
    (servers.folder / "gate-brief").touch()
    eventually(lambda: not psutil.pid_exists(brief_pid))

    server.start()
    with server.client() as client:
        # It ended while no server was running.
        ended = _end_of(client, brief)
        assert [task.exit_code for task in ended.tasks] == [7]
        eventually(lambda: any(node.status == "READY" for node in client.nodes().nodes))
        assert client.workload(str(waiting)).status == "RUNNING"
        assert psutil.pid_exists(pid)
        gate.touch()
        ended = _end_of(client, waiting)
        assert [(task.attempt, task.exit_code, task.restarts) for task in ended.tasks] == [(1, 42, 0)]
        assert b"".join(client.logs("waiting")).split() == [str(ended.tasks[0].id).encode()]


@pytest.mark.slow
def test_a_followed_run_continues_when_its_server_is_back(servers: Servers) -> None:
    server = servers.start("--port", str(free_port()))
    mooring = servers.cli()
    mooring.out("login", "--data", str(server.data))
    gate = servers.folder / "gate"
    script = f"echo one; while [ ! -e {gate} ]; do sleep 0.05; done; echo two; exit 5"
    with mooring.begin("run", "--", "sh", "-c", script) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "one\n"
        server.kill()
        server.start()
        gate.touch()
        assert run.communicate(timeout=180)[0] == "two\n"
        assert run.returncode == 5


@contextmanager
def seeded(seed: int | None = None) -> Iterator[random.Random]:
    """Randomness whose seed is printed when the block fails."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    try:
        yield random.Random(seed)
    except Exception as problem:
        problem.add_note(f"the seed was {seed}")
        raise


def kill_through_a_burst(
    servers: Servers, flags: list[str], kills: int, deployments: int, chance: random.Random
) -> None:
    """Submit in parts and kill in the middle of each; then everything that was accepted must have come to an end."""
    server = servers.start("--simulate", str(NODES), "--no-agent", *flags)
    with server.client() as client:
        token = client.login("admin", PASSWORD).access_token
    burst = Burst(deployments, chance)
    for killed in range(1, kills + 1):
        if not server.alive and chance.random() < 0.5:
            # Killed again while it starts.
            server.launch()
            time.sleep(chance.uniform(0.2, 1.0))
            server.kill()
            continue
        if not server.alive:
            server.start()
        # Most of the work of a part is done within the first moments.
        until_killed = chance.uniform(0, chance.choice([0.03, 0.3]))
        with Client(server.url, token=token) as client:
            burst.submit(client, server, deployments * killed // kills, until_killed)
    server.start()
    with Client(server.url, token=token) as client:
        burst.submit(client, None, deployments, 0)
        burst.check(client)
    server.assert_books_agree()


@dataclass
class Burst:
    """Deployments that are asked for until each of them is known to be accepted."""

    size: int
    chance: random.Random
    replicas: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number in range(self.size):
            # One in ten asks for more nodes of that size than there are.
            self.replicas[f"burst-{number}"] = TOO_MANY if number % 10 == 9 else self.chance.randint(1, 3)

    def submit(self, client: Client, victim: Server | None, until: int, until_killed: float) -> None:
        """Ask for what is not accepted yet, up to a number; the victim is killed meanwhile."""
        left = [name for name in list(self.replicas)[:until] if name not in self.accepted]
        ask: SimpleQueue[str] = SimpleQueue()
        for name in left:
            ask.put(name)
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            asking = [pool.submit(self._submit_all, client, ask) for _ in range(SUBMITTERS)]
            if victim is not None:
                time.sleep(until_killed)
                victim.kill()
            for future in asking:
                future.result()

    def _submit_all(self, client: Client, names: SimpleQueue[str]) -> None:
        while not names.empty():
            try:
                name = names.get_nowait()
            except Empty:
                return
            try:
                self.accepted[name] = str(client.submit(self._request(name)).id)
            except Conflict as taken:
                if taken.code != "name-taken":
                    raise
                # The answer to the first try was lost with the server, the deployment was not.
                self.accepted[name] = name
            except Unavailable:
                return

    def _request(self, name: str) -> WorkloadRequest:
        return WorkloadRequest.model_validate(
            {
                "name": name,
                "kind": "deployment",
                "replicas": self.replicas[name],
                "gang": True,
                "max_per_node": 1,
                "on_insufficient": "fail",
                "containers": [{"image": "nginx:latest", "resources": {"cpu": "50m", "memory": "16Mi"}}],
            }
        )

    def check(self, client: Client) -> None:
        assert self.accepted.keys() == self.replicas.keys()
        listed = list(_listed(client))
        # The name of one that failed is free again, so it may be there twice: once for each time that it was asked for.
        lasting = Counter(workload.name for workload in listed if self.replicas[workload.name] != TOO_MANY)
        assert lasting == Counter(name for name, replicas in self.replicas.items() if replicas != TOO_MANY)
        for unsettled in (workload for workload in listed if workload.status not in ENDS):
            assert client.wait(str(unsettled.id), "running", timeout_seconds=60).status in ENDS, unsettled
        placed: Counter[str] = Counter()
        for name, ref in self.accepted.items():
            detail = client.workload(ref)
            scheduled = Counter(
                row.object_id
                for row in client.history(ref).history
                if row.noun == "task" and row.new_status == "SCHEDULED"
            )
            if self.replicas[name] == TOO_MANY:
                assert detail.status == "FAILED", detail
                assert detail.reason is not None
                # A node that was full at that moment was not found.
                assert re.search(rf"Insufficient nodes: need {TOO_MANY}, found \d+", detail.reason["message"])
                assert not scheduled
            else:
                assert detail.status == "RUNNING", detail
                nodes = [task.node for task in detail.tasks]
                assert len(nodes) == len(set(nodes)) == self.replicas[name] == detail.running
                assert set(scheduled.values()) == {1}
                assert len(scheduled) == self.replicas[name]
                placed.update(str(node) for node in nodes)
        assert {node.name: node.tasks for node in client.nodes().nodes if node.tasks} == dict(placed)


def _listed(client: Client) -> Iterator[WorkloadView]:
    offset = 0
    while page := client.workloads(limit=500, offset=offset, sort="created_at").workloads:
        yield from page
        offset += len(page)


def _end_of(client: Client, ref: object) -> WorkloadDetail:
    detail = client.wait(str(ref), timeout_seconds=60)
    assert detail.status in ("SUCCEEDED", "FAILED")
    return detail


def _process(name: str, script: str) -> WorkloadRequest:
    return WorkloadRequest.model_validate({"name": name, "containers": [{"command": ["sh", "-c", script]}]})


def _printed_pid(client: Client, ref: str) -> int:
    def output() -> bytes:
        try:
            return b"".join(client.logs(ref))
        except (Conflict, Unavailable):  # not placed or not started yet
            return b""

    return process_of(eventually(output))
