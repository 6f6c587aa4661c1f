"""A small world around a pending queue: nodes with running tasks, arriving work, and iterations of a leader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from mooring.model.decisions import Decision, Outcome
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import HeadOfLine
from mooring.model.reasons import Reason
from mooring.model.resources.slots import total
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Profile, Scheduler
from mooring.scheduling.admission import Admission, AdmissionContext
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.queue.pending_queue import PendingQueue
from mooring.scheduling.tenant_usage import Usage
from tests.scheduling.builders import NOW, NodeBuilder, WorkloadBuilder


@dataclass(eq=False)
class Running:
    """A placed task."""

    node: str
    request: dict[str, int]
    constraints: Constraints
    user_id: UUID
    id: UUID
    ends: int | None
    """By its time limit."""


@dataclass
class Iteration:
    """The workloads that one iteration tried and placed, and the reasons of the others."""

    tried: list[str] = field(default_factory=list)
    placed: list[str] = field(default_factory=list)
    reasons: dict[str, Reason] = field(default_factory=dict)


class World:
    def __init__(
        self,
        nodes: Iterable[NodeBuilder] = (),
        profile: Profile | None = None,
        *,
        head_of_line: HeadOfLine = HeadOfLine.SKIP,
        usage: Usage | None = None,
    ) -> None:
        self.scheduler = Scheduler(profile=profile, compiled=False, head_of_line=head_of_line)
        self.cluster = self.scheduler.cluster
        self.pending_queue = PendingQueue(self.cluster)
        self.strict = head_of_line is HeadOfLine.STRICT
        self.pending_queue.strict_pools = frozenset({"default"} if self.strict else ())
        self.pending_queue.backfill_depths = {"default": 1} if head_of_line is HeadOfLine.BACKFILL else {}
        self.usage = usage
        self.nodes: dict[str, Node] = {}
        self.running: list[Running] = []
        self.waiting: dict[str, Workload] = {}
        self.now = NOW
        for builder in nodes:
            self.add(builder)

    def add(self, builder: NodeBuilder) -> None:
        self.nodes[builder.node.name] = builder.node
        self.update_node(builder.node.name)

    def change(self, name: str, **changes: Any) -> None:
        """A node is other than it was."""
        self.nodes[name] = replace(self.nodes[name], **changes)
        self.update_node(name)

    def remove(self, name: str) -> None:
        self.cluster.remove(self.nodes.pop(name).id)
        self.running = [task for task in self.running if task.node != name]

    def update_node(self, name: str) -> None:
        """The node as the store has it, with all that runs there."""
        node = self.nodes[name]
        here = [task for task in self.running if task.node == name]
        self.cluster.upsert(replace(node, used=total(task.request for task in here), tasks=len(here)))
        self.cluster.set_tasks(node.id, [(task.constraints, 1) for task in here])
        self.cluster.set_expected_ends(
            node.id, {task.id: (task.ends, task.request) for task in here if task.ends is not None}
        )

    def submit(self, *builders: WorkloadBuilder) -> None:
        for builder in builders:
            self.waiting[builder.workload.name] = builder.workload
            self.pending_queue.admit(builder.workload)

    def withdraw(self, name: str) -> None:
        self.pending_queue.forget(self.waiting.pop(name).id)

    def end(self, task: Running) -> None:
        self.running.remove(task)
        self.update_node(task.node)
        if self.usage is not None:
            tenant = Tenant(Scope.USER, str(task.user_id))
            if self.usage.update(
                tenant, used=total(each.request for each in self.running if each.user_id == task.user_id)
            ):
                self.pending_queue.requeue_tenants([tenant])

    def relabel(self, task: Running, **labels: str) -> None:
        task.constraints = replace(task.constraints, labels=tuple(sorted(labels.items())))
        self.update_node(task.node)

    def iterate(self, at: datetime | None = None) -> Iteration:
        """Try what is worth it; say why the rest waits."""
        self.now = at or self.now
        self.cluster.timeline.advance(seconds_of(self.now))
        return self._try(self.pending_queue.take(self.now))

    def iterate_by_timer(self) -> Iteration:
        return self._try(self.pending_queue.take_all(self.now))

    def _try(self, taken: list[Workload]) -> Iteration:
        iteration = Iteration([workload.name for workload in taken])
        admission = None if self.usage is None else Admission(AdmissionContext(self.now, self.usage))
        result = self.scheduler.place(taken, self.now, admission=admission)
        left = self.pending_queue.add_unschedulable(result, self.scheduler.profile, self.now, eager=self.strict)
        for decision in self.scheduler.explained(left).decisions:
            if decision.placements:
                iteration.placed.append(decision.workload.name)
                self._keep(decision)
            elif decision.reason is not None:
                iteration.reasons[decision.workload.name] = decision.reason
        for group in self.pending_queue.unexplained(1000):
            first = self.scheduler.with_reason(Decision(group.entry.workload, Outcome.WAITING), group.unplaced)
            assert first.reason is not None
            for notified in self.pending_queue.explained(group, first.reason):
                assert notified.reason is not None
                iteration.reasons[notified.workload.name] = notified.reason
        return iteration

    def _keep(self, decision: Decision) -> None:
        """Run the placed tasks, and requeue the rest of the workload as the mirror does."""
        workload = decision.workload
        for placement in decision.placements:
            ports = tuple(HostPort(port) for port in placement.ports)
            constraints = replace(
                workload.constraints, host_ports=(*workload.constraints.host_ports, *ports), ports_wanted=0
            )
            limit = workload.longest_seconds
            ends = None if limit is None else seconds_of(self.now) + limit
            request, task_id = dict(workload.request), placement.task_id
            self.running.append(Running(placement.node_name, request, constraints, workload.user_id, task_id, ends))
        left = workload.tasks[len(decision.placements) :]
        if left:
            occupied = dict(workload.occupied)
            for placement in decision.placements:
                occupied[placement.node_id] = occupied.get(placement.node_id, 0) + 1
            rest = replace(workload, tasks=left, placed_before=True, occupied=occupied)
            self.waiting[workload.name] = rest
            self.pending_queue.admit(rest)
        else:
            del self.waiting[workload.name]
