"""A real server's history, replayed through the simulation: the same decisions in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from random import Random
from typing import Any
from uuid import UUID

import pytest

from mooring.client import Client
from mooring.model.lifecycle import NodeStatus
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import PoolPolicy
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.simulation.history import Step, replay_history
from mooring.simulation.jobs import Job
from mooring.store.core.engine import Database
from mooring.store.nodes import nodes as node_store
from mooring.store.nodes import pools as pool_store
from mooring.wire.cluster.nodes import NodeRequest
from mooring.wire.cluster.pools import PoolChange, PoolRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.conftest import Servers
from tests.system.scheduling import placement_history
from tests.system.scheduling.placement_history import History
from tests.system.servers import Server, eventually

POLICIES: Mapping[str, dict[str, Any]] = {
    "first": {"sequencer": "fifo", "head_of_line": "strict", "profile": "spread"},
    "filled": {"sequencer": "fifo", "head_of_line": "backfill", "profile": "pack"},
    "shared": {"sequencer": "fair_queue", "head_of_line": "skip", "profile": "balanced"},
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replay_of_a_servers_history_makes_every_decision_of_the_server(servers: Servers, seed: int) -> None:
    server = servers.start("--no-agent")
    random = Random(seed)
    with server.client() as client:
        for pool, options in POLICIES.items():
            client.create_pool(PoolRequest(name=pool, simulated=True, runtimes=["container"]))
            client.change_pool(pool, PoolChange.model_validate(options))
            for number in range(3):
                resources = {"cpu": random.choice([8, 16]), "memory": "64Gi"}
                request = {"name": f"{pool}-{number}", "pool": pool, "simulated": True, "resources": resources}
                client.add_node(NodeRequest.model_validate(request))
        recorded = asyncio.run(_nodes_and_pools(server))
        submitted: list[str] = []
        drained: set[str] = set()
        for number in range(100):
            _one_change(client, random, number, submitted, drained)
            _settle(client)
    history = asyncio.run(_history(server))
    expected, found = _decisions(history), _replayed(history, *recorded)
    assert found == expected
    assert len(expected) > 30
    nodes, pools = recorded
    others = {name: replace(policy, profile="pack", sequencer="lifo") for name, policy in pools.items()}
    assert _replayed(history, nodes, others) != expected


def _one_change(client: Client, random: Random, number: int, submitted: list[str], drained: set[str]) -> None:
    """Change one thing: submit a workload, cancel one, or drain or resume a node."""
    kind = random.random()
    if kind < 0.4 and submitted:
        # The oldest workloads run, so that others start when they end.
        client.cancel(submitted.pop(random.randrange(min(len(submitted), 4))))
    elif kind < 0.5 and drained:
        client.resume_node(drained.pop())
    elif kind < 0.45 and not drained:
        node = f"{random.choice(list(POLICIES))}-{random.randrange(3)}"
        client.drain_node(node)
        drained.add(node)
    else:
        name = f"w{number}"
        gang = random.random() < 0.3
        container = {"image": "job", "resources": {"cpu": random.choice([1, 2, 4, 6, 8])}}
        client.submit(
            WorkloadRequest.model_validate(
                {
                    "name": name,
                    "kind": "session",
                    "pool": random.choice(list(POLICIES)),
                    "containers": [container],
                    "priority": random.choice([10, 20]),
                    "replicas": random.choice([2, 3]) if gang else 1,
                    "gang": gang,
                    # Never the same limit twice: the server's pass may begin in the second after the change, which
                    # the replay does not know, and work that ends with the head's wait would fit in one of the two.
                    "time": random.choice([3600, 7200, 40_000]) + 7 * number,
                }
            )
        )
        submitted.append(name)


def _settle(client: Client) -> None:
    """Wait until the leader has nothing left to place, so that no later change is decided on together with this one."""

    def settled() -> bool:
        busy = {"TERMINATING", "SCHEDULED", "PREPARING", "RESERVED"}
        # In this order: a task that ends between the two would be missed by the pass.
        return not any(w.status in busy for w in client.workloads().workloads) and client.run_pass().placed == 0

    eventually(settled)


async def _nodes_and_pools(server: Server) -> tuple[dict[UUID, Node], dict[str, PoolPolicy]]:
    database = Database(f"sqlite+aiosqlite:///{server.data / 'mooring.db'}")
    try:
        async with database.read() as connection:
            found = {node.id: node for node in await node_store.load(connection)}
            pools = {pool.name: pool.policy for pool in await pool_store.all_pools(connection)}
    finally:
        await database.close()
    return found, pools


async def _history(server: Server) -> History:
    database = Database(f"sqlite+aiosqlite:///{server.data / 'mooring.db'}")
    try:
        async with database.read() as connection:
            return await placement_history.read(connection)
    finally:
        await database.close()


Decisions = list[list[tuple[str, tuple[str, ...]]]]
"""Pass by pass, the placed workloads with the nodes of their tasks."""


def _decisions(history: History) -> Decisions:
    found: Decisions = []
    for each in history.transactions:
        by_workload: dict[UUID, list[str]] = {}
        for workload, _, node in each.placed:
            by_workload.setdefault(workload, []).append(node)
        if by_workload:
            found.append([(history.workloads[id].name, tuple(sorted(on))) for id, on in by_workload.items()])
    return found


def _replayed(history: History, nodes: Mapping[UUID, Node], pools: Mapping[str, PoolPolicy]) -> Decisions:
    numbers = {id: number for number, id in enumerate(sorted(history.workloads))}
    jobs = [
        Job(
            number,
            history.workloads[id].name,
            seconds_of(history.workloads[id].created_at),
            None,
            history.workloads[id].time_limit_seconds,
            history.workloads[id].request,
            pool=history.workloads[id].pool,
            workload=history.workloads[id],
        )
        for id, number in numbers.items()
    ]
    steps = [
        Step(
            seconds_of(each.at),
            nodes=tuple(replace(nodes[id], status=NodeStatus(status)) for id, status in each.nodes if id in nodes),
            ended=each.ended,
            cancelled=each.ended_workloads,
            submitted=tuple(numbers[id] for id in each.submitted),
        )
        for each in history.transactions
    ]
    placed = replay_history(jobs, pools, steps)
    names = {job.number: job.name for job in jobs}
    passes = groupby(placed, key=lambda each: each.step)
    return [[(names[each.number], tuple(sorted(each.nodes))) for each in group] for _, group in passes]
