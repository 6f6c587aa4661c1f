"""Networks that come and go with their workloads, also where one ends while the next task of it begins."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from typing import cast
from uuid import UUID, uuid4

import pytest

from mooring.agent.containers import networks
from mooring.agent.containers.engine import Engine
from mooring.agent.containers.networks import Networks
from mooring.agent.containers.specification import NODE
from tests.agent.conftest import needs_root


class SlowEngine:
    """An engine that takes its time to remove a network."""

    def __init__(self, node_id: UUID) -> None:
        self.done: list[str] = []
        self.removing = asyncio.Event()
        self.go_on = asyncio.Event()
        self._labels = {NODE: str(node_id)}
        self._name = ""

    async def make_network(self, name: str, bridge: str, labels: Mapping[str, str]) -> None:
        self._name = name
        self.done.append("made")

    async def networks(self, label: str) -> list[tuple[str, Mapping[str, str]]]:
        return [(self._name, self._labels)]

    async def remove_network(self, name: str) -> None:
        self.removing.set()
        await self.go_on.wait()
        self.done.append("removed")


async def test_a_task_that_comes_while_its_network_goes_has_one_that_is_guarded(monkeypatch: pytest.MonkeyPatch):
    workload_id, node_id = uuid4(), uuid4()
    engine, own = SlowEngine(node_id), Networks(node_id, wanted=True)

    def guard(_: str) -> bool:
        engine.done.append("guarded")
        return True

    monkeypatch.setattr(networks, "_guard", guard)
    monkeypatch.setattr(networks, "_unguard", lambda _: engine.done.append("not guarded"))
    await own.join(cast(Engine, engine), workload_id)
    leaving = asyncio.create_task(own.tidy(cast(Engine, engine), lambda: iter(())))
    await engine.removing.wait()
    coming = asyncio.create_task(own.join(cast(Engine, engine), workload_id))
    for _ in range(10):
        await asyncio.sleep(0)
    engine.go_on.set()
    await asyncio.gather(leaving, coming)
    assert engine.done == ["guarded", "made", "removed", "not guarded", "guarded", "made"]


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
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    assert bridge not in saved
