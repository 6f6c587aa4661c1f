"""Tasks of a session on one node reach each other by name in the network that they share."""

from pathlib import Path

import pytest

from mooring.wire.agents.desired_tasks import Peer
from tests.agent.runtimes.container.conftest import Node, container, order
from tests.engine import Engine


async def test_main_reaches_its_peers_by_the_names_in_its_environment(engine: Engine, tmp_path: Path) -> None:
    async with Node(tmp_path, engine, container_networks=True) as node:
        serving = "while :; do echo hello from $HOSTNAME | nc -l -p 8080; done"
        sub = order(containers=[container("sh", "-c", serving, ports=[8080])], index=1, grace_seconds=0)
        await node.runtime.start(sub)
        address = (await node.until(sub, "RUNNING")).address
        if address is None:
            pytest.skip("the engine makes no networks on this machine")
        peers = [Peer(index=0, name="main"), Peer(index=1, name="sub1", address=address, ports=[8080])]
        asking = "until nc -w 5 sub1 8080 </dev/null; do :; done; echo $MOORING_PEERS $MOORING_PEER_ADDRESSES"
        main = order("sh", "-c", f"{asking} $MOORING_PEER_PORTS", workload_id=sub.workload_id, peers=peers)
        assert (await node.run(main)).status == "SUCCEEDED"
        assert (await node.output(main)).splitlines() == ["hello from hello-1", f"main,sub1 ,{address} ;8080"]
