"""Fluent builders for what the scheduler is given. Ids come from names, so that a test reads without them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

from mooring.model.decisions import Decision
from mooring.model.lifecycle import NodeStatus
from mooring.model.nodes.node import Node
from mooring.model.resources.slots import parse_amounts, slot_type
from mooring.model.workloads.workload import (
    Kind,
    OnInsufficient,
    Task,
    Workload,
)
from mooring.scheduling import Pass, Profile, Scheduler

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def id_of(name: str) -> UUID:
    return uuid5(NAMESPACE_DNS, name)


@dataclass(frozen=True)
class NodeBuilder:
    node: Node

    def cpu(self, cores: int | str) -> NodeBuilder:
        return self.slot("cpu", cores)

    def memory(self, amount: int | str) -> NodeBuilder:
        return self.slot("memory", amount)

    def slot(self, name: str, amount: int | str) -> NodeBuilder:
        return self._with(allocatable={**self.node.allocatable, name: slot_type(name).parse(amount)})

    def held(self, **amounts: int | str) -> NodeBuilder:
        return self._with(held=parse_amounts(amounts))

    def reserved(self, **amounts: int | str) -> NodeBuilder:
        return self._with(reserved=parse_amounts(amounts))

    def used(self, **amounts: int | str) -> NodeBuilder:
        return self._with(used=parse_amounts(amounts))

    def load(self, cpu_percent: float, memory_percent: float) -> NodeBuilder:
        return self._with(cpu_percent=cpu_percent, memory_percent=memory_percent)

    def labels(self, **labels: str) -> NodeBuilder:
        return self._with(labels={**self.node.labels, **labels})

    def region(self, region: str) -> NodeBuilder:
        return self._with(region=region)

    def pool(self, pool: str) -> NodeBuilder:
        return self._with(pool=pool)

    def architecture(self, architecture: str) -> NodeBuilder:
        return self._with(architecture=architecture)

    def runtimes(self, *runtimes: str) -> NodeBuilder:
        return self._with(runtimes=frozenset(runtimes))

    def isolation(self, offered: str, *, required: str) -> NodeBuilder:
        return self._with(isolation=offered, required_isolation=required)

    def owner(self, user: str) -> NodeBuilder:
        return self._with(owner=id_of(user))

    def tasks(self, count: int, *, at_most: int | None = None) -> NodeBuilder:
        return self._with(tasks=count, max_tasks=at_most)

    def status(self, status: NodeStatus) -> NodeBuilder:
        return self._with(status=status)

    def unschedulable(self) -> NodeBuilder:
        return self._with(schedulable=False)

    def generation(self, generation: int) -> NodeBuilder:
        return self._with(generation=generation)

    def _with(self, **changes: Any) -> NodeBuilder:
        return NodeBuilder(replace(self.node, **changes))


@dataclass(frozen=True)
class WorkloadBuilder:
    workload: Workload

    def cpu(self, cores: int | str) -> WorkloadBuilder:
        return self.slot("cpu", cores)

    def memory(self, amount: int | str) -> WorkloadBuilder:
        return self.slot("memory", amount)

    def slot(self, name: str, amount: int | str) -> WorkloadBuilder:
        return self._with(request={**self.workload.request, name: slot_type(name).parse(amount)})

    def replicas(self, count: int) -> WorkloadBuilder:
        name = self.workload.name
        return self._with(tasks=tuple(Task(id_of(f"{name}-{index}"), index) for index in range(count)))

    def backing_off(self, *seconds: float | None) -> WorkloadBuilder:
        """One number per task: how long after NOW it may be placed; None for at once."""
        delays = [None if delay is None else NOW + timedelta(seconds=delay) for delay in seconds]
        tasks = self.replicas(len(seconds)).workload.tasks
        return self._with(
            tasks=tuple(replace(task, not_before=delay) for task, delay in zip(tasks, delays, strict=True))
        )

    def gang(self) -> WorkloadBuilder:
        return self._with(gang=True)

    def at_least(self, tasks: int) -> WorkloadBuilder:
        return self._with(min_tasks=tasks)

    def single_node(self) -> WorkloadBuilder:
        return self._with(single_node=True)

    def packed_by(self, *keys: str) -> WorkloadBuilder:
        return self._with(pack=keys)

    def max_per_node(self, limit: int | None) -> WorkloadBuilder:
        return self._with(max_per_node=limit)

    def spread(self) -> WorkloadBuilder:
        return self._with(spread=True)

    def fail_if_short(self) -> WorkloadBuilder:
        return self._with(on_insufficient=OnInsufficient.FAIL)

    def placed_before(self) -> WorkloadBuilder:
        return self._with(placed_before=True)

    def occupying(self, **tasks_on_node: int) -> WorkloadBuilder:
        return self._with(occupied={id_of(name): count for name, count in tasks_on_node.items()})

    def priority(self, priority: int) -> WorkloadBuilder:
        return self._with(priority=priority)

    def created(self, seconds_before_now: float) -> WorkloadBuilder:
        return self._with(created_at=NOW - timedelta(seconds=seconds_before_now))

    def limit(self, seconds: int | None) -> WorkloadBuilder:
        return self._with(time_limit_seconds=seconds)

    def region(self, region: str) -> WorkloadBuilder:
        return self._with(region=region)

    def architecture(self, architecture: str) -> WorkloadBuilder:
        return self._with(architecture=architecture)

    def runtime(self, runtime: str) -> WorkloadBuilder:
        return self._with(runtime=runtime)

    def pool(self, pool: str) -> WorkloadBuilder:
        return self._with(pool=pool)

    def user(self, user: str) -> WorkloadBuilder:
        return self._with(user_id=id_of(user))

    def _with(self, **changes: Any) -> WorkloadBuilder:
        return WorkloadBuilder(replace(self.workload, **changes))


def node(name: str) -> NodeBuilder:
    return NodeBuilder(Node(id_of(name), name, "default", runtimes=frozenset({"process"})))


def workload(name: str) -> WorkloadBuilder:
    return WorkloadBuilder(
        Workload(
            id=id_of(name),
            name=name,
            kind=Kind.DEPLOYMENT,
            pool="default",
            user_id=id_of("someone"),
            runtime="process",
            request={},
            tasks=(Task(id_of(f"{name}-0"), 0),),
            created_at=NOW,
        )
    )


def scheduler(nodes: Iterable[NodeBuilder], *, profile: Profile | None = None) -> Scheduler:
    return Scheduler((builder.node for builder in nodes), profile=profile)


def run(scheduler: Scheduler, *workloads: WorkloadBuilder) -> Pass:
    return scheduler.run([builder.workload for builder in workloads], NOW)


def decide(nodes: Iterable[NodeBuilder], workload: WorkloadBuilder, *, profile: Profile | None = None) -> Decision:
    """The decision for one workload on fresh nodes."""
    return run(scheduler(nodes, profile=profile), workload).decisions[0]


def chosen(decision: Decision) -> list[str]:
    return [placement.node_name for placement in decision.placements]


def decision_of(decisions: Sequence[Decision], name: str) -> Decision:
    return next(decision for decision in decisions if decision.workload.name == name)
