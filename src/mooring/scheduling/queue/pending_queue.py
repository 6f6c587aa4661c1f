"""The pending queue: unschedulable workloads, held in groups until a change may make them schedulable.

Workloads that are alike to placement form a group, which is tried once per change however large it is. A group is
pending for capacity or for a constraint that no node meets (see `requeue_index`). Other workloads are pending until a
time, until a gate is lifted, until the usage or the limits of their tenants change, or behind the head of their queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from uuid import UUID

from mooring.model.decisions import Decision, Outcome
from mooring.model.reasons import Reason
from mooring.model.tenancy.admission import NOTHING, Awaits
from mooring.model.tenancy.quotas import Tenant
from mooring.model.workloads.workload import Workload
from mooring.scheduling.autoscaling.node_requests import lacks_nodes
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.explain.unschedulable_reasons import UnplacedTasks
from mooring.scheduling.gang_size import gang_size
from mooring.scheduling.plugins.ordering.bands import ordered
from mooring.scheduling.plugins.ordering.fifo import FifoSequencer
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.plugins.protocols import OrderingContext
from mooring.scheduling.queue.head_of_queue import Best, HeadOfQueue
from mooring.scheduling.queue.pending_groups import Group, ShapeClass, at_once, is_plain, lacks_capacity, may_be_planned
from mooring.scheduling.queue.requeue_index import Entry, RequeueIndex
from mooring.scheduling.scheduler import Pass
from mooring.scheduling.scheduling_pass import BLOCKED


def first_come(workloads: Sequence[Workload], number: int) -> Sequence[Workload]:
    return ordered(FifoSequencer(), workloads, OrderingContext())[:number]


class PendingQueue:
    """All pending workloads. `take` hands out those worth trying; `add_unschedulable` takes back the unplaced ones."""

    def __init__(self, cluster: Cluster, *, best: Best = first_come) -> None:
        self.found_by_timer = 0
        """Workloads that the periodic full pass placed although no change had requeued them: missed requeues."""
        self.tries = 0
        """The number of groups handed out because of a change."""
        self.strict_pools: frozenset[str] = frozenset()
        """The pools in which a workload that lacks capacity blocks those behind it."""
        self.backfill_depths: Mapping[str, int] = {}
        """By pool with backfill: the number of workloads lacking capacity that get a planned start."""
        self.plain_profiles: Mapping[str, Profile] = {}
        """The profiles of pools in which a new workload need not be offered if it lacks capacity and nothing changed.

        No other rule of the pool may decide on it: no admission, preemption, or scores that follow the queue.
        """
        self.starts: dict[UUID, datetime] = {}
        """The planned starts of the last passes."""
        self._planned_nodes: dict[UUID, Mapping[str, int]] = {}
        """Their nodes."""
        self._replanned: set[UUID] = set()
        """Workloads whose planned start may have changed."""
        self._replan: set[str] = set()
        """Pools in which the start of a head cannot be planned, so that the next workload is to be planned."""
        self._queue_heads: dict[str, HeadOfQueue] = {}
        self._cluster = cluster
        self._best = best
        self._requeue_index = RequeueIndex(cluster)
        self._fresh: dict[UUID, Workload] = {}
        self._groups: dict[ShapeClass, Group] = {}
        self._home: dict[UUID, Group] = {}
        self._gated: dict[UUID, tuple[str, ...]] = {}
        self._refused: dict[UUID, tuple[Workload, Awaits]] = {}
        self._under: dict[Tenant, set[UUID]] = {}
        """The workloads that are pending for a change of a tenant."""
        self._blocked: dict[str, dict[UUID, Workload]] = {}
        """By pool, the workloads blocked behind another that lacks capacity."""
        self._pools_with_departures: set[str] = set()
        """Pools that a workload left which may have been ahead of others."""
        self._unfinished: dict[UUID, str] = {}
        """Partly placed workloads with their pools: their remaining tasks will be requeued, maybe ahead of others."""
        self._later: dict[UUID, tuple[datetime, Workload]] = {}
        self._times: list[tuple[datetime, UUID]] = []
        self._out: set[UUID] = set()
        """Group members that were handed out last."""
        self._by_timer: set[UUID] = set()
        """Those of them that no change had requeued."""
        self._all_out = False
        """The last hand-out included every pending workload."""
        self._unexplained: dict[Group, None] = {}
        self._owners = len(cluster.owners.values)

    @property
    def has_more_work(self) -> bool:
        """Whether work remains even if nothing changes: workloads to try again, or reasons to report."""
        return bool(self._unexplained) or self.has_untried_work

    @property
    def has_untried_work(self) -> bool:
        """Whether entries remain to be checked or plans to be made even if nothing changes."""
        awaited = self._awaited
        unsure = any(entry.shape.pool not in awaited for entry in self._requeue_index.unsure.values())
        return bool(unsure or self._replan - awaited or self._cluster.timeline.relieved)

    @property
    def _awaited(self) -> set[str]:
        """The pools to which partly placed work is about to return: nothing of these is handed out without it."""
        return set(self._unfinished.values())

    @property
    def settled(self) -> bool:
        """Whether every group to be explained already has a reason."""
        return all(group.reason is not None for group in self._unexplained)

    def admit(self, workload: Workload) -> None:
        """Add a new or changed workload. It keeps its group if nothing changed that matters to placement."""
        group = self._home.get(workload.id)
        if group is not None and group.shape_class == self._shape_class(workload):
            group.members[workload.id] = workload
            if may_be_planned(group):
                self._queue_head(workload.pool).join(workload)
            if workload.id in self._later:
                self._later[workload.id] = (self._later[workload.id][0], workload)
        elif not workload.gates or self._gated.get(workload.id) != workload.gates:
            if group is not None or self._later or self._gated or self._refused or self._blocked or self._unfinished:
                self._take_out(workload.id)
            self._fresh[workload.id] = workload

    def forget(self, workload_id: UUID) -> None:
        """Remove a workload that is no longer pending; an unknown one is not an error."""
        self._take_out(workload_id)
        self._planned_nodes.pop(workload_id, None)
        if self.starts and self.starts.pop(workload_id, None) is not None:
            self._cluster.timeline.drop_plan(workload_id)

    def _take_out(self, workload_id: UUID) -> None:
        # Most of these are empty, and the hash of a UUID is computed in Python.
        for line in self._queue_heads.values():
            line.leave(workload_id)
        if self._fresh:
            self._fresh.pop(workload_id, None)
        if self._later:
            self._later.pop(workload_id, None)
        if self._gated:
            self._gated.pop(workload_id, None)
        if self._refused:
            self._release(workload_id)
        for blocked in self._blocked.values():
            blocked.pop(workload_id, None)
        if self._unfinished and workload_id in self._unfinished:
            self._pools_with_departures.add(self._unfinished.pop(workload_id))
        group = self._home.pop(workload_id, None)
        if group is None:
            return
        self._pools_with_departures.add(group.shape_class.shape.pool)
        del group.members[workload_id]
        group.to_notify.discard(workload_id)
        if not group.members:
            self._requeue_index.drop(group.entry)
            del self._groups[group.shape_class]
            self._unexplained.pop(group, None)
        elif group.entry.workload.id == workload_id:
            group.entry.workload = next(iter(group.members.values()))

    def reconsider(self, pools: Collection[str]) -> None:
        """Requeue every workload of these pools because their policy changed."""
        groups = [group for group in self._groups.values() if group.shape_class.shape.pool in pools]
        self._reconsider(workload for group in groups for workload in group.members.values())
        self._reconsider(workload for workload, _ in list(self._refused.values()) if workload.pool in pools)
        self._reconsider(w for pool in self._blocked.keys() & set(pools) for w in self._blocked[pool].values())

    def requeue_tenants(self, tenants: Iterable[Tenant]) -> None:
        """Requeue the workloads that are pending for lower usage or other limits of these tenants."""
        requeued = {workload_id for tenant in tenants for workload_id in self._under.get(tenant, ())}
        self._reconsider(self._refused[workload_id][0] for workload_id in requeued)

    def next_time(self) -> datetime | None:
        """Return the time at which the next workload is to be handed out again, for example after a backoff."""
        while self._times and self._outdated(*self._times[0]):
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def take(self, now: datetime) -> list[Workload]:
        """Return the workloads that are new, changed, due, or schedulable after the changes since the last call.

        A pool to which partly placed work is about to return hands out nothing without that work, which may be ahead.
        """
        awaited = self._awaited
        self._out, self._by_timer, self._all_out = set(), set(), False
        self._note_new_owners()
        self._come_due(now)
        if self.plain_profiles and self._fresh:
            self._group_lacking(now)
        self._note_changed_nodes()
        fresh, self._fresh = self._fresh, {}
        taken: list[Workload] = []
        for workload in fresh.values():
            if workload.pool in awaited:
                self._fresh[workload.id] = workload
            elif _is_due(workload, now):
                taken.append(workload)
            else:
                self._remember_time(workload, now)
        for entry in self._requeue_index.cured():
            if entry.shape.pool in awaited:
                self._requeue_index.unsure[entry.number] = entry
                continue
            portion = self._portion(self._home[entry.workload.id])
            self._out.update(workload.id for workload in portion)
            taken += portion
        touched = (self._pools_with_departures | self._replan | {workload.pool for workload in taken}) - awaited
        self._pools_with_departures &= awaited
        self._replan &= awaited
        in_order = touched & (self.strict_pools | {pool for pool in self.backfill_depths if self._blocked.get(pool)})
        known = {workload.id for workload in taken}
        return (
            taken
            + self._all_in_order(in_order, known)
            + self._heads((touched & self.backfill_depths.keys()) - in_order, known)
        )

    def _group_lacking(self, now: datetime) -> None:
        """Add new workloads that certainly find no node to their groups, without an attempt."""
        if not self._requeue_index.nothing_changed():
            return
        for workload in list(self._fresh.values()):
            profile = self.plain_profiles.get(workload.pool)
            if profile is None or not is_plain(workload) or not self._stays_behind_plans(workload, now):
                continue
            shape_class = self._shape_class(workload)
            group = self._groups.get(shape_class)
            entry = Entry(workload, shape_class.shape, profile) if group is None else group.entry
            if self._requeue_index.has_capacity(entry, at_once(workload)):
                continue
            del self._fresh[workload.id]
            unplaced = UnplacedTasks([], len(workload.tasks), gang_size(workload))
            self._join_group(workload, shape_class, unplaced, entry)
            self._note_tried(self._home[workload.id], workload, unplaced)

    def _stays_behind_plans(self, workload: Workload, now: datetime) -> bool:
        """Return whether the workload gets no planned start, as others ahead of it have those that there may be."""
        pool = workload.pool
        if pool in self._pools_with_departures or pool in self._replan or pool in self._awaited:
            return False
        depth = self.backfill_depths.get(pool)
        if depth is None:
            return pool not in self.strict_pools
        heads = self._first_of_queue(pool, ())
        if len(heads) < depth or any(self.starts.get(head.id, now) <= now for head in heads):
            return False
        return list(self._best([*heads[:depth], workload], depth)) == heads[:depth]

    def _all_in_order(self, pools: Collection[str], known: Collection[UUID]) -> list[Workload]:
        """Return all pending workloads of pools in which work blocks those behind it: all are tried or none."""
        if not pools:
            return []
        blocked = [workload for pool in pools for workload in self._blocked.pop(pool, {}).values()]
        groups = [group for group in self._groups.values() if group.shape_class.shape.pool in pools]
        others = [w for group in groups for w in group.members.values() if w.id not in known]
        self._out.update(workload.id for workload in others)
        return blocked + others

    def _heads(self, pools: Collection[str], known: Collection[UUID]) -> list[Workload]:
        """Return the first workloads that lack capacity; their starts are replanned whenever others are tried.

        No other pending workload is schedulable, otherwise it would be among `known`.
        """
        heads = [head for pool in pools for head in self._first_of_queue(pool, known)]
        self._out.update(workload.id for workload in heads)
        return heads

    def _first_of_queue(self, pool: str, known: Collection[UUID]) -> list[Workload]:
        def everyone() -> Iterable[Workload]:
            groups = (g for g in self._groups.values() if g.shape_class.shape.pool == pool and may_be_planned(g))
            return (workload for group in groups for workload in group.members.values())

        heads = self._queue_head(pool).first(self.backfill_depths[pool], known, everyone)
        # A promised start is held even if workloads ahead of it that had no planned start have one now.
        others = {id: home for id in self.starts if id not in known and (home := self._home.get(id)) is not None}
        for head in heads:
            others.pop(head.id, None)
        return heads + [home.members[id] for id, home in others.items() if home.shape_class.shape.pool == pool]

    def _queue_head(self, pool: str) -> HeadOfQueue:
        line = self._queue_heads.get(pool)
        if line is None:
            line = self._queue_heads[pool] = HeadOfQueue(self._best)
        return line

    def take_all(self, now: datetime) -> list[Workload]:
        """Return everything for the periodic full pass; placements that no change had announced are counted.

        A pool to which partly placed work is about to return is left out, as in `take`.
        """
        # Priorities age and fair shares change, so the heads are determined again.
        for line in self._queue_heads.values():
            line.forget()
        taken = self.take(now)
        others = [w for group in self._groups.values() for w in group.members.values() if w.id not in self._out]
        others += [w for blocked in self._blocked.values() for w in blocked.values()]
        others += [workload for workload, _ in self._refused.values()]
        awaited = self._awaited
        if awaited:
            others = [workload for workload in others if workload.pool not in awaited]
        self._all_out = not awaited
        self._out |= {workload.id for workload in others}
        # A workload refused without naming what it awaits is found by the timer alone.
        unspecified = {workload.id for workload, awaits in self._refused.values() if awaits == NOTHING}
        self._by_timer = {workload.id for workload in others} - unspecified
        for group in self._groups.values():
            if group.reason_revision != self._cluster.changes.revision:
                self._unexplained[group] = None
        return taken + others

    def add_unschedulable(
        self,
        result: Pass,
        profile: Profile | None,
        now: datetime,
        *,
        eager: bool = False,
        again: timedelta | None = None,
    ) -> Pass:
        """Take back the workloads that a pass could not place, and return the rest of the pass.

        `eager`: workloads that may preempt, or that block those behind them, are tried after every change in their
        pool, and after `again`, when their victims have run for long enough.
        """
        if self._out:
            self._let_go(decision for decision in result.decisions if decision.outcome is not Outcome.WAITING)
        unplaced_at = dict(result.short)
        refused = {rejection.workload.id: rejection.awaits for rejection in result.refused}
        grouped: set[int] = set()
        for position, decision in enumerate(result.decisions):
            workload, unplaced = decision.workload, unplaced_at.get(position)
            if decision.outcome is not Outcome.WAITING:
                if unplaced is not None and decision.placements:
                    self._unfinished[workload.id] = workload.pool
                continue
            in_group = unplaced is not None and profile is not None
            if unplaced is not None and profile is not None:
                self._add_to_group(workload, unplaced, profile, eager)
                grouped.add(position)
            else:
                self._remove_from_group(workload, was_refused=workload.id in refused)
            self._note_start(decision)
            backs_off = self._remember_time(workload, now)
            if again is not None and in_group and not backs_off:
                self._hand_out_at(workload, now + again)
            self._wait_for_cure(decision, refused.get(workload.id), ignored=in_group or backs_off)
        self._settle_pass()
        return _without(grouped, result)

    def _remove_from_group(self, workload: Workload, *, was_refused: bool) -> None:
        """Remove a workload that is pending for something other than nodes."""
        group = self._home.get(workload.id)
        if group is not None and was_refused:
            group.refused = True
        self._take_out(workload.id)

    def _wait_for_cure(self, decision: Decision, awaits: Awaits | None, *, ignored: bool) -> None:
        """Register a workload under its gates, its tenants or its blocked pool; if none applies, it is requeued.

        `ignored`: it is already pending for nodes or for a time.
        """
        workload = decision.workload
        if workload.gates:
            self._gated[workload.id] = workload.gates
        elif awaits is not None:
            self._hold(workload, awaits)
        elif decision.reason is not None and decision.reason.code == BLOCKED:
            self._blocked.setdefault(workload.pool, {})[workload.id] = workload
        elif not ignored:
            self._fresh[workload.id] = workload

    def _settle_pass(self) -> None:
        self._requeue_index.settle()
        if self._all_out:
            # A pass drops planned starts before it tries any workload, so all have seen the capacity these released.
            self._cluster.timeline.take_relieved()
            self._replan = set()

    def waiting_for_nodes(self) -> list[Workload]:
        """Return the workloads that more nodes could help, as far as their reasons are known, and the blocked ones."""
        short = [group for group in self._groups.values() if group.reason is not None and lacks_nodes(group.reason)]
        members = [workload for group in short for workload in group.members.values()]
        return members + [workload for blocked in self._blocked.values() for workload in blocked.values()]

    def unexplained(self, most: int) -> list[Group]:
        """Return up to `most` groups whose reason is to be determined; groups without any reason come first."""
        first = list(islice((group for group in self._unexplained if group.reason is None), most))
        return first + list(islice((g for g in self._unexplained if g.reason is not None), most - len(first)))

    def explained(self, group: Group, reason: Reason) -> list[Decision]:
        """Set the reason of a group and return the decisions worth storing.

        All members get one if the gist changed. Changed amounts alone go to the members that were tried, since every
        placement changes them.
        """
        everyone = group.reason is None or _summary(group.reason) != _summary(reason)
        notified = list(group.members if everyone else group.to_notify)
        if lacks_capacity(group) != (reason.cure == "release"):
            self._queue_head(group.shape_class.shape.pool).forget()
        group.reason, group.reason_revision, group.to_notify = reason, self._cluster.changes.revision, set()
        self._unexplained.pop(group, None)
        return [self._waiting(group, each) for each in notified]

    def replanned(self, excluded: Collection[UUID]) -> list[Decision]:
        """Return decisions for the workloads whose planned start changed in the last passes, except `excluded`."""
        homes = {each: group for each in self._replanned if each not in excluded and (group := self._home.get(each))}
        self._replanned = set()
        return [self._waiting(group, each) for each, group in homes.items()]

    def _waiting(self, group: Group, workload_id: UUID) -> Decision:
        start, nodes = self.starts.get(workload_id), self._planned_nodes.get(workload_id)
        workload = group.members[workload_id]
        return Decision(workload, Outcome.WAITING, reason=group.reason, planned_start=start, planned_nodes=nodes)

    def _add_to_group(self, workload: Workload, unplaced: UnplacedTasks, profile: Profile, eager: bool) -> None:
        group = self._home.get(workload.id)
        if group is None:
            shape_class = self._shape_class(workload)
            known = self._groups.get(shape_class)
            entry = Entry(workload, shape_class.shape, None if eager else profile) if known is None else known.entry
            group = self._join_group(workload, shape_class, unplaced, entry)
        self._note_tried(group, workload, unplaced)

    def _join_group(self, workload: Workload, shape_class: ShapeClass, unplaced: UnplacedTasks, entry: Entry) -> Group:
        """Add a workload to the group of its class. `entry`: that of the group, or a new one for a new group."""
        group = self._groups.get(shape_class)
        if group is None:
            group = self._groups[shape_class] = Group(shape_class, entry, replace(unplaced, unplanned=None))
            self._requeue_index.add(entry)
        self._home[workload.id] = group
        group.members[workload.id] = workload
        if unplaced.unplanned is None:
            self._queue_head(workload.pool).join(workload)
        return group

    def _note_tried(self, group: Group, workload: Workload, unplaced: UnplacedTasks) -> None:
        self._note_unplanned(group, unplaced)
        group.unplaced = unplaced
        self._requeue_index.tried(group.entry)
        if workload.id not in self._by_timer:
            group.to_notify.add(workload.id)
            self._unexplained[group] = None

    def _note_unplanned(self, group: Group, unplaced: UnplacedTasks) -> None:
        """Make the next workload the head if the start of this one turns out to be impossible to plan."""
        pool, unplanned = group.shape_class.shape.pool, unplaced.unplanned is not None
        if pool in self.backfill_depths and unplanned != (group.unplaced.unplanned is not None):
            self._queue_head(pool).forget()
            if unplanned:
                self._replan.add(pool)

    def _note_start(self, decision: Decision) -> None:
        workload, planned, nodes = decision.workload, decision.planned_start, decision.planned_nodes
        known = self.starts.get(workload.id), self._planned_nodes.get(workload.id)
        if (planned, nodes) != known or (planned, nodes) != (workload.planned_start, workload.planned_nodes):
            self._replanned.add(workload.id)
        if planned is not None:
            self.starts[workload.id] = planned
        else:
            self.starts.pop(workload.id, None)
        if nodes is not None:
            self._planned_nodes[workload.id] = nodes
        else:
            self._planned_nodes.pop(workload.id, None)

    def _hold(self, workload: Workload, awaits: Awaits) -> None:
        """Hold a workload that admission refused until its tenants change or its time comes.

        Workloads that it awaits need no entry here: they are read again together with it.
        """
        self._refused[workload.id] = workload, awaits
        for tenant in awaits.tenants:
            self._under.setdefault(tenant, set()).add(workload.id)
        if awaits.until is not None:
            self._hand_out_at(workload, awaits.until)

    def _release(self, workload_id: UUID) -> None:
        _, awaits = self._refused.pop(workload_id, (None, NOTHING))
        for tenant in awaits.tenants:
            waiting = self._under[tenant]
            waiting.discard(workload_id)
            if not waiting:
                del self._under[tenant]

    def _let_go(self, decisions: Iterable[Decision]) -> None:
        """Remove the handed-out workloads that will not return."""
        for decision in decisions:
            if decision.workload.id in self._out:
                self.found_by_timer += bool(decision.placements) and decision.workload.id in self._by_timer
                self._take_out(decision.workload.id)

    def _portion(self, group: Group) -> list[Workload]:
        """Return the best members up to the possible capacity, in order; the others are checked again afterwards."""
        entry, size = group.entry, len(group.entry.workload.tasks)
        least = at_once(entry.workload)
        capacity = 1 if least == 1 and len(group.members) == 1 else self._requeue_index.task_capacity(entry)
        if capacity < least:
            return []
        self.tries += 1
        number = -(-capacity // max(size, 1))
        if number >= len(group.members) or group.refused:
            group.refused = False
            return list(group.members.values())
        self._requeue_index.unsure[entry.number] = entry
        return list(self._best(list(group.members.values()), number))

    def _reconsider(self, workloads: Iterable[Workload]) -> None:
        for workload in list(workloads):
            self._take_out(workload.id)
            self._fresh[workload.id] = workload

    def _shape_class(self, workload: Workload) -> ShapeClass:
        limited = workload.max_per_node is not None or workload.single_node or workload.min_tasks is not None
        return ShapeClass(
            shape_of(workload, self._cluster),
            len(workload.tasks),
            tuple(task.not_before for task in workload.tasks if task.not_before is not None),
            workload.gang,
            workload.min_tasks,
            workload.max_per_node,
            workload.single_node,
            frozenset(workload.occupied.items()) if limited else frozenset(),
            workload.longest_seconds,
            workload.expected_seconds,
            workload.gap_seconds,
            self._cluster.timeline.notice(workload),
        )

    def _come_due(self, now: datetime) -> None:
        while self._times and self._times[0][0] <= now:
            time, workload_id = heappop(self._times)
            if not self._outdated(time, workload_id):
                self._reconsider([self._later[workload_id][1]])

    def _outdated(self, time: datetime, workload_id: UUID) -> bool:
        known = self._later.get(workload_id)
        return known is None or known[0] != time

    def _remember_time(self, workload: Workload, now: datetime) -> bool:
        """Schedule the next hand-out if a task is backed off, and return whether one is."""
        times = [task.not_before for task in workload.tasks if task.not_before is not None and task.not_before > now]
        if not times:
            return False
        self._hand_out_at(workload, min(times))
        return True

    def _hand_out_at(self, workload: Workload, time: datetime) -> None:
        self._later[workload.id] = (time, workload)
        heappush(self._times, (time, workload.id))

    def _note_new_owners(self) -> None:
        """Requeue the workloads of users who got a node of their own: they are no longer alike to others."""
        owners = self._cluster.owners.values
        if len(owners) > self._owners:
            new = frozenset(owners[self._owners :])
            self._owners = len(owners)
            members = [w for group in self._groups.values() for w in group.members.values()]
            self._reconsider(workload for workload in members if workload.user_id in new)

    def _note_changed_nodes(self) -> None:
        """Mark groups in pools with changed nodes for a new reason, because reasons count the nodes of a pool."""
        pools = self._requeue_index.changed_pools()
        for group in self._groups.values() if pools is None or pools else ():
            if pools is None or group.shape_class.shape.pool in pools:
                self._unexplained[group] = None


def _is_due(workload: Workload, now: datetime) -> bool:
    """Return whether at least one task may be tried."""
    for task in workload.tasks:
        if task.not_before is None or task.not_before <= now:
            return True
    return not workload.tasks


def _summary(reason: Reason) -> tuple[object, ...]:
    """Return the part of a reason that is stored again whenever it changes."""
    return reason.code, reason.by, reason.cure, reason.details.get("rejected")


def _without(grouped: Collection[int], result: Pass) -> Pass:
    if not grouped:
        return result
    left = [position for position in range(len(result.decisions)) if position not in grouped]
    index = {position: number for number, position in enumerate(left)}
    short = tuple((index[position], unplaced) for position, unplaced in result.short if position in index)
    return Pass(tuple(result.decisions[position] for position in left), short, result.refused)
