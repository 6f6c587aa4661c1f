"""Preemption through the kernels, for the common case: one task, resources and static filters, no budgets, no wholes.

The plans are those of `preemption`, which stays the definition and serves all other cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from uuid import UUID

import numpy as np

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.preemption import Resident, Victim, VictimScope
from mooring.model.workloads import Workload
from mooring.scheduling import kernels
from mooring.scheduling.displacement import LOWEST_PRIORITY
from mooring.scheduling.engine import Engine, kernels_log
from mooring.scheduling.preemption import Preemptor
from mooring.scheduling.residents import NOT_STARTED, start_of

_KINDS = 64
"""Kinds of preemptors whose costs are kept."""
_MICROSECONDS = 1_000_000

if (kernels.LOWEST_PRIORITY, kernels.NEWEST) != (LOWEST_PRIORITY, NOT_STARTED):
    raise AssertionError("the kernels were written for other priorities or starts")

OneByOne = Callable[[Workload, int], Decision | None]


def plan_in_batches(
    compiled: CompiledPreemptor, asked: Sequence[tuple[Workload, int]], now: datetime, *, one_by_one: OneByOne
) -> list[Decision | None]:
    """Plans in the order of the workloads, each with how many of its tasks get a place or none.

    `one_by_one` plans for those that are not for the kernels.
    """
    decisions: list[Decision | None] = []
    batch: list[tuple[Workload, int]] = []
    places: list[int] = []

    def plan_batch() -> None:
        for place, decision in zip(places, compiled.plan(batch, now) if batch else (), strict=True):
            decisions[place] = decision
        batch.clear()
        places.clear()

    synced = compiled.sync()
    for workload, least in asked:
        if not compiled.preemptor.could_find_victims(workload):
            decisions.append(None)
            continue
        code = compiled.code_of(workload) if synced else None
        if code is not None:
            batch.append((workload, code))
            places.append(len(decisions))
            decisions.append(None)
        else:
            plan_batch()
            decisions.append(one_by_one(workload, least))
            synced = compiled.sync()
    plan_batch()
    return decisions


class CompiledPreemptor:
    """The residents as arrays, kept in step with what is told and planned elsewhere."""

    def __init__(self, engine: Engine, preemptor: Preemptor) -> None:
        self._engine = engine
        self.preemptor = preemptor
        self._on: list[Sequence[Resident]] = []
        """Per row who is there, in the order of the arrays."""
        self._owners: dict[UUID | None, int] = {}
        self._kinds: dict[tuple[int, int, int], int] = {}
        self._residents: kernels.Residents
        self._costs: kernels.Costs
        self._nodes: kernels.Nodes | None = None
        self._seen = self._membership = -1
        self._now: datetime | None = None

    def code_of(self, workload: Workload) -> int | None:
        """The number of the workload's shape if the kernels can plan for it; `sync` comes before."""
        preemptor = self.preemptor
        several = len(workload.tasks) != 1 or workload.max_per_node is not None or workload.single_node
        reclaims, booked = preemptor.rules.scope is VictimScope.RECLAIM, self._engine.cluster.timeline.booked
        if several or reclaims or booked or preemptor.allowed or preemptor.residents.any_whole(workload.priority):
            return None
        code = self._engine.code_of(workload)
        return code if code is not None and code >= 0 and self._engine.is_plain(code) else None

    def plan(self, preemptors: Sequence[tuple[Workload, int]], now: datetime) -> list[Decision | None]:
        """Plans for workloads with one task each, in their order; what is planned counts at once."""
        return [decision for part in self._parts(preemptors) for decision in self._plan(part, now)]

    def _plan(self, preemptors: Sequence[tuple[Workload, int]], now: datetime) -> list[Decision | None]:
        plans = self.queue(preemptors)
        self.run(plans, now)
        cluster = self._engine.cluster
        decisions: list[Decision | None] = []
        start, victims = plans.start.tolist(), plans.victims.tolist()
        for index, ((workload, _), row) in enumerate(zip(preemptors, plans.row.tolist(), strict=True)):
            if row == kernels.NOWHERE:
                decisions.append(None)
                continue
            here, node = self._on[row], cluster.node(row)
            leaving = [here[place] for place in victims[start[index] : start[index + 1]]]
            chosen = tuple(Victim(each.task_id, each.workload_id, each.node_id) for each in leaving)
            placement = Placement(workload.tasks[0].id, node.id, node.name, node.generation, 0)
            self.preemptor.accept(workload, chosen)
            cluster.placed.add(row, workload.constraints)
            cluster.changes.note((row,))
            decisions.append(Decision(workload, Outcome.RESERVED, (placement,), victims=chosen))
        # What was just told of residents is what the kernels wrote.
        self._seen = self.preemptor.residents.revision
        return decisions

    def queue(self, preemptors: Sequence[tuple[Workload, int]]) -> kernels.Plans:
        """Preemptors in the kernels' terms; `sync` comes before, and there are at most _KINDS kinds of them."""
        kinds = [self._kind_of(workload, code) for workload, code in preemptors]
        unknown = set(kinds) - self._kinds.keys()
        if len(self._kinds) + len(unknown) > _KINDS:
            self._kinds.clear()
            unknown = set(kinds)
        costs = self._costs
        for kind in sorted(unknown):
            number = self._kinds[kind] = len(self._kinds)
            costs.shape[number], costs.priority[number], costs.owner[number] = kind
            costs.position[number] = kernels.NEVER
        return kernels.Plans(
            kind=np.array([self._kinds[kind] for kind in kinds], dtype=np.int32),
            row=np.zeros(len(kinds), dtype=np.int32),
            start=np.zeros(len(kinds) + 1, dtype=np.int64),
            victims=np.zeros(max(int(self._residents.present.sum()), 1), dtype=np.int32),
        )

    def run(self, plans: kernels.Plans, now: datetime) -> None:
        """One call of the kernels. The places count in the cluster's columns at once."""
        if self.preemptor.rules.min_runtime_seconds and self._now != now:
            self._costs.position[:] = kernels.NEVER
        self._now = now
        engine, moment = self._engine, start_of(now)
        kernels.preempt(
            engine.nodes, engine.shapes, engine.topology.counters, self._residents, self._costs, plans, moment
        )

    def sync(self) -> bool:
        """Take over what changed since the last look. False: this profile is not for the kernels."""
        engine, residents = self._engine, self.preemptor.residents
        changed = residents.changed_since(self._seen)
        nodes = residents.nodes if changed is None or self._nodes is None else changed
        for node_id in nodes:
            for resident in residents.on(node_id):
                # The columns may have to grow for what it occupies.
                engine.cluster.demand(tuple(sorted(resident.request.items())))
        if not engine.sync():
            return False
        most = max((len(residents.on(node_id)) for node_id in nodes), default=0)
        afresh = self._nodes is not engine.nodes or self._membership != engine.cluster.membership or changed is None
        if afresh or most > self._residents.priority.shape[1]:
            self._start_afresh(max((len(residents.on(node_id)) for node_id in residents.nodes), default=0))
        elif changed:
            self._take_over(changed)
        self._seen = residents.revision
        return True

    def _start_afresh(self, most: int) -> None:
        engine = self._engine
        rows, slots = engine.nodes.row.shape
        places = 1 << max(most - 1, 3).bit_length()
        self._nodes, self._membership = engine.nodes, engine.cluster.membership
        self._on, self._kinds = [()] * rows, {}
        self._residents = kernels.Residents(
            present=np.zeros(rows, dtype=np.int32),
            priority=np.zeros((rows, places), dtype=np.int64),
            started=np.zeros((rows, places), dtype=np.int64),
            owner=np.zeros((rows, places), dtype=np.int64),
            since=np.zeros((rows, places), dtype=np.int64),
            take=np.zeros((rows, places, slots), dtype=np.int64),
            leaving=np.zeros((rows, slots), dtype=np.int64),
        )
        self._costs = kernels.Costs(
            cost=np.zeros((_KINDS, rows, kernels.AGE + 1), dtype=np.int64),
            tree=np.zeros((_KINDS, 2 * rows), dtype=np.int32),
            position=np.full(_KINDS, kernels.NEVER, dtype=np.int64),
            shape=np.zeros(_KINDS, dtype=np.int64),
            priority=np.zeros(_KINDS, dtype=np.int64),
            owner=np.zeros(_KINDS, dtype=np.int64),
            slack=np.zeros(slots, dtype=np.int64),
            asked=np.zeros(slots, dtype=np.int32),
            victims=np.zeros(places, dtype=np.int32),
        )
        self._take_over(self.preemptor.residents.nodes)

    def _take_over(self, nodes: Iterable[UUID]) -> None:
        rows = []
        for node_id in nodes:
            row = self._engine.cluster.row_of(node_id)
            if row is not None:
                self._write(row, self.preemptor.residents.on(node_id))
                rows.append(row)
        kernels_log(self._engine.nodes, np.array(sorted(set(rows)), dtype=np.intp))

    def _write(self, row: int, here: Sequence[Resident]) -> None:
        residents, cluster = self._residents, self._engine.cluster
        least = self.preemptor.rules.min_runtime_seconds * _MICROSECONDS
        self._on[row] = here
        residents.present[row] = len(here)
        residents.take[row] = 0
        residents.leaving[row] = 0
        for place, resident in enumerate(here):
            demand = cluster.demand(tuple(sorted(resident.request.items())))
            take = residents.take[row, place]
            take[demand.slots[:, 0]] = demand.amounts[:, 0]
            take[-1] = 1
            started = start_of(resident.started_at)
            residents.started[row, place] = started
            residents.since[row, place] = -kernels.NEWEST if resident.started_at is None else started + least
            residents.owner[row, place] = self._owner(self.preemptor.owner(resident))
            asked = resident.preemptible and resident.leaving_for is None
            residents.priority[row, place] = resident.priority if asked else kernels.STAYS
            if resident.leaving_for is not None:
                residents.leaving[row] += take

    def _owner(self, owner: UUID | None) -> int:
        return self._owners.setdefault(owner, len(self._owners))

    def _kind_of(self, workload: Workload, code: int) -> tuple[int, int, int]:
        """Preemptors of one kind share their costs."""
        return code, workload.priority, self._owner(self.preemptor.owner(workload))

    def _parts(self, preemptors: Sequence[tuple[Workload, int]]) -> Iterator[list[tuple[Workload, int]]]:
        """In order, and so that no part has more kinds than there are places for their costs."""
        part: list[tuple[Workload, int]] = []
        kinds: set[tuple[int, int, int]] = set()
        for workload, code in preemptors:
            kind = self._kind_of(workload, code)
            if kind not in kinds and len(kinds) == _KINDS:
                yield part
                part, kinds = [], set()
            kinds.add(kind)
            part.append((workload, code))
        yield part
