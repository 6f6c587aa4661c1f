"""Real containers of an image that a password protects, on two nodes: what they need reaches them and is not left."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from mooring.client import Client
from mooring.wire.cluster.pools import PoolChange, PoolRequest
from mooring.wire.workloads.history import AttemptRow
from mooring.wire.workloads.secrets import RegistryLoginRequest
from mooring.wire.workloads.workloads import WorkloadDetail, WorkloadRequest
from tests.engine import BUSYBOX, Engine, running_engine
from tests.servers import RegistryServer, running_registry
from tests.system.conftest import Servers
from tests.system.faults.proxy import Link, running_proxy
from tests.system.servers import eventually

TELLING = 'echo "$MOORING_PEERS $MOORING_PEER_ADDRESSES"; exec sleep 600'
MEMORY = (Path("/run"), Path("/dev/shm"))
VALUE = b"what-the-project-keeps"
HELD_SECONDS, MAX_DURATION_SECONDS = 9, 10
"""Duration of a hold, and its maximum while the image is pulled."""
DEBUG = ("--log-level", "debug")


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with running_registry() as registry:
        yield registry


@pytest.fixture
def road(registry: RegistryServer) -> Iterator[Link]:
    """Another way to the registry, which may be slow."""
    with running_proxy() as proxy:
        yield proxy.link([registry.port])


@pytest.fixture
def customer(registry: RegistryServer, road: Link) -> Iterator[Engine]:
    """An engine that knows both ways to it."""
    with running_engine(registry.address, f"127.0.0.1:{road.ports[0]}") as customer:
        yield customer


@pytest.mark.slow
def test_registry_login_and_secrets_reach_containers_and_leave_no_trace(
    servers: Servers, registry: RegistryServer, road: Link, customer: Engine, engine: Engine
) -> None:
    tool = f"{registry.address}/team/tool:1"
    customer.push_busybox(tool, registry.username, registry.password)
    server = servers.start("--no-agent", *DEBUG)
    with server.client() as client:
        client.create_pool(PoolRequest(name="boxes", runtimes=["container"]))
        agents = [
            servers.node(server, "one", *DEBUG, "--engine", customer.socket, pool="boxes"),
            servers.node(server, "two", *DEBUG, pool="boxes", environment={"DOCKER_HOST": customer.socket}),
        ]
        client.put_secret("default", "db", VALUE)
        login = RegistryLoginRequest(username=registry.username, password=registry.password)
        _a_hold_is_extended_during_a_slow_pull(client, road, customer, login)
        _submit_session(client, "absent", "localhost/absent:1", pull="never")
        _submit_deployment(client, tool)
        refused = _ended(client, "early", tool)
        assert (refused.reason or {})["code"] == "image-denied"
        eventually(lambda: "store a login of the project" in json.dumps(client.workload("web").reason))
        client.put_registry_login("default", registry.address, login)
        missing = _ended(client, "missing", f"{registry.address}/team/tool:2")
        assert (missing.reason or {})["message"] == f"registry {registry.address} has no image {missing.image}"
        [tried] = _attempts_to_prepare(client, "missing")
        assert (tried.result, tried.code) == ("give_up", "image-not-found")

        _submit_session(client, "train", tool, replicas=2, gang=True, max_per_node=1)
        eventually(lambda: client.workload("train").status in ("RUNNING", "FAILED"))
        main, sub = client.workload("train").tasks
        assert {main.node, sub.node} == {"one", "two"}
        assert main.digests == sub.digests
        assert main.digests["main"].startswith("sha256:")
        assert main.started_at is not None
        assert sub.started_at is not None
        assert main.started_at >= sub.started_at
        said = [eventually(partial(_output, client, "train", index)) for index in (0, 1)]
        # Both nodes are on this machine, whose loopback is no address of a peer.
        assert said == ["main,sub1 ,\n"] * 2

        # It was tried again meanwhile.
        eventually(lambda: client.wait("web", "running", timeout_seconds=60).status == "RUNNING")
        digest = hashlib.sha256(VALUE).hexdigest()
        eventually(lambda: digest in _output(client, "web", 0))
        [web] = [task for task in client.workload("web").tasks if task.current]
        [node_id] = [node.id for node in client.nodes().nodes if node.name == web.node]
        held = [file for memory in MEMORY for file in memory.glob(f"mooring-{node_id}/*/main/password")]
        assert [file.read_bytes() for file in held] == [VALUE]
        # Where an image is not there it may be elsewhere.
        placed = eventually(partial(_reasons, client, "absent", "Placed on", 2))
        assert {"Placed on one", "Placed on two"} == set(placed[:2])
        tried = _attempts_to_prepare(client, "absent")[0]
        assert (tried.result, tried.code) == ("retry", "image-not-present")
        for name in ("train", "web", "absent"):
            client.remove(name)
        eventually(lambda: not any(file.exists() for file in held))
        eventually(lambda: not customer.containers())
        agents.append(servers.node(server, "three", *DEBUG, "--engine", engine.socket, pool="boxes"))
        _work_goes_where_its_image_is(client, tool)
    for agent in agents:
        agent.kill()  # Its files stay as they are.
    files = [file for agent in agents for file in agent.data.rglob("*") if file.is_file()]
    for secret in (VALUE, registry.password.encode()):
        assert not [file for file in files if secret in file.read_bytes()]
        for program in (server, *agents):
            assert secret not in program.log.encode()


def _a_hold_is_extended_during_a_slow_pull(
    client: Client, road: Link, customer: Engine, login: RegistryLoginRequest
) -> None:
    """For as long as the pool says, and no longer: then it is tried again."""
    slow = f"127.0.0.1:{road.ports[0]}"
    client.put_registry_login("default", slow, login)
    # Its layers are not on the node by another name.
    customer.run("rmi", BUSYBOX)
    patient = PoolChange(binding="two_phase", hold_seconds=HELD_SECONDS, hold_max_seconds=MAX_DURATION_SECONDS)
    client.change_pool("boxes", patient)
    road.slow_down()
    _submit_session(client, "large", f"{slow}/team/tool:1")
    eventually(lambda: client.workload("large").tasks[0].reason == f"pulling {slow}/team/tool:1: 0 of 2 MB")
    tried = eventually(lambda: _attempts_to_prepare(client, "large"))
    assert [(each.result, each.code) for each in tried] == [("retry", "hold-expired")]
    assert f"the agents were not ready (pulling {slow}/team/tool:1: 0 of 2 MB)" in (tried[0].message or "")
    stored = [row.at for row in client.history("large").history if row.new_status == "RESERVED"]
    assert tried[0].first_at - stored[0] >= timedelta(seconds=MAX_DURATION_SECONDS)
    road.heal()
    client.change_pool("boxes", PoolChange(binding="optimistic"))
    assert client.wait("large", "running", timeout_seconds=60).status == "RUNNING"
    client.remove("large")


def _attempts_to_prepare(client: Client, name: str) -> list[AttemptRow]:
    """Return the attempts without those to bind: a node may change between a decision and its commit at any time."""
    return [attempt for attempt in client.history(name).attempts if attempt.phase == "prepare"]


def _work_goes_where_its_image_is(client: Client, tool: str) -> None:
    """As soon as the third node has reported its images, and that it has as little to do as the others."""
    local, other = _session("local", BUSYBOX, pull="never"), _session("other", tool, pull="never")

    def apart() -> bool:
        [here], [there] = (client.dry_run(work).tasks for work in (local, other))
        return here.node == "three" and there.node in ("one", "two")

    eventually(apart)
    client.submit(local)
    assert client.wait("local", "running", timeout_seconds=60).status == "RUNNING"
    client.remove("local")
    eventually(lambda: client.workload("local").ended_at)


def _submit_deployment(client: Client, image: str) -> None:
    container = {
        "image": image,
        "command": ["sh", "-c", "sha256sum /run/secrets/password; sleep 600"],
        "secrets": {"password": "db"},
    }
    work = {"name": "web", "kind": "deployment", "pool": "boxes", "stop_grace_seconds": 0, "containers": [container]}
    client.submit(WorkloadRequest.model_validate(work))


def _submit_session(client: Client, name: str, image: str, *, pull: str = "always", **more: object) -> None:
    client.submit(_session(name, image, pull=pull, **more))


def _session(name: str, image: str, *, pull: str, **more: object) -> WorkloadRequest:
    container = {"image": image, "command": ["sh", "-c", TELLING], "pull": pull, "resources": {"cpu": "100m"}}
    work = {"name": name, "containers": [container], "stop_grace_seconds": 0, **more}
    return WorkloadRequest.model_validate(work)


def _ended(client: Client, name: str, image: str) -> WorkloadDetail:
    _submit_session(client, name, image)
    eventually(lambda: client.workload(name).status == "FAILED")
    return client.workload(name)


def _output(client: Client, name: str, index: int) -> str:
    return b"".join(client.logs(name, task=index)).decode()


def _reasons(client: Client, name: str, start: str, count: int) -> list[str]:
    """Those in its history that begin so, as soon as there are so many."""
    found = [row.reason for row in client.history(name).history if row.reason and row.reason.startswith(start)]
    return found if len(found) >= count else []
