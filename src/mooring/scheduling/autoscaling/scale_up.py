"""A trial scale-up: places all pending tasks on existing nodes, on requested nodes, and on new nodes.

Templates become empty nodes in a copy of the cluster, and the scheduler itself places the tasks there, so that every
request is backed by a placement under the same filters and the same fit rule. `column_generation` packs tasks that
request amounts only; tasks with further constraints are tried on new nodes one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import ceil
from uuid import UUID

import numpy as np

from mooring.model.nodes.node import Node
from mooring.model.nodes.node_templates import (
    Addition,
    Goal,
    PackingCost,
    ScaleUp,
    ScalingRules,
    Stock,
)
from mooring.model.reasons import Reason
from mooring.model.resources.devices import WHOLE
from mooring.model.resources.slots import slot_type
from mooring.model.workloads.workload import OnInsufficient, Workload
from mooring.scheduling.autoscaling.column_generation import (
    Covering,
    cover,
    similar,
)
from mooring.scheduling.cluster.arrays import Mask, Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.gang_size import gang_size
from mooring.scheduling.gangs import shape_on_node
from mooring.scheduling.plugins.evaluation import INFEASIBLE, Evaluations
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.plugins.protocols import DependsOn, Offer, OrderingContext
from mooring.scheduling.scheduler import Scheduler
from mooring.scheduling.solver import Whole

NO_TEMPLATE = "no-template"
"""The reason code for workloads that fit no node template."""
_ENDLESS = 1 << 40
_ROUNDING = 1e-4
"""Tolerance when a bound is rounded up to the next whole cost."""


def copy_of(cluster: Cluster) -> Cluster:
    """Return an independent copy of the cluster; it shares the nodes, which are immutable."""
    return deepcopy(cluster, {id(node): node for node in cluster.nodes if node is not None})


class ScaleUpTrial:
    """The state of a trial scale-up: the pending tasks placed so far, and their nodes."""

    def __init__(
        self,
        cluster: Cluster,
        profile: Profile,
        stocks: Sequence[Stock],
        rules: ScalingRules,
        compiled: bool | None,
    ) -> None:
        self._stocks = stocks
        self._templates = [stock.template for stock in stocks]
        self._rules = rules
        self._cluster = copy_of(cluster)
        self._profile = Profile("scaling", profile.filters, ((_FirstByName(), 1),))
        self._scheduler = Scheduler(cluster=self._cluster, profile=self._profile, compiled=compiled)
        samples = [template.node(f"{number}") for number, template in enumerate(self._templates)]
        self._samples = Cluster(samples, overcommit=cluster.overcommit)
        self._rows = np.array([self._samples.row_of(node.id) for node in samples], dtype=np.intp)
        self._evaluations = Evaluations(self._samples, self._profile)
        self._present = frozenset(node.id for node in cluster.nodes if node is not None)
        self._nodes: dict[UUID, _NewNode] = {}
        self._numbered = 0
        pool = self._templates[0].pool if self._templates else ""
        self._in_pool = len(cluster.rows_of_pool(pool)) + sum(len(stock.coming) for stock in stocks)
        self._opened = [stock.existing + len(stock.coming) for stock in stocks]
        self._promised: dict[UUID, dict[UUID, int]] = {}
        """By workload, the number of its tasks per requested node."""
        self._served: Counter[UUID] = Counter()
        self._incurable: set[UUID] = set()
        self.limited = False
        """Some workload stays unserved only because of a limit."""
        self._packed: set[UUID] = set()
        """The new nodes that were packed by column generation."""
        self._least_cost = 0.0
        """The proven lower bound of what their tasks cost on new nodes, without the limits."""
        for number, stock in enumerate(stocks):
            for tasks in stock.coming:
                new = self._open(number, coming=True)
                for workload, count in tasks.items():
                    self._promised.setdefault(workload, {})[new.node.id] = count

    def serve(self, workloads: Sequence[Workload]) -> None:
        """Place workloads on existing nodes, on requested nodes, and on new nodes."""
        groups: dict[Shape, _Group] = {}
        whole: list[Workload] = []
        for workload in workloads:
            if _goes_anywhere(workload):
                shape = shape_on_node(workload, self._cluster, 1)
                groups.setdefault(shape, _Group(workload)).add(workload)
            else:
                whole.append(replace(workload, tasks=workload.tasks[: waiting_tasks(workload)]))
        sorted_groups = self._largest_first(groups)
        unserved = self._place_promised(whole)
        self._place(self._promises(sorted_groups), last=self._present)
        self._open_for_whole(self._place_whole(unserved))
        self._place([(group, group.total, None) for group in sorted_groups])
        self._open_for_groups({shape: group for shape, group in groups.items() if group.left})

    def torn(self, workload: Workload) -> bool:
        """Return whether some tasks are placed, but fewer than the gang size."""
        return 0 < self._served[workload.id] < gang_size(workload)

    def answer(self, wanted: Iterable[Workload]) -> ScaleUp:
        torn: set[UUID] = set()
        unmet: dict[UUID, Reason] = {}
        pool = self._templates[0].pool if self._templates else ""
        for workload in wanted:
            if self.torn(workload):
                torn.add(workload.id)
            if self._served[workload.id] < waiting_tasks(workload):
                unmet[workload.id] = _unmet(pool, workload.id in self._incurable or not self._templates)
        additions: list[Addition] = []
        for number, template in enumerate(self._templates):
            asked = [
                {workload: count for workload, count in new.tasks.items() if workload not in torn}
                for new in self._nodes.values()
                if new.template == number and not new.coming
            ]
            if any(asked):
                additions.append(Addition(template, tuple(filter(None, asked))))
        return ScaleUp(tuple(additions), unmet, packing=self._packing())

    def _packing(self) -> PackingCost | None:
        """Return the cost of the packed nodes with its bound; None if no packed node is requested."""
        packed = [new for new in self._nodes.values() if new.node.id in self._packed and new.tasks]
        if not packed:
            return None
        cost = sum(int(self._costs[new.template]) for new in packed)
        # Costs are whole numbers, so that a bound is rounded up.
        return PackingCost(cost, min(ceil(self._least_cost - _ROUNDING), cost), len(packed))

    def _place_promised(self, workloads: Sequence[Workload]) -> list[Workload]:
        """Place tasks on the nodes that were requested for them. Return the workloads with the remaining tasks."""
        parts: list[Workload] = []
        for workload in workloads:
            left = dict(self._promised.get(workload.id, {}))
            count = len(workload.tasks) if workload.single_node else 1
            while left:
                # In turns, as spread tasks were placed.
                for node in list(left):
                    parts.append(_bound_to(self._nodes[node].node.name, workload, count))
                    left[node] -= count
                    if left[node] <= 0:
                        del left[node]
        found: dict[UUID, list[UUID]] = {}
        for part, nodes in zip(parts, self._run(parts), strict=True):
            found.setdefault(part.id, []).extend(nodes)
        return self._unserved(workloads, [found.get(workload.id, []) for workload in workloads])

    def _promises(self, groups: Iterable[_Group]) -> list[_Entry]:
        """Return the tasks that each requested node is for, node by node."""
        by_node: dict[UUID, list[_Entry]] = {}
        for group in groups:
            for workload in group.left:
                for node, count in self._promised.get(workload, {}).items():
                    by_node.setdefault(node, []).append((group, count, workload))
        return [entry for node in self._nodes for entry in by_node.get(node, ())]

    def _place(self, entries: Iterable[_Entry], *, last: frozenset[UUID] = frozenset()) -> None:
        """Place tasks of groups in this order, each on the first node that accepts it; nodes in `last` come last."""
        due: list[_Entry] = []
        planned: Counter[int] = Counter()
        for group, count, workload in entries:
            of_workload = count if workload is None else min(count, group.left.get(workload, 0))
            number = min(of_workload, group.total - planned[id(group)])
            if number > 0:
                planned[id(group)] += number
                due.append((group, number, workload))
        placed = self._run([group.piece(count, last) for group, count, _ in due])
        for (group, _, workload), nodes in zip(due, placed, strict=True):
            for node in nodes:
                self._count_on(node, group.take(workload))

    def _place_whole(self, workloads: Sequence[Workload]) -> list[Workload]:
        """Place workloads as they are. Return the workloads with the tasks that found no placement."""
        return self._unserved(workloads, self._run(workloads))

    def _unserved(self, workloads: Iterable[Workload], placed: Iterable[Sequence[UUID]]) -> list[Workload]:
        """Count the placed tasks of workloads. Return the workloads with the remaining tasks."""
        unserved: list[Workload] = []
        for workload, nodes in zip(workloads, placed, strict=True):
            for node in nodes:
                self._count_on(node, workload.id)
            if len(nodes) < len(workload.tasks):
                occupied = Counter(workload.occupied)
                occupied.update(nodes)
                unserved.append(replace(workload, tasks=workload.tasks[len(nodes) :], occupied=occupied))
        return unserved

    def _run(self, ordered: Sequence[Workload]) -> list[list[UUID]]:
        """Schedule the workloads in this order. Return the nodes of each workload's tasks."""
        self._scheduler.sequencer = _AsGiven(ordered)
        decisions = self._scheduler.place(ordered).decisions
        return [[placement.node_id for placement in decision.placements] for decision in decisions]

    def _open_for_whole(self, unserved: Sequence[Workload]) -> None:
        """Add nodes for workloads that request more than amounts: of the cheapest template, then of all that fit."""
        by_order: dict[tuple[int, ...], list[Workload]] = {}
        for workload in unserved:
            by_order.setdefault(self._cheapest_first(workload), []).append(workload)
        for order, workloads in by_order.items():
            left = workloads
            for templates in (order[:1], order):
                self._open_some(templates, sum(len(workload.tasks) for workload in left))
                left = self._place_whole(left)
                self._close_unused()
            self._give_up(order, [workload.id for workload in left])

    def _cheapest_first(self, workload: Workload) -> tuple[int, ...]:
        """Return the templates that fit a task (or all tasks, if they must share a node), by the cost per task."""
        shape = shape_on_node(workload, self._samples, len(workload.tasks))
        evaluation = self._evaluations.of(shape)
        rows = self._rows
        fitting = self._samples.fits(evaluation.demand, rows).all(axis=0) & evaluation.may_ever[rows]
        requests = evaluation.demand.amounts
        free = self._samples.free(evaluation.demand, rows)
        times = np.where(requests > 0, free // np.maximum(requests, 1), _ENDLESS).min(axis=0, initial=_ENDLESS)
        most = workload.max_per_node or _ENDLESS
        price = self._costs / np.minimum(times, min(most, len(workload.tasks))).clip(min=1)
        return tuple(number for number in np.argsort(price, kind="stable").tolist() if fitting[number])

    def _open_for_groups(self, groups: Mapping[Shape, _Group]) -> None:
        """Add nodes for tasks that request amounts only, packed at the least cost."""
        shapes = list(groups)
        if not shapes or not self._templates:
            return
        allowed = np.array([self._may(shape) for shape in shapes])
        for number in np.flatnonzero(~allowed.any(axis=1)).tolist():
            self._incurable.update(groups[shapes[number]].left)
        requests, capacity = self._amounts(shapes)
        initial = True
        while True:
            available = np.array([self._addable_nodes(number) > 0 for number in range(len(self._templates))])
            demand = np.array([groups[shape].total for shape in shapes])
            kinds = np.flatnonzero((demand > 0) & (allowed & available).any(axis=1))
            if not len(kinds):
                break
            covering = Covering(requests[kinds], capacity, allowed[kinds] & available, self._costs)
            open_groups = [groups[shapes[kind]] for kind in kinds.tolist()]
            self._place(self._open_planned(covering, demand[kinds], open_groups, initial=initial))
            self._close_unused()
            initial = False
            if sum(groups[shape].total for shape in shapes) == demand.sum():
                break
        for number, shape in enumerate(shapes):
            if groups[shape].left:
                self._give_up(np.flatnonzero(allowed[number]).tolist(), groups[shape].left)

    def _open_planned(
        self, covering: Covering, demand: Whole, groups: Sequence[_Group], *, initial: bool
    ) -> list[_Entry]:
        """Add the nodes of a covering as far as the limits allow. Return the tasks for each node."""
        classes, _, sizes = similar(covering, demand)
        members = [np.flatnonzero(classes == number) for number in range(len(sizes))]
        tasks = [np.repeat(of_class, demand[of_class]) for of_class in members]
        given = [0] * len(sizes)
        entries: list[_Entry] = []
        found = cover(covering, demand)
        if initial:
            self._least_cost += found.bound
        for pattern in found.patterns:
            for _ in range(pattern.nodes):
                if self._addable_nodes(pattern.template) <= 0:
                    break
                self._packed.add(self._open(pattern.template).node.id)
                for number in np.flatnonzero(pattern.counts).tolist():
                    first, last = given[number], given[number] + int(pattern.counts[number])
                    given[number] = last
                    for kind, count in sorted(Counter(tasks[number][first:last].tolist()).items()):
                        entries.append((groups[kind], count, None))
        return entries

    def _may(self, shape: Shape) -> Mask:
        """Return a mask of the templates whose empty nodes accept one task."""
        evaluation = self._evaluations.of(shape)
        may: Mask = evaluation.keys[self._rows] != INFEASIBLE
        return may

    def _amounts(self, shapes: Sequence[Shape]) -> tuple[Whole, Whole]:
        """Return the requests of tasks and the capacity of templates in the same slots, plus the number of tasks."""
        names = sorted({name for shape in shapes for name, amount in shape.request if amount > 0})
        requests = np.zeros((len(shapes), len(names) + 1), dtype=np.int64)
        for number, shape in enumerate(shapes):
            by_name = dict(shape.request)
            requests[number] = [*(_of_devices(name, by_name.get(name, 0)) for name in names), 1]
        slots = [self._samples.demand(((name, 1),)).slots[0, 0] for name in names]
        offered = self._samples.allocatable[slots][:, self._rows].T.reshape(len(self._rows), len(names))
        most = np.minimum(self._samples.max_tasks[self._rows], _ENDLESS)[:, None]
        return requests, np.hstack((offered, most))

    def _largest_first(self, groups: Mapping[Shape, _Group]) -> list[_Group]:
        """Return the groups in descending order of a task's request relative to the largest template."""
        if not groups or not self._templates:
            return list(groups.values())
        requests, capacity = self._amounts(list(groups))
        shares = (requests / np.maximum(capacity.max(axis=0), 1)).max(axis=1)
        in_order = list(groups.values())
        return [in_order[number] for number in np.argsort(-shares, kind="stable").tolist()]

    def _give_up(self, templates: Sequence[int], workloads: Collection[UUID]) -> None:
        """Record workloads as unserved: a template that fits has reached a limit, or no template fits."""
        if not workloads:
            return
        if any(self._addable_nodes(number) <= 0 for number in templates):
            self.limited = True
        else:
            self._incurable.update(workloads)

    def _addable_nodes(self, template: int) -> int:
        """Return the number of nodes of a template that may still be added."""
        most, pool_most = self._templates[template].most, self._rules.most
        own = _ENDLESS if most is None else most - self._opened[template]
        return own if pool_most is None else min(own, pool_most - self._in_pool)

    def _open_some(self, templates: Sequence[int], number: int) -> None:
        """Add up to `number` nodes of each template, in turns, so that the templates share the pool's limit."""
        for _ in range(number):
            for template in templates:
                if self._addable_nodes(template) > 0:
                    self._open(template)

    def _open(self, template: int, *, coming: bool = False) -> _NewNode:
        # The name sorts after all others: existing nodes fill first, then new nodes in the order of their creation.
        new = _NewNode(self._templates[template].node(f"~{self._numbered:08}"), template, coming)
        self._numbered += 1
        self._nodes[new.node.id] = new
        self._cluster.upsert(new.node)
        if not coming:
            self._opened[template] += 1
            self._in_pool += 1
        return new

    def _close_unused(self) -> None:
        for new in [new for new in self._nodes.values() if not new.tasks and not new.coming]:
            del self._nodes[new.node.id]
            self._cluster.remove(new.node.id)
            self._opened[new.template] -= 1
            self._in_pool -= 1

    def _count_on(self, node: UUID, workload: UUID) -> None:
        self._served[workload] += 1
        if node in self._nodes:
            self._nodes[node].tasks[workload] += 1

    @property
    def _costs(self) -> Whole:
        fewest = self._rules.goal is Goal.FEWEST
        return np.array([1 if fewest else template.cost for template in self._templates], dtype=np.int64)


@dataclass(slots=True)
class _NewNode:
    """A node of the trial, empty at first: one that was requested already, or one that may be requested."""

    node: Node
    template: int
    coming: bool
    tasks: Counter[UUID] = field(default_factory=Counter)


@dataclass(slots=True)
class _Group:
    """Equivalent tasks that are placed independently of each other, by workload in queue order."""

    sample: Workload
    left: dict[UUID, int] = field(default_factory=dict)
    total: int = 0
    pieces: dict[tuple[int, bool], Workload] = field(default_factory=dict)

    def add(self, workload: Workload) -> None:
        self.left[workload.id] = waiting_tasks(workload)
        self.total += waiting_tasks(workload)

    def piece(self, count: int, last: frozenset[UUID]) -> Workload:
        """Return a workload with `count` of the tasks, which uses the nodes in `last` only after all others."""
        key = count, bool(last)
        if key not in self.pieces:
            self.pieces[key] = replace(
                self.sample,
                tasks=(self.sample.tasks * count)[:count],
                gang=False,
                min_tasks=None,
                spread=False,
                on_insufficient=OnInsufficient.WAIT,
                constraints=replace(self.sample.constraints, failed_on=last) if last else self.sample.constraints,
            )
        return self.pieces[key]

    def take(self, wanted: UUID | None) -> UUID:
        """Take the next task and return its workload: the wanted one, or the first of the group."""
        workload = wanted if wanted is not None and wanted in self.left else next(iter(self.left))
        self.total -= 1
        self.left[workload] -= 1
        if not self.left[workload]:
            del self.left[workload]
        return workload


_Entry = tuple[_Group, int, UUID | None]
"""A number of tasks of a group, of one workload or (None) of any."""


class _FirstByName:
    """A scorer that scores all nodes equally, so that the lowest name wins."""

    name = "first_by_name"
    depends_on: DependsOn = "static"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        return np.zeros(len(rows), dtype=np.int64)


class _AsGiven:
    """A sequencer that offers workloads in the order chosen for packing."""

    name = "as_given"

    def __init__(self, ordered: Sequence[Workload]) -> None:
        self._ordered = ordered

    def offers(self, bands: Sequence[Sequence[Workload]], context: OrderingContext) -> Iterator[Offer]:
        yield Offer(self._ordered)


def _goes_anywhere(workload: Workload) -> bool:
    """Return whether its tasks depend only on amounts and on properties of the node, not on other tasks."""
    constraints = workload.constraints
    related = constraints.affinity or constraints.anti_affinity or any(spread.hard for spread in constraints.spread)
    bound = workload.max_per_node is not None or workload.pack or workload.single_node
    return not (related or bound or constraints.host_ports or constraints.licence)


def _bound_to(node_name: str, workload: Workload, count: int) -> Workload:
    """Return a workload with `count` of the tasks, bound to one node."""
    there = replace(workload.constraints, designated=frozenset({node_name}), designated_strictly=True)
    return replace(workload, tasks=workload.tasks[:count], gang=False, min_tasks=None, pack=(), constraints=there)


def waiting_tasks(workload: Workload) -> int:
    """Return the number of its pending tasks that may start now."""
    if workload.parallel is None:
        return len(workload.tasks)
    return min(max(workload.parallel - sum(workload.occupied.values()), 0), len(workload.tasks))


def _of_devices(slot: str, amount: int) -> int:
    """Return the amount that a request uses up of a slot.

    A device share is rounded up to an equal fraction of the device, because no further share of its size fits into the
    remainder.
    """
    if not slot_type(slot).devices or not 0 < amount < WHOLE:
        return amount
    return WHOLE // (WHOLE // amount)


def _unmet(pool: str, incurable: bool) -> Reason:
    if incurable:
        return Reason(NO_TEMPLATE, f"no node template of pool {pool!r} has the capacity for it", "scaling", "change")
    return Reason("scaling-limit", f"pool {pool!r} may have no more nodes that would take it", "scaling", "change")
