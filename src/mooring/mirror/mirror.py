"""The leader's view: the columnar cluster and the pending workloads, updated from the event feed.

An event only names rows; the mirror reads them again, so lost, repeated or reordered events cannot corrupt it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from mooring.clock import monotonic, now
from mooring.mirror.admission import Tenancy
from mooring.mirror.calendar import Calendar
from mooring.mirror.node_tasks import NodeTasks
from mooring.mirror.pending_workloads import PendingWorkloads
from mooring.mirror.predictions import Predictions
from mooring.mirror.revisions import Revisions
from mooring.mirror.statistics import Statistics
from mooring.model.calendar.timeslots import OpenEnded
from mooring.model.decisions import Decision
from mooring.model.events import Event
from mooring.model.lifecycle import TaskStatus, WorkloadStatus, is_workload_end
from mooring.model.policy.preemption import Budgets, VictimScope
from mooring.model.tenancy.fair_share import Factors
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.preemption.reclaim import Guarantees
from mooring.scheduling.preemption.running_tasks import RunningTasks
from mooring.store.control import events
from mooring.store.core.chunks import chunks
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import nodes, pools, running_tasks
from mooring.store.tenancy import quotas
from mooring.store.workloads import dependencies, pending

_NODES_AT_ONCE = 250
_WORKLOADS_AT_ONCE = 1000
"""Maximum number read at once: building them blocks the event loop, and with it the renewal of the lease."""
_CONFIRM_SECONDS = 0.5
"""Pause between two readings of nodes whose capacity is known, so that they are read in groups while tasks start."""
_STAYS = events.CRASHES | {
    TaskStatus.PREPARING,
    TaskStatus.RUNNING,
    events.READY,
    events.UNREADY,
    events.RENEWED,
    events.RETIRING,
}
"""Task events that change neither the node nor the occupied amounts."""
_STARTS = (_STAYS - events.CRASHES) | {TaskStatus.SCHEDULED}
"""The kinds of events of workloads and tasks that are placed or run."""
_ENDS = frozenset(status for status in WorkloadStatus if is_workload_end(status))


class Mirror:
    def __init__(self, database: Database, accounting_interval_seconds: float = 300.0) -> None:
        self._database = database
        self._position = 0
        self.held_back = False
        """A committed event is not readable yet, and no signal may announce when it is."""
        self.cluster = Cluster()
        self._node_tasks = NodeTasks(self.cluster)
        self._pending = PendingWorkloads()
        self.pools: dict[str, pools.Pool] = {}
        self._revisions = Revisions()
        self._assumed: set[UUID] = set()
        """Tasks that this leader placed and the feed has not confirmed."""
        self._unconfirmed: set[UUID] = set()
        """Nodes to read again later: their events since the last read do not affect placement."""
        self._confirmed_at = float("-inf")
        self.budgets = Budgets()
        self.guarantees: Guarantees = {}
        """Guaranteed amounts of projects, read while some pool allows reclaim."""
        self.calendar = Calendar(self.cluster)
        self.tenancy = Tenancy()
        """The tenants with pending work, and their limits."""
        self._statistics = Statistics(accounting_interval_seconds)
        self._predictions = Predictions()

    @property
    def queue(self) -> dict[UUID, Workload]:
        """The pending workloads by id."""
        return self._pending.by_id

    @property
    def running_tasks(self) -> RunningTasks:
        """Running tasks by node, maintained while some pool allows preemption."""
        return self._node_tasks.running_tasks

    @property
    def factors(self) -> dict[str, Factors]:
        """Fair-share factors, for pools whose sequencer uses them."""
        return self._statistics.factors

    def predicted(self, workload: Workload) -> Workload:
        """Return a workload with its predicted run time, where its pool plans with predictions."""
        return self._predictions.predicted(workload)

    # --- reading the store ---

    async def load(self) -> None:
        """Read everything. The next `follow` reads everything again that is committed in the meantime."""
        async with self._database.read() as connection:
            self._position = await events.position(connection)
            self.cluster, self.pools = Cluster(), {}
            self._node_tasks, self._pending = NodeTasks(self.cluster), PendingWorkloads()
            self._assumed, self._unconfirmed = set(), set()
            self.calendar = Calendar(self.cluster)
            self._statistics.forget()
            self._predictions = Predictions()
            # Before the tasks, so that the view contains at least the placements up to these revisions.
            await self._read_pools(connection)
            await self._read_run_times(connection)
            self._revisions = Revisions({pool.id: pool.placement_revision for pool in self.pools.values()})
            await self._read_nodes(connection, await nodes.all_ids(connection))
            await self.calendar.load(connection)
            await self._statistics.read_typical_requests(connection, self.pools.values(), self.cluster)
            await self._read_guarantees(connection)
            for part in chunks(await pending.waiting_ids(connection), _WORKLOADS_AT_ONCE):
                self._pending.add(map(self._predictions.predicted, await pending.waiting(connection, part)))
            self._pending.report_all()
            self.tenancy = Tenancy()
            self._note_changed_reservations()
            await self.tenancy.load(connection, self.queue.values(), now())
        await self._statistics.read_factors(self._database, self.pools)

    async def follow(self) -> bool:
        """Apply all commits since the last call. Return False if there were none."""
        async with self._database.read() as connection:
            news, self._position, self.held_back = await events.since(connection, self._position)
            await self._read_nodes(connection, self._changed_nodes(news))
            await self.calendar.follow(connection, news)
            changed = self._changed_workloads(news)
            await self._read_workloads(connection, changed | await dependencies.waiting_for(connection, _ended(news)))
            new_work = any(e.noun == "workload" and e.version == 1 for e in news)
            if self.calendar.undecided or (not new_work and self.confirm_seconds() == 0):
                await self._confirm(connection)
            for placed in (e for e in news if e.noun == "pool" and e.kind == events.PLACED):
                self._revisions.seen(placed.object_id, placed.version)
            if any(e.noun == "pool" and e.kind != events.PLACED for e in news):
                await self._read_pools(connection)
            self._note_changed_reservations()
            await self.tenancy.follow(connection, news, now())
            if any(e.noun == "tenant" and e.kind == events.QUOTA for e in news):
                self._statistics.forget_factors()
            await self._statistics.read_load(connection, self.cluster)
            await self._statistics.read_typical_requests(connection, self.pools.values(), self.cluster)
            await self._read_run_times(connection)
            if self._any_preempts:
                self.budgets = await running_tasks.budgets(connection)
            await self._read_guarantees(connection)
        await self._statistics.read_factors(self._database, self.pools)
        return bool(news)

    async def read_again(self, node_ids: Iterable[UUID], workload_ids: Iterable[UUID]) -> None:
        """Read nodes and workloads again whose assumed changes were not committed."""
        async with self._database.read() as connection:
            await self._read_nodes(connection, set(node_ids))
            self._note_changed_reservations()
            ids = set(workload_ids)
            await self.tenancy.read_again(connection, [self.queue[id] for id in ids if id in self.queue])
            await self._read_workloads(connection, ids)

    async def start_term(self) -> None:
        """Begin to lead: read the stored reasons, which have no events, and report all workloads as news."""
        async with self._database.read() as connection:
            for stored in await pending.stored_reasons(connection, self.queue.keys()):
                self._pending.note_reason(stored)
        self._pending.report_all()

    async def agrees(self) -> bool:
        """Return whether the usage of nodes and tenants equals the sums that the database computes."""
        async with self._database.read() as connection:
            expected = await nodes.checksums(connection)
            same_tenants = await self.tenancy.agrees(connection)
        found = {
            node.id: (node.generation, int(self.cluster.taken[:, row].sum()))
            for row, node in enumerate(self.cluster.nodes)
            if node is not None
        }
        return same_tenants and found == expected

    # --- for the scheduler ---

    def confirm_seconds(self) -> float | None:
        """Return the seconds until nodes with placements of this leader are read again, or None if there are none."""
        return max(0.0, self._confirmed_at + _CONFIRM_SECONDS - monotonic()) if self._unconfirmed else None

    def revisions(self) -> dict[str, int]:
        """Return by pool the revision up to which this view is complete; constraints between tasks depend on it."""
        return {pool.name: self._revisions.of(pool.id) for pool in self.pools.values()}

    def news(self) -> dict[UUID, Workload | None]:
        """Return the workloads that are new or changed since the last call; None for those no longer pending."""
        return self._pending.news()

    def pending_in_reservation(self, timeslot_id: UUID) -> list[Workload]:
        """Return the pending workloads inside a timeslot."""
        return self._pending.in_reservation(timeslot_id)

    def assume(self, bound: Iterable[Decision], revisions: Mapping[str, int]) -> None:
        """Apply committed decisions of this leader, with their pools' revisions, before the feed confirms them."""
        for pool, revision in revisions.items():
            self._revisions.seen(self.pools[pool].id, revision)
        for decision in bound:
            self._assumed |= self._pending.assume(decision)

    def note_waiting(self, decisions: Iterable[Decision]) -> None:
        """Record stored reasons and planned starts, which have no events, so that they are not written again."""
        self._pending.note_waiting(decisions)

    # --- nodes ---

    def _changed_nodes(self, news: Iterable[Event]) -> set[UUID]:
        """Return the nodes whose capacity differs from the view.

        Placements of this leader already count, and a starting task occupies nothing more. Those nodes are read later,
        when no new work arrives. Only preemption needs them at once, because it uses the start times of tasks.
        """
        changed: set[UUID] = set()
        preempts = self._any_preempts
        for event in news:
            if event.node_id is None:
                continue
            own = event.kind == TaskStatus.SCHEDULED and event.object_id in self._assumed
            self._assumed.discard(event.object_id)
            known = event.noun == "task" and not preempts and (own or event.kind in _STAYS)
            (self._unconfirmed if known else changed).add(event.node_id)
        return changed

    async def _confirm(self, connection: Connection) -> None:
        """Read the nodes whose capacity is known, for the starts and expected ends of their tasks."""
        if self._unconfirmed:
            await self._read_nodes(connection, set(self._unconfirmed))
            self._confirmed_at = monotonic()

    async def _read_nodes(self, connection: Connection, ids: set[UUID]) -> None:
        for part in chunks(sorted(ids), _NODES_AT_ONCE):
            await self._read_some_nodes(connection, set(part))

    async def _read_some_nodes(self, connection: Connection, ids: set[UUID]) -> None:
        self._unconfirmed -= ids
        found = await nodes.load(connection, sorted(ids))
        for node in found:
            self.cluster.upsert(node)
        gone = ids - {node.id for node in found}
        for node_id in gone:
            self.cluster.remove(node_id)
            self.running_tasks.remove(node_id)
        # The store deletes the record of failures on a node when the node is removed.
        await self._read_workloads(
            connection, {w.id for w in self.queue.values() if not gone.isdisjoint(w.constraints.failed_on)}
        )
        present = {node.id for node in found}
        await self._node_tasks.update_tasks(connection, present, preempts=self._any_preempts)
        await self._update_ends(connection, present)
        await self.calendar.update_nodes(connection, ids)

    async def _update_ends(self, connection: Connection, ids: set[UUID]) -> None:
        predicted = self._predictions.by_pool
        await self._node_tasks.update_ends(connection, ids, self._statistics.run_times, predicted)

    async def _read_run_times(self, connection: Connection) -> None:
        """Read the usual run times of pools and learn from ended runs; update what rests on a changed pool option."""
        changed = await self._predictions.learn(connection, self.pools.values())
        names = {pool.name for pool in changed}
        affected = [each for each in self.queue.values() if each.pool in names]
        predicted = [self._predictions.predicted(each) for each in affected]
        self._pending.update({each.id for each in affected}, predicted)
        for pool in (*changed, *await self._statistics.read_run_times(connection, self.pools.values())):
            ids = [node.id for node in self.cluster.nodes_of(pool.name)]
            for part in chunks(ids, _NODES_AT_ONCE):
                await self._update_ends(connection, set(part))

    # --- workloads ---

    def _changed_workloads(self, news: Iterable[Event]) -> set[UUID]:
        """Return the workloads to read again: a placement or a start makes no task pending, so it counts only for
        workloads that are pending here.
        """
        return {
            event.workload_id
            for event in news
            if event.workload_id is not None
            and (event.workload_id in self.queue if event.kind in _STARTS else event.kind != events.UNSCHEDULABLE)
        }

    async def _read_workloads(self, connection: Connection, ids: set[UUID]) -> None:
        if not ids:
            return
        found = await pending.waiting(connection, sorted(ids))
        await self.tenancy.read_new_tenants(connection, found, now())
        self._pending.update(ids, [self._predictions.predicted(workload) for workload in found])
        if any(workload.pool not in self.pools for workload in found):
            await self._read_pools(connection)

    def _note_changed_reservations(self) -> None:
        """Requeue the work of timeslots whose capacity changed, and update the usage of their tenants."""
        changed = self.calendar.changed()
        if changed:
            self.tenancy.charge_bookers(self.calendar.charged(now()))
            self._pending.requeue_in_reservations(changed)

    # --- pools ---

    async def _read_pools(self, connection: Connection) -> None:
        preempted_before = self._any_preempts
        before, self.pools = self.pools, {pool.name: pool for pool in await pools.all_pools(connection)}
        for name, pool in self.pools.items():
            known = before[name].policy if name in before else None
            rules = pool.policy.bookings
            displaced = rules.open_ended is OpenEnded.DISPLACE
            self.cluster.timeline.allow_open_ended(name, rules.movable_notice_seconds, displaced=displaced)
            if known is None or known.fragmentation != pool.policy.fragmentation:
                self.cluster.allow_fragmentation(name, pool.policy.fragmentation)
            if known is not None and (known.max_tasks_per_node, known.isolation) != (
                pool.policy.max_tasks_per_node,
                pool.policy.isolation,
            ):
                await self._read_nodes(connection, {node.id for node in self.cluster.nodes_of(name)})
        if self._any_preempts and not preempted_before:
            await self._read_nodes(connection, {node.id for node in self.cluster.nodes if node is not None})

    async def _read_guarantees(self, connection: Connection) -> None:
        rules = [pool.policy.preemption for pool in self.pools.values()]
        if any(each is not None and each.scope is VictimScope.RECLAIM for each in rules):
            found = await quotas.guarantees(connection)
            self.guarantees = {
                pool: {UUID(project): amounts for project, amounts in projects.items()}
                for pool, projects in found.items()
            }

    @property
    def _any_preempts(self) -> bool:
        return any(pool.policy.preemption is not None for pool in self.pools.values())


def _ended(news: Iterable[Event]) -> set[UUID]:
    """Return the workloads that ended, since others may depend on their end."""
    return {event.object_id for event in news if event.noun == "workload" and event.kind in _ENDS}
