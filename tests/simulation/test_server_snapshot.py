"""Nodes and pools as a server shows them, read for a simulation."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from mooring.model.policy.pools import HeadOfLine
from mooring.model.workloads.constraints import Taint
from mooring.simulation.inputs.nodes import nodes_of_server, pools_of_server
from mooring.wire.cluster.nodes import DeviceView, NodeView, SlotView, TaintView
from mooring.wire.cluster.pools import BackfillView, PoolView, PreemptionView

AT = datetime(2026, 1, 1, tzinfo=UTC)


def node(name: str, **rest: object) -> NodeView:
    slot = SlotView(capacity="2", allocatable="2", held="0", reserved="0", used="1", free="1")
    values: dict[str, object] = {
        "id": UUID(int=1),
        "name": name,
        "pool": "gpu",
        "status": "READY",
        "schedulable": True,
        "reason": None,
        "simulated": False,
        "region": "eu",
        "architecture": "x86_64",
        "runtimes": ["process"],
        "labels": {"rack": "r1"},
        "slots": {"gpu": slot},
        "devices": {"gpu": [DeviceView(index=3, model="A100", memory=80, capacity=1000, taken=500)]},
        "enforces": {},
        "tasks": 1,
        "cpu_percent": 0,
        "memory_percent": 0,
        "last_seen_at": None,
        "owner": None,
        "taints": [TaintView(key="a", value="b", effect="NoSchedule", since=AT)],
    }
    return NodeView.model_validate(values | rest)


def test_node_is_taken_empty_with_its_devices_labels_and_taints():
    (found,) = nodes_of_server([node("one"), node("two", status="LOST"), node("three", schedulable=False)])
    assert (found.name, found.pool, found.region, found.labels) == ("one", "gpu", "eu", {"rack": "r1"})
    assert found.allocatable == {"gpu": 2000}
    assert not found.used
    (device,) = found.devices["gpu"]
    assert (device.index, device.model, device.taken) == (3, "A100", 0)
    assert found.taints == (Taint("a", "b"),)


def test_policy_is_that_of_the_pool():
    view = PoolView(
        name="gpu",
        simulated=False,
        runtimes=["process"],
        profile="gpu",
        binding="optimistic",
        hold_seconds=60,
        fragmentation=True,
        preemption=PreemptionView(mode="terminate", scope="user", min_runtime_seconds=5, hold_seconds=300),
        sequencer="drf",
        head_of_line="strict",
        backfill=BackfillView(depth=7),
        allowed_types=["batch"],
        max_time_seconds=600,
        default_cpu="2",
        nodes=1,
    )
    policy = pools_of_server([view])["gpu"]
    assert (policy.profile, policy.sequencer, policy.head_of_line) == ("gpu", "drf", HeadOfLine.STRICT)
    assert (policy.fragmentation, policy.backfill.depth, policy.max_time_seconds) == (True, 7, 600)
    assert policy.preemption is not None
    assert (policy.preemption.mode, policy.preemption.min_runtime_seconds) == ("terminate", 5)
