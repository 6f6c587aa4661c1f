"""Preemption: an unschedulable workload takes the capacity of lower-ranked running tasks, its victims.

Nothing changes before a plan is complete (`victim_search` makes it), and a plan that is not executed can be withdrawn.
Later plans count the victims of an earlier plan as gone; every other part of the scheduler counts them as present.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import numpy as np

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.policy.preemption import Victim
from mooring.model.workloads.workload import Task, Workload
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.explain.explanation import forget
from mooring.scheduling.plugins.evaluation import Evaluation
from mooring.scheduling.preemption.victim_candidates import PreemptionState
from mooring.scheduling.preemption.victim_search import (
    Candidate,
    Search,
    TrialPlacement,
    curable,
)


class Preemptor(PreemptionState):
    """The preemption planner of one pool. A plan takes effect at once: its placements and its victims are taken."""

    def may_preempt(self, workload: Workload) -> bool:
        """Return whether the workload preempts at all and no earlier victim is still leaving a node it could use."""
        if not workload.preempts:
            return False
        leaving = {
            self.cluster.row_of(running_task.node_id) for running_task in self.running_tasks.leaving_for(workload.id)
        }
        rows = np.array([row for row in leaving if row is not None], dtype=np.intp)
        if not len(rows):
            return True
        return not len(curable(Evaluation(shape_of(workload, self.cluster), self.cluster, self.profile), rows))

    def plan(self, workload: Workload, tasks: Sequence[Task], now: datetime, *, least: int = 1) -> Decision | None:
        """Return placements for unplaced tasks and the victims they need; None if no set of victims is enough.

        At least `least` tasks get a placement, or none does. Each task uses free capacity or preempts.
        """
        if not self.could_find_victims(workload):
            return None
        search = Search(self, workload, now)
        try:
            chosen = search.placements(len(tasks), least=least)
        finally:
            search.trial.revert()
        return self._carry_out(workload, tasks, chosen, search.victims) if chosen and search.needs_others else None

    def could_find_victims(self, workload: Workload) -> bool:
        """Return whether any running task could be a victim; a cheap test before the search visits nodes."""
        lowest = self.running_tasks.lowest_priority
        claim = self.claim(workload)
        if claim is not None:
            return lowest is not None and claim.entitled and self.may_preempt(workload)
        return lowest is not None and lowest < workload.priority and self.may_preempt(workload)

    def candidates(self, workload: Workload, now: datetime) -> list[Candidate]:
        """Return all nodes on which preemption would fit one task, the best first. Nothing is planned."""
        return Search(self, workload, now).candidates() if self.may_preempt(workload) else []

    def withdraw(self, decision: Decision) -> None:
        """Undo a plan: release its placements and keep its victims running."""
        forget(self.cluster, decision)
        self._mark(decision.victims, decision.workload.id, None)

    def accept(self, workload: Workload, victims: Sequence[Victim]) -> None:
        """Mark the victims as leaving for this workload. They still run, and only it may plan on their capacity."""
        self._mark(victims, None, workload.id)

    def _carry_out(
        self,
        workload: Workload,
        tasks: Sequence[Task],
        chosen: Sequence[TrialPlacement],
        victims: Sequence[Victim],
    ) -> Decision:
        cluster, shape = self.cluster, shape_of(workload, self.cluster)
        demand = cluster.demand(shape.request, shape.uncounted)
        placements: list[Placement] = []
        for task, each in zip(tasks, chosen, strict=False):
            constraints = cluster.with_ports(each.row, shape.constraints)
            if len(constraints.host_ports) < len(each.constraints.host_ports):
                # The only free ports of the range are those of victims.
                constraints = each.constraints
            # Victims may still hold the devices, so the assignment of the search is used as it is.
            cluster.assume(np.array([each.row], dtype=np.intp), demand, constraints, (each.devices,))
            node = cluster.node(each.row)
            ports = tuple(port.port for port in constraints.host_ports[len(shape.constraints.host_ports) :])
            placements.append(Placement(task.id, node.id, node.name, node.generation, each.score, ports, each.devices))
        self.accept(workload, victims)
        return Decision(workload, Outcome.RESERVED, tuple(placements), victims=tuple(victims))

    def _mark(self, victims: Sequence[Victim], before: UUID | None, after: UUID | None) -> None:
        """Mark victims as leaving for `after` instead of `before`; skip those whose mark has changed since."""
        by_node: defaultdict[UUID, set[UUID]] = defaultdict(set)
        for victim in victims:
            by_node[victim.node_id].add(victim.task_id)
        for node_id, tasks in by_node.items():
            row = self.cluster.row_of(node_id)
            marked: dict[UUID, UUID | None] = {}
            for running_task in self.running_tasks.on(node_id):
                if running_task.task_id in tasks and running_task.leaving_for == before:
                    marked[running_task.task_id] = after
                    constraints = None if row is None else self.counted_constraints(running_task, row)
                    if row is not None and constraints is not None:
                        self.cluster.set_leaving(row, constraints, after is not None)
                    if running_task.workload_id in self.allowed:
                        self.allowed[running_task.workload_id] += 1 if after is None else -1
                        self.running_tasks.note_workload(running_task.workload_id)
            self.running_tasks.mark(node_id, marked)
