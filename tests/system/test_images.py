"""A real session of containers on two nodes, from an image behind a password; and one whose image is not there."""

from __future__ import annotations

from functools import partial

from mooring.client import Client
from mooring.wire.api import JoinTokenRequest, WorkloadDetail, WorkloadRequest
from mooring.wire.pools import PoolRequest
from mooring.wire.secrets import RegistryLoginRequest
from tests.engine import BUSYBOX, running_engine
from tests.servers import running_registry
from tests.system.conftest import Servers
from tests.system.servers import NodeAgent, Server, eventually

TELLING = 'echo "$MOORING_PEERS $MOORING_PEER_ADDRESSES"; exec sleep 600'


def test_a_session_gets_its_image_with_the_projects_login_and_starts_main_last(servers: Servers) -> None:
    with running_registry() as registry, running_engine(registry.address) as engine:
        tool = f"{registry.address}/team/tool:1"
        engine.run("push", "--creds", f"{registry.username}:{registry.password}", BUSYBOX, tool)
        server = servers.start("--no-agent")
        with server.client() as client:
            client.create_pool(PoolRequest(name="boxes", runtimes=["container"]))
            agents = [_node(servers, server, client, name, engine.socket) for name in ("one", "two")]
            refused = _ended(client, "early", tool)
            assert (refused.reason or {})["code"] == "image-denied"
            login = RegistryLoginRequest(username=registry.username, password=registry.password)
            client.put_registry_login("default", registry.address, login)
            missing = _ended(client, "missing", f"{registry.address}/team/tool:2")
            assert (missing.reason or {})["message"] == f"registry {registry.address} has no image {missing.image}"
            [tried] = client.history("missing").attempts
            assert (tried.phase, tried.result, tried.code) == ("prepare", "give_up", "image-not-found")

            _submit(client, "train", tool, replicas=2, gang=True, max_per_node=1)
            eventually(lambda: client.workload("train").status in ("RUNNING", "FAILED"))
            main, sub = client.workload("train").tasks
            assert {main.node, sub.node} == {"one", "two"}
            assert main.digests == sub.digests
            assert main.digests["main"].startswith("sha256:")
            assert main.started_at is not None
            assert sub.started_at is not None
            assert main.started_at >= sub.started_at
            said = [eventually(partial(_output, client, index)) for index in (0, 1)]
            assert said == ["main,sub1 127.0.0.1,127.0.0.1\n"] * 2
            client.remove("train")
            eventually(lambda: not engine.containers())
        for program in (server, *agents):
            assert registry.password not in program.log


def _node(servers: Servers, server: Server, client: Client, name: str, engine: str) -> NodeAgent:
    token = client.create_join_token(JoinTokenRequest(name=name, pool="boxes")).token
    agent = servers.agent(server, name, token, "--engine", engine)
    eventually(lambda: any("container" in node.runtimes for node in client.nodes().nodes if node.name == name))
    return agent


def _submit(client: Client, name: str, image: str, **more: object) -> None:
    container = {"image": image, "command": ["sh", "-c", TELLING], "pull": "always", "resources": {"cpu": "100m"}}
    client.submit(WorkloadRequest.model_validate({"name": name, "containers": [container], **more}))


def _ended(client: Client, name: str, image: str) -> WorkloadDetail:
    _submit(client, name, image)
    eventually(lambda: client.workload(name).status == "FAILED")
    return client.workload(name)


def _output(client: Client, index: int) -> str:
    return b"".join(client.logs("train", task=index)).decode()
