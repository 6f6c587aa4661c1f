"""Networks that come and go with their workloads, also where one ends while the next task of it begins."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import pytest

from mooring.agent.runtimes.container import networks
from mooring.agent.runtimes.container.engine import Engine, EngineRefused
from mooring.agent.runtimes.container.networks import Networks
from mooring.agent.runtimes.container.specification import NODE
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent import builders
from tests.agent.conftest import needs_root
from tests.agent.runtimes.container.conftest import Node, order
from tests.engine import BUSYBOX
from tests.engine import Engine as RealEngine


class SlowEngine:
    """An engine that takes its time to remove a network."""

    def __init__(self, node_id: UUID) -> None:
        self.done: list[str] = []
        self.removing = asyncio.Event()
        self.go_on = asyncio.Event()
        self._labels = {NODE: str(node_id)}
        self._name = ""

    async def make_network(self, name: str, bridge: str, labels: Mapping[str, str], subnet: str | None = None) -> None:
        self._name = name
        self.done.append("made")

    async def networks(self, label: str) -> list[tuple[str, Mapping[str, str]]]:
        return [(self._name, self._labels)]

    async def remove_network(self, name: str) -> None:
        self.removing.set()
        await self.go_on.wait()
        self.done.append("removed")


@pytest.fixture
def ending() -> Iterator[DesiredTask]:
    """A task whose network has an interface already, as after an engine was killed while it made the network."""
    task = order("sleep", "1000", grace_seconds=0)
    interface = networks._bridge(network_of(task))
    subprocess.run(["ip", "link", "add", interface, "type", "bridge"], check=True)
    yield task
    subprocess.run(["ip", "link", "delete", interface], capture_output=True, check=False)


@pytest.mark.slow
async def test_only_unused_networks_of_the_node_are_removed(engine: RealEngine, tmp_path: Path, ending: DesiredTask):
    going_on = order("sleep", "1000", grace_seconds=0)
    left, stored = network_of(ending), network_of(going_on)
    strangers = {f"mooring-{uuid4().hex}": labels for labels in ([], ["--label", f"{NODE}={uuid4()}"])}
    async with Node(tmp_path, engine, container_networks=True, scan_seconds=0.05) as node:
        for task in (ending, going_on):
            await node.runtime.start(task)
            if (await node.until(task, "RUNNING")).address is None:
                pytest.skip("the engine creates no networks on this machine")
        for name, labels in strangers.items():
            engine.run("network", "create", *labels, name)
        engine.run("run", "--detach", "--name", "guest", "--network", left, BUSYBOX, "sleep", "1000")
        await node.runtime.stop(ending.task_id, 0, "requested")
        await node.end(ending)
        assert {left, stored, *strangers} <= networks_of(engine)
        engine.remove("guest")
        await builders.eventually(lambda: left not in networks_of(engine))
        await builders.eventually(lambda: not traces_of(left))
        assert {stored, *strangers} <= networks_of(engine)
        assert traces_of(stored)
    engine.run("network", "rm", *strangers)


def network_of(task: DesiredTask) -> str:
    return f"mooring-{task.workload_id.hex}"


def networks_of(engine: RealEngine) -> set[str]:
    return set(engine.run("network", "ls", "--format", "{{.Name}}").split())


def traces_of(network: str) -> list[str]:
    """Return the traces of a network on the machine outside the engine."""
    interface = networks._bridge(network)
    folders = [networks._ADDRESS_BOOKS / network, Path("/sys/class/net", interface)]
    return [str(folder) for folder in folders if folder.exists()] + re.findall(f".*{interface}.*", rules())


async def test_a_task_that_comes_while_its_network_goes_has_one_that_is_guarded(monkeypatch: pytest.MonkeyPatch):
    workload_id, node_id = uuid4(), uuid4()
    engine, own = SlowEngine(node_id), Networks(node_id, wanted=True)

    def guard(_: str) -> bool:
        engine.done.append("guarded")
        return True

    monkeypatch.setattr(networks, "_guard", guard)
    monkeypatch.setattr(networks, "_unguard", lambda _: engine.done.append("not guarded"))
    await own.join(cast(Engine, engine), workload_id)
    leaving = asyncio.create_task(own.clean_up(cast(Engine, engine), lambda: iter(())))
    await engine.removing.wait()
    coming = asyncio.create_task(own.join(cast(Engine, engine), workload_id))
    for _ in range(10):
        await asyncio.sleep(0)
    engine.go_on.set()
    await asyncio.gather(leaving, coming)
    assert engine.done == ["guarded", "made", "removed", "not guarded", "guarded", "made"]


class FullEngine:
    """An engine whose own choice of addresses is used up, and that has something against one network's addresses."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    async def make_network(self, name: str, bridge: str, labels: Mapping[str, str], subnet: str | None = None) -> None:
        self.asked.append(subnet)
        if subnet is None:
            raise EngineRefused("could not find an available, non-overlapping IPv4 address pool", 404)
        if len(self.asked) == 2:
            raise EngineRefused("Pool overlaps with other one on this address space", 403)


async def test_a_workload_has_a_network_also_where_the_engine_has_no_addresses_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(networks, "_guard", lambda _: True)
    engine, workload_id = FullEngine(), uuid4()
    name = await Networks(uuid4(), wanted=True).join(cast(Engine, engine), workload_id)
    assert name == f"mooring-{workload_id.hex}"
    own, *given = engine.asked
    assert own is None
    assert len(given) == 2
    assert all(IPv4Network(each).subnet_of(IPv4Network("10.128.0.0/9")) for each in given if each)


def test_the_node_s_own_networks_are_known_by_its_routes(tmp_path: Path):
    (tmp_path / "route").write_text("""Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0
vpn0 0000C80A 00000000 0001 0 0 0 0000F8FF 0 0 0
eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0
""")
    assert networks._routed(tmp_path / "route") == [IPv4Network("10.200.0.0/13"), IPv4Network("192.0.2.0/24")]


@needs_root
def test_no_rule_of_a_network_outlives_it():
    bridge = f"moor{uuid4().hex[:11]}"
    if not networks._guard(bridge):
        pytest.skip("no iptables on this machine")
    # As the plugin that keeps networks apart leaves it.
    comment = ["-m", "comment", "--comment", "CNI firewall plugin rules (ingressPolicy: same-bridge)"]
    for chain in ("CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"):
        subprocess.run(["iptables", "--wait", "5", "-N", chain], capture_output=True, check=False)
    between = ["-i", bridge, "!", "-o", bridge, *comment, "-j", "CNI-ISOLATION-STAGE-2"]
    for rule in (["CNI-ISOLATION-STAGE-1", *between], ["CNI-ISOLATION-STAGE-2", "-o", bridge, *comment, "-j", "DROP"]):
        subprocess.run(["iptables", "--wait", "5", "-I", *rule], capture_output=True, check=True)
    networks._unguard(bridge)
    assert bridge not in rules()


def rules() -> str:
    return subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
