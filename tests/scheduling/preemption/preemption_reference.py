"""A plain reference implementation of preemption: lists and dictionaries, with all sums computed for every question.

Resources, the number of tasks, budgets and wholes; one task per preemptor. It shares nothing with what it is compared
with.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from mooring.model.nodes.node import Node
from mooring.model.policy.preemption import Preemption, RunningTask, VictimScope
from mooring.model.workloads.workload import Workload

FAR = 1e12


@dataclass
class World:
    nodes: list[Node]
    running_tasks: list[RunningTask]
    rules: Preemption
    allowed: dict[UUID, int]
    leaving: set[UUID] = field(default_factory=set)
    holds: list[tuple[Node, Workload]] = field(default_factory=list)

    def plan(self, workload: Workload, now: datetime) -> tuple[str, frozenset[UUID], frozenset[UUID]] | None:
        """The node, the victims, and those of them whose budget is broken."""
        best = None
        for node in sorted(self.nodes, key=lambda node: node.name):
            option = self._option(node, workload, now)
            if option is not None and (best is None or option[0] < best[0]):
                best = (*option, node)
        if best is None:
            return None
        _, victims, violating, node = best
        self.holds.append((node, workload))
        for victim in victims:
            self.leaving.add(victim.task_id)
            if victim.workload_id in self.allowed:
                self.allowed[victim.workload_id] -= 1
        return node.name, frozenset(victim.task_id for victim in victims), frozenset(violating)

    def _option(
        self, node: Node, workload: Workload, now: datetime
    ) -> tuple[tuple[float, ...], list[RunningTask], set[UUID]] | None:
        if not node.ready or node.pool != workload.pool or self._fits(node, workload, set()):
            return None
        units = self._units(node, workload, now)
        gone = self.leaving | {task.task_id for unit in units for task in unit}
        if not self._fits(node, workload, gone):
            return None
        violating: set[UUID] = set()
        spent: Counter[UUID] = Counter()
        for unit in units:
            for task in unit:
                spent[task.workload_id] += 1
                if spent[task.workload_id] > self.allowed.get(task.workload_id, 1 << 40):
                    violating.add(task.task_id)
        broken = [unit for unit in units if any(task.task_id in violating for task in unit)]
        victims: list[RunningTask] = []
        for unit in broken + [unit for unit in units if unit not in broken]:
            back = gone - {task.task_id for task in unit}
            if self._fits(node, workload, back):
                gone = back
            else:
                victims.extend(unit)
        violating &= {victim.task_id for victim in victims}
        if not victims:
            return (0, -FAR, 0, 0, 0), [], set()
        highest = max(victim.priority for victim in victims)
        earliest = min(_started(victim) for victim in victims if victim.priority == highest)
        total = sum(victim.priority + 2**31 for victim in victims)
        return (len(violating), highest, total, len(victims), -earliest), victims, violating

    def _units(self, node: Node, workload: Workload, now: datetime) -> list[list[RunningTask]]:
        """Return the possible victims of this node, grouped by tasks that leave together, highest priority first."""
        ordered = sorted(self.running_tasks, key=lambda each: (-each.priority, _started(each), each.task_id.int))
        units: list[list[RunningTask]] = []
        wholes: set[UUID] = set()
        for task in ordered:
            if task.node_id != node.id or task.workload_id in wholes:
                continue
            unit = [task]
            if task.whole:
                wholes.add(task.workload_id)
                unit = [each for each in ordered if each.workload_id == task.workload_id]
            if all(self._may_leave(each, workload, now) for each in unit):
                units.append(unit)
        return sorted(units, key=lambda unit: ordered.index(unit[0]))

    def _may_leave(self, task: RunningTask, workload: Workload, now: datetime) -> bool:
        started = task.started_at
        return (
            task.preemptible
            and task.task_id not in self.leaving
            and task.priority < workload.priority
            and (self.rules.scope is VictimScope.POOL or task.user_id == workload.user_id)
            and (started is None or started + timedelta(seconds=self.rules.min_runtime_seconds) <= now)
        )

    def _fits(self, node: Node, workload: Workload, gone: set[UUID]) -> bool:
        staying = [each for each in self.running_tasks if each.node_id == node.id and each.task_id not in gone]
        held = [other for place, other in self.holds if place is node]
        if node.max_tasks is not None and len(staying) + len(held) >= node.max_tasks:
            return False
        for slot, amount in workload.request.items():
            taken = sum(each.request.get(slot, 0) for each in staying) + sum(one.request.get(slot, 0) for one in held)
            if taken + amount > node.allocatable.get(slot, 0):
                return False
        return True


def _started(task: RunningTask) -> float:
    return FAR if task.started_at is None else task.started_at.timestamp()
