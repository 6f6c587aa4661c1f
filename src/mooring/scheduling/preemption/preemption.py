"""Preemption: workloads that find no room get a place that others leave. This is the definition; nothing is touched
before a plan is complete (`victims` makes it), and a plan that is not carried out can be withdrawn.

A task that leaves for an earlier plan counts as gone for the plans that follow, and as present for everybody else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import numpy as np

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.preemption import Victim
from mooring.model.workloads import Task, Workload
from mooring.scheduling.displacement import Standing
from mooring.scheduling.evaluation import Evaluation
from mooring.scheduling.explanation import forget
from mooring.scheduling.shapes import shape_of
from mooring.scheduling.victims import Candidate, Place, Search, curable


class Preemptor(Standing):
    """Plans by one pool's rules. What it plans counts at once: the place is taken, and the victims are spoken for."""

    def may_preempt(self, workload: Workload) -> bool:
        """Not one that never does, and not while tasks still leave for it on a node where it may run."""
        if not workload.preempts:
            return False
        leaving = {self.cluster.row_of(resident.node_id) for resident in self.residents.leaving_for(workload.id)}
        rows = np.array([row for row in leaving if row is not None], dtype=np.intp)
        if not len(rows):
            return True
        return not len(curable(Evaluation(shape_of(workload, self.cluster), self.cluster, self.profile), rows))

    def plan(self, workload: Workload, tasks: Sequence[Task], now: datetime, *, least: int = 1) -> Decision | None:
        """Places for tasks that found no room, and who has to leave for them; None if even that does not help.

        `least`: so many get a place or none; each may use free room, or preempt.
        """
        if not self.could_find_victims(workload):
            return None
        search = Search(self, workload, now)
        try:
            places = search.places(len(tasks), least=least)
        finally:
            search.trial.revert()
        return self._carry_out(workload, tasks, places, search.victims) if places and search.needs_others else None

    def could_find_victims(self, workload: Workload) -> bool:
        """Whether a plan is worth a look at the nodes."""
        lowest = self.residents.lowest_priority
        claim = self.claim(workload)
        if claim is not None:
            return lowest is not None and claim.entitled and self.may_preempt(workload)
        return lowest is not None and lowest < workload.priority and self.may_preempt(workload)

    def candidates(self, workload: Workload, now: datetime) -> list[Candidate]:
        """All nodes where others leaving would make room for one task, the best first. Nothing is planned."""
        return Search(self, workload, now).candidates() if self.may_preempt(workload) else []

    def withdraw(self, decision: Decision) -> None:
        """Undo a plan: its place is free again, and its victims stay."""
        forget(self.cluster, decision)
        self._mark(decision.victims, decision.workload.id, None)

    def accept(self, workload: Workload, victims: Sequence[Victim]) -> None:
        """The victims are spoken for: they still occupy what they have, and only this workload counts on it."""
        self._mark(victims, None, workload.id)

    def _carry_out(
        self, workload: Workload, tasks: Sequence[Task], places: Sequence[Place], victims: Sequence[Victim]
    ) -> Decision:
        cluster, shape = self.cluster, shape_of(workload, self.cluster)
        demand = cluster.demand(shape.request, shape.uncounted)
        placements: list[Placement] = []
        for task, place in zip(tasks, places, strict=False):
            constraints = cluster.with_ports(place.row, shape.constraints)
            if len(constraints.host_ports) < len(place.constraints.host_ports):
                # Only victims' ports are left of the range.
                constraints = place.constraints
            # Devices may be victims' still: they are given as the search found them.
            cluster.assume(np.array([place.row], dtype=np.intp), demand, constraints, (place.devices,))
            node = cluster.node(place.row)
            ports = tuple(port.port for port in constraints.host_ports[len(shape.constraints.host_ports) :])
            placements.append(
                Placement(task.id, node.id, node.name, node.generation, place.score, ports, place.devices)
            )
        self.accept(workload, victims)
        return Decision(workload, Outcome.RESERVED, tuple(placements), victims=tuple(victims))

    def _mark(self, victims: Sequence[Victim], before: UUID | None, after: UUID | None) -> None:
        """Victims leave for `after` instead of `before`; those that changed in between are left alone."""
        by_node: defaultdict[UUID, set[UUID]] = defaultdict(set)
        for victim in victims:
            by_node[victim.node_id].add(victim.task_id)
        for node_id, tasks in by_node.items():
            row = self.cluster.row_of(node_id)
            marked: dict[UUID, UUID | None] = {}
            for resident in self.residents.on(node_id):
                if resident.task_id in tasks and resident.leaving_for == before:
                    marked[resident.task_id] = after
                    constraints = None if row is None else self.told_constraints(resident, row)
                    if row is not None and constraints is not None:
                        self.cluster.set_leaving(row, constraints, after is not None)
                    if resident.workload_id in self.allowed:
                        self.allowed[resident.workload_id] += 1 if after is None else -1
                        self.residents.note_workload(resident.workload_id)
            self.residents.mark(node_id, marked)
