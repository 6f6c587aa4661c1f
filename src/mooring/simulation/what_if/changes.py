"""Hypothetical changes of a cluster, applied to the state of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from uuid import UUID

from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import NodeStatus
from mooring.model.nodes.node import FROM_NAME, Node
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.quotas import Tenant
from mooring.simulation.live_state import Live
from mooring.simulation.scenario import Fault, Scenario


@dataclass(frozen=True, slots=True)
class Changes:
    add_nodes: tuple[tuple[str, int], ...] = ()
    """Names of nodes, and how many empty nodes like each of them to add."""
    drain: frozenset[str] = frozenset()
    """Nodes that accept no more work; what runs there continues."""
    fail: frozenset[str] = frozenset()
    """Nodes that are lost at once; their work is requeued."""
    cancel: frozenset[UUID] = frozenset()
    """Workloads that end at once."""
    limits: tuple[tuple[Tenant, Amounts], ...] = ()
    """New limits of tenants by slot; limits of other slots stay."""
    pools: Mapping[str, PoolPolicy] = field(default_factory=dict)
    """New policies by pool."""


def apply(scenario: Scenario, changes: Changes) -> Scenario:
    """Return the scenario with the changes, made at the time at which it begins."""
    live = scenario.live
    assert live is not None
    nodes = [replace(node, schedulable=False) if node.name in changes.drain else node for node in scenario.nodes]
    for like, number in changes.add_nodes:
        nodes += copies_of(nodes, like, number)
    faults = list(scenario.faults)
    if changes.fail:
        faults.append(Fault(tuple(sorted(changes.fail)), live.at))
    jobs = scenario.jobs
    if changes.cancel:
        jobs = [
            replace(job, workload=replace(job.workload, tasks=()))
            if job.workload is not None and job.workload.id in changes.cancel
            else job
            for job in jobs
        ]
    return replace(
        scenario,
        nodes=nodes,
        jobs=jobs,
        faults=faults,
        pools={**scenario.pools, **changes.pools},
        live=_changed(live, changes),
    )


def copies_of(nodes: Sequence[Node], like: str, number: int) -> list[Node]:
    """Return empty nodes like the one of this name, with names that none of the nodes has."""
    model = next((node for node in nodes if node.name == like), None)
    if model is None:
        raise InvalidInput(f"there is no node {like!r}", code="invalid-what-if")
    taken = {node.name for node in nodes}
    names = (f"{like}+{each}" for each in range(1, number + len(taken) + 1))
    free = [name for name in names if name not in taken][:number]
    devices = {slot: tuple(replace(each, taken=0) for each in found) for slot, found in model.devices.items()}
    empty = replace(
        model, held={}, reserved={}, used={}, uncounted={}, tasks=0, occupied_ports=(), devices=devices, generation=1
    )
    ready = replace(empty, status=NodeStatus.READY, schedulable=True, cpu_percent=0.0, memory_percent=0.0)
    return [replace(ready, id=FROM_NAME, name=name) for name in free]


def _changed(live: Live, changes: Changes) -> Live:
    running = live.running
    if changes.cancel:
        running = [replace(part, end=live.at + 1) if part.workload.id in changes.cancel else part for part in running]
    tenancy = live.tenancy
    if changes.limits:
        tenancy = replace(tenancy, usage=deepcopy(tenancy.usage))
        for tenant, limits in changes.limits:
            tenancy.usage.update(tenant, limits={**tenancy.usage.limits_of(tenant), **limits})
    return replace(live, running=running, tenancy=tenancy)
