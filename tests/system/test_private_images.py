"""A real container of an image that a password protects, with a secret: both reach it, and nothing of them is left."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from mooring.wire.api import JoinTokenRequest, WorkloadRequest
from mooring.wire.pools import PoolRequest
from mooring.wire.secrets import RegistryLoginRequest
from tests.engine import BUSYBOX, running_engine
from tests.servers import running_registry
from tests.system.conftest import Servers
from tests.system.servers import eventually

MEMORY = (Path("/run"), Path("/dev/shm"))
VALUE = b"what-the-project-keeps"


def test_a_container_gets_its_private_image_and_its_secret_and_neither_is_left_on_the_node(servers: Servers) -> None:
    with running_registry() as registry, running_engine(registry.address) as engine:
        tool = f"{registry.address}/team/tool:1"
        engine.run("push", "--creds", f"{registry.username}:{registry.password}", BUSYBOX, tool)
        server = servers.start("--no-agent", "--log-level", "debug")
        with server.client() as admin:
            admin.create_pool(PoolRequest(name="boxes", runtimes=["container"]))
            token = admin.create_join_token(JoinTokenRequest(name="worker", pool="boxes")).token
            agent = servers.agent(
                server, "worker", token, "--log-level", "debug", environment={"DOCKER_HOST": engine.socket}
            )
            eventually(lambda: any(node.name == "worker" and node.status == "READY" for node in admin.nodes().nodes))
            admin.put_secret("default", "db", VALUE)
            container = {
                "image": tool,
                "command": ["sh", "-c", "sha256sum /run/secrets/password; sleep 600"],
                "secrets": {"password": "db"},
            }
            deployment = {"name": "web", "kind": "deployment", "pool": "boxes", "stop_grace_seconds": 0}
            work = {**deployment, "containers": [container]}
            admin.submit(WorkloadRequest.model_validate(work))
            eventually(lambda: "give the project a login" in json.dumps(admin.workload("web").reason))

            login = RegistryLoginRequest(username=registry.username, password=registry.password)
            admin.put_registry_login("default", registry.address, login)
            assert admin.wait("web", "running", timeout_seconds=60).status == "RUNNING"
            digest = hashlib.sha256(VALUE).hexdigest()
            eventually(lambda: digest in b"".join(admin.logs("web")).decode())
            node_id = next(node.id for node in admin.nodes().nodes if node.name == "worker")
            held = [file for memory in MEMORY for file in memory.glob(f"mooring-{node_id}/*/main/password")]
            assert [file.read_bytes() for file in held] == [VALUE]
            admin.remove("web")
            eventually(lambda: not any(file.exists() for file in held))
        files = [file for file in agent.data.rglob("*") if file.is_file()]
        for secret in (VALUE, registry.password.encode()):
            assert not [file for file in files if secret in file.read_bytes()]
            assert secret not in (server.log + agent.log).encode()
