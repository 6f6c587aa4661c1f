"""The tasks of a real session on two nodes are told where the others are, and main comes last."""

from __future__ import annotations

from functools import partial

from mooring.client import Client
from mooring.wire.api import WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import eventually

TELLING = 'echo "$MOORING_PEERS $MOORING_PEER_ADDRESSES $MOORING_PEER_PORTS"; echo "$MOORING_PORTS"; exec sleep 600'


def test_main_starts_last_and_all_know_where_the_others_are(servers: Servers) -> None:
    server = servers.start("--no-agent")
    for name in ("one", "two"):
        servers.node(server, name)
    request = {
        "name": "train",
        "replicas": 2,
        "gang": True,
        "max_per_node": 1,
        "containers": [{"command": ["sh", "-c", TELLING], "resources": {"cpu": "100m"}}],
        "placement": {"ports": 2},
    }
    with server.client() as client:
        client.submit(WorkloadRequest.model_validate(request))
        eventually(lambda: client.workload("train").status == "RUNNING")
        main, sub = client.workload("train").tasks
        assert {main.node, sub.node} == {"one", "two"}
        assert main.started_at is not None
        assert sub.started_at is not None
        assert main.started_at >= sub.started_at
        said = [eventually(partial(_lines, client, index)) for index in (0, 1)]
        ports = ";".join(own for _, own in said)
        assert [told for told, _ in said] == [f"main,sub1 127.0.0.1,127.0.0.1 {ports}"] * 2
        client.remove("train")
        server.assert_books_agree()


def _lines(client: Client, index: int) -> list[str]:
    """What a task said, once it has said all."""
    lines = b"".join(client.logs("train", task=index)).decode().splitlines()
    return lines if len(lines) == 2 else []
