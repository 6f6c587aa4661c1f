"""The leader's view: the columnar cluster and the waiting workloads, following the event feed.

An event only says where to look; the mirror reads those rows again, so loss, repetition and order of events cannot
corrupt it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.mirror.admission import Tenancy
from mooring.mirror.calendar import Calendar
from mooring.mirror.fair_share import factors
from mooring.mirror.revisions import Revisions
from mooring.model.constraints import Constraints, HostPort
from mooring.model.decisions import Decision
from mooring.model.events import Event
from mooring.model.fair_share import Factors
from mooring.model.lifecycle import TaskStatus, WorkloadStatus, is_workload_end
from mooring.model.pools import Expectation, PoolPolicy
from mooring.model.preemption import Budgets, VictimScope
from mooring.model.slots import Amounts
from mooring.model.workloads import NO_CONSTRAINTS, Workload
from mooring.scheduling.columns import Cluster, with_host_ports
from mooring.scheduling.reclaim import Guarantees
from mooring.scheduling.residents import Residents
from mooring.scheduling.timeline import seconds_of
from mooring.scheduling.typical import Typical
from mooring.store import dependencies, events, expectations, nodes, pools, quotas, residents, workloads
from mooring.store.chunks import chunks
from mooring.store.engine import Connection, Database
from mooring.store.run_times import RunTimes, usual

_log = structlog.get_logger(__name__)
_LOAD_SECONDS = 5.0
_TYPICAL_SECONDS = 600.0
_USUAL_SECONDS = 300.0
_CONSTRAINTS_KEPT = 100_000
_NODES_AT_ONCE = 250
_WORKLOADS_AT_ONCE = 1000
"""Read in one go: meanwhile nothing else of the process is done, not even the renewal of its lease."""
_STAYS = frozenset(
    {TaskStatus.PREPARING, TaskStatus.RUNNING, events.READY, events.UNREADY, events.RENEWED, events.RETIRING}
)
"""A task that comes to one of these is where it was, and occupies what it did."""

_ALMOST_A_SECOND = timedelta(microseconds=999_999)
"""What ends within a second is there until its end."""
_BY_USE = frozenset({"fair_share", "multi_factor"})
"""Sequencers that ask how much tenants used lately."""
_ENDS = frozenset(status for status in WorkloadStatus if is_workload_end(status))


class Mirror:
    def __init__(self, database: Database, accounting_interval_seconds: float = 300.0) -> None:
        self._database = database
        self._accounting_seconds = accounting_interval_seconds
        self._position = 0
        self.held_back = False
        """Something was committed that cannot be read yet, and no signal may come when it can."""
        self._load_read_at = 0.0
        self.cluster = Cluster()
        self._constraints: dict[UUID, Constraints] = {}
        """Of workloads that have, or had, tasks somewhere."""
        self.queue: dict[UUID, Workload] = {}
        self._news: set[UUID] | None = None
        """What was read, or left the queue, since `news` was asked for; None: it never was since the load."""
        self.pools: dict[str, pools.Pool] = {}
        self._revisions = Revisions()
        self._assumed: set[UUID] = set()
        """Tasks that this leader placed, until the feed tells of them."""
        self._unconfirmed: set[UUID] = set()
        """Nodes that were not read since something happened there that changes nothing for placement."""
        self.residents = Residents()
        """Who is on the nodes, kept while some pool allows preemption."""
        self.budgets = Budgets()
        self.guarantees: Guarantees = {}
        """What projects have for sure, read while some pool lets them reclaim it."""
        self.calendar = Calendar(self.cluster)
        self._inside: set[UUID] = set()
        """What waits, or waited, to run inside a timeslot."""
        self.tenancy = Tenancy()
        """Whose work waits, and what they may."""
        self._typical_read_at: dict[UUID, float] = {}
        self._usual: dict[UUID, RunTimes] = {}
        """By pool how long work runs that is expected to end as such work did before."""
        self._usual_read_at: dict[UUID, float] = {}
        self.factors: dict[str, Factors] = {}
        """How much tenants used lately, for the pools that order by it."""
        self._factors_read_at: dict[str, float] = {}

    async def load(self) -> None:
        """Read everything. What is committed meanwhile is read again by the next `follow`."""
        async with self._database.read() as connection:
            self._position = await events.position(connection)
            self.cluster, self.residents, self.pools = Cluster(), Residents(), {}
            self._constraints, self._typical_read_at, self._factors_read_at = {}, {}, {}
            self._assumed, self._unconfirmed, self.queue, self._inside = set(), set(), {}, set()
            self.calendar = Calendar(self.cluster)
            # Before the tasks: the view then knows at least the placements up to these numbers.
            await self._read_pools(connection)
            self._usual, self._usual_read_at = {}, {}
            await self._read_usual(connection)
            self._revisions = Revisions({pool.id: pool.placement_revision for pool in self.pools.values()})
            await self._read_nodes(connection, await nodes.all_ids(connection))
            await self.calendar.load(connection)
            await self._read_typical(connection)
            await self._read_guarantees(connection)
            for part in chunks(await workloads.waiting_ids(connection), _WORKLOADS_AT_ONCE):
                self._queue_up(await workloads.waiting(connection, part))
            self._news = None
            self.tenancy = Tenancy()
            self._note_inside()
            await self.tenancy.load(connection, self.queue.values(), now())
        await self._read_factors()

    async def follow(self) -> bool:
        """Take in what was committed since; False if nothing was."""
        async with self._database.read() as connection:
            news, self._position = await events.since(connection, self._position)
            self.held_back = await events.held_back(connection, self._position)
            await self._read_nodes(connection, self._moved(news))
            await self.calendar.follow(connection, news)
            changed = {e.workload_id for e in news if e.workload_id is not None}
            await self._read_workloads(connection, changed | await dependencies.waiting_for(connection, _ended(news)))
            if self.calendar.undecided or not any(e.noun == "workload" and e.version == 1 for e in news):
                await self._read_nodes(connection, set(self._unconfirmed))
            for placed in (e for e in news if e.noun == "pool" and e.kind == events.PLACED):
                self._revisions.seen(placed.object_id, placed.version)
            if any(e.noun == "pool" and e.kind != events.PLACED for e in news):
                await self._read_pools(connection)
            self._note_inside()
            await self.tenancy.follow(connection, news, now())
            await self._read_load(connection)
            await self._read_typical(connection)
            await self._read_usual(connection)
            if self._any_preempts:
                self.budgets = await residents.budgets(connection)
            await self._read_guarantees(connection)
        await self._read_factors()
        return bool(news)

    async def agrees(self) -> bool:
        """Whether nodes and tenants are charged here with what the store says: sums that the database computes."""
        async with self._database.read() as connection:
            expected = await nodes.checksums(connection)
            same_tenants = await self.tenancy.agrees(connection)
        found = {
            node.id: (node.generation, int(self.cluster.taken[:, row].sum()))
            for row, node in enumerate(self.cluster.nodes)
            if node is not None
        }
        return same_tenants and found == expected

    async def take_office(self) -> None:
        """Begin to lead: what work was told by others is read, since no event tells of it, and all of it is news."""
        async with self._database.read() as connection:
            for workload_id, message, start in await workloads.told(connection, self.queue.keys()):
                self._note_told(workload_id, message, start)
        self._news = None

    def _moved(self, news: Iterable[Event]) -> set[UUID]:
        """The nodes where something else fits than the view says.

        What this leader placed counts there already, and what starts takes no more: such nodes are read when no new
        work waits for it. Preemption alone asks who runs since when.
        """
        moved: set[UUID] = set()
        preempts = self._any_preempts
        for event in news:
            if event.node_id is None:
                continue
            own = event.kind == TaskStatus.SCHEDULED and event.object_id in self._assumed
            self._assumed.discard(event.object_id)
            known = event.noun == "task" and not preempts and (own or event.kind in _STAYS)
            (self._unconfirmed if known else moved).add(event.node_id)
        return moved

    async def read_again(self, node_ids: Iterable[UUID], workload_ids: Iterable[UUID]) -> None:
        """What was assumed of these did not come true."""
        async with self._database.read() as connection:
            await self._read_nodes(connection, set(node_ids))
            self._note_inside()
            ids = set(workload_ids)
            await self.tenancy.read_again(connection, [self.queue[id] for id in ids if id in self.queue])
            await self._read_workloads(connection, ids)

    def revisions(self) -> dict[str, int]:
        """Per pool the placements up to which this view is complete: constraints between tasks rest on them."""
        return {pool.name: self._revisions.of(pool.id) for pool in self.pools.values()}

    def news(self) -> dict[UUID, Workload | None]:
        """What is new in the queue or other than it was since this was asked last; None for what waits no more."""
        changed = self.queue.keys() if self._news is None else self._news
        self._news = set()
        return {workload_id: self.queue.get(workload_id) for workload_id in changed}

    def _note(self, workload_ids: set[UUID]) -> None:
        if self._news is not None:
            self._news |= workload_ids

    def assume(self, bound: Iterable[Decision], revisions: Mapping[str, int]) -> None:
        """Own decisions count at once, with the numbers that they raised their pools to; the feed confirms them."""
        for pool, revision in revisions.items():
            self._revisions.seen(self.pools[pool].id, revision)
        for decision in bound:
            placed = {placement.task_id for placement in decision.placements}
            self._assumed |= placed
            workload = self.queue.get(decision.workload.id)
            if workload is None:
                continue
            self._note({workload.id})
            left = tuple(task for task in workload.tasks if task.id not in placed)
            if left:
                self.queue[workload.id] = replace(workload, tasks=left, placed_before=True)
            else:
                del self.queue[workload.id]

    def note_waiting(self, decisions: Iterable[Decision]) -> None:
        """Why workloads wait, and until when, is stored without an event: it is known here, and not written again."""
        for decision in decisions:
            workload = self.queue.get(decision.workload.id)
            if workload is None:
                continue
            start = decision.planned_start if decision.is_replanned else workload.planned_start
            message = workload.waiting_reason if decision.reason is None else decision.reason.message
            self._note_told(workload.id, message, start)

    def _note_told(self, workload_id: UUID, message: str | None, start: datetime | None) -> None:
        workload = self.queue[workload_id]
        if (workload.waiting_reason, workload.planned_start) != (message, start):
            self.queue[workload_id] = replace(workload, waiting_reason=message, planned_start=start)

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
            self.residents.remove(node_id)
        # The store forgets on which node a task failed when that node is removed.
        await self._read_workloads(
            connection, {w.id for w in self.queue.values() if not gone.isdisjoint(w.constraints.failed_on)}
        )
        await self._tell_tasks(connection, {node.id for node in found})
        await self._tell_ends(connection, {node.id for node in found})
        await self.calendar.tell_nodes(connection, ids)

    async def _tell_tasks(self, connection: Connection, ids: set[UUID]) -> None:
        """Tell the cluster what runs on nodes: tasks with affinity and spread ask about it."""
        rows = await nodes.tasks_on(connection, sorted(ids))
        if len(self._constraints) > _CONSTRAINTS_KEPT:
            self._constraints = {}
        unknown = {row.workload_id for row in rows} - self._constraints.keys()
        self._constraints |= await workloads.constraints_of(connection, sorted(unknown))
        staying: dict[UUID, list[tuple[Constraints, int]]] = {node_id: [] for node_id in ids}
        leaving: dict[UUID, list[tuple[Constraints, int]]] = {}
        for row in rows:
            told = leaving if row.leaving else staying
            ports = (HostPort(port, protocol) for protocol, port in row.ports or ())
            known = NO_CONSTRAINTS if row.lost else self._constraints[row.workload_id]
            constraints = with_host_ports(known, ports)
            told.setdefault(row.node_id, []).append((constraints, row.number))
        for node_id in {**staying, **leaving}:
            self.cluster.tell_tasks(node_id, staying.get(node_id, ()), leaving=leaving.get(node_id, ()))
        if self._any_preempts:
            here = await residents.on_nodes(connection, sorted(ids), self._constraints)
            for node_id, own in here.items():
                self.residents.tell(node_id, own)

    async def _tell_ends(self, connection: Connection, ids: set[UUID]) -> None:
        """Tell the cluster when what runs on nodes will be gone."""
        ends: dict[UUID, dict[UUID, tuple[int, Amounts]]] = {node_id: {} for node_id in ids}
        guessed: dict[UUID, dict[UUID, tuple[int, Amounts]]] = {node_id: {} for node_id in ids}
        endings = await expectations.on_nodes(connection, sorted(ids), now(), self._usual)
        for node_id, task_id, ends_at, usually_at, request in endings:
            for found, at in ((ends, ends_at), (guessed, usually_at)):
                if at is not None:
                    found[node_id][task_id] = (seconds_of(at + _ALMOST_A_SECOND), request)
        for node_id in ids:
            self.cluster.tell_ends(node_id, ends[node_id], guessed[node_id])

    async def _read_workloads(self, connection: Connection, ids: set[UUID]) -> None:
        if not ids:
            return
        found = {workload.id: workload for workload in await workloads.waiting(connection, sorted(ids))}
        self._note(ids)
        await self.tenancy.meet(connection, found.values(), now())
        self._queue_up(found.values())
        for workload_id in ids - found.keys():
            self.queue.pop(workload_id, None)
        if any(workload.pool not in self.pools for workload in found.values()):
            await self._read_pools(connection)

    def waiting_inside(self, timeslot_id: UUID) -> list[Workload]:
        """What waits to run inside a timeslot."""
        found = (self.queue.get(workload_id) for workload_id in sorted(self._inside))
        return [workload for workload in found if workload is not None and workload.booking == timeslot_id]

    def _queue_up(self, found: Iterable[Workload]) -> None:
        for workload in found:
            self.queue[workload.id] = workload
            if workload.booking is not None:
                self._inside.add(workload.id)

    def _note_inside(self) -> None:
        """The work of timeslots that have other room than before is worth a look, and so is what their bookers use."""
        changed = self.calendar.changed()
        if changed:
            self.tenancy.charge_bookers(self.calendar.charged(now()))
        if changed and self._inside:
            self._inside &= self.queue.keys()
            self._note({id for id in self._inside if self.queue[id].booking in changed})

    async def _read_pools(self, connection: Connection) -> None:
        preempted_before = self._any_preempts
        before, self.pools = self.pools, {pool.name: pool for pool in await pools.all_pools(connection)}
        for name, pool in self.pools.items():
            known = before[name].policy if name in before else None
            if known is None or known.fragmentation != pool.policy.fragmentation:
                self.cluster.allow_fragmentation(name, pool.policy.fragmentation)
            if known is not None and known.max_tasks_per_node != pool.policy.max_tasks_per_node:
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

    async def _read_usual(self, connection: Connection) -> None:
        """How long work usually runs, for the pools that expect it to end so; what runs there is told anew with it."""
        time = asyncio.get_running_loop().time()
        for pool in self.pools.values():
            if pool.policy.backfill.expectation is not Expectation.HISTORY:
                run_times: RunTimes = {}
            elif time - self._usual_read_at.get(pool.id, -_USUAL_SECONDS) >= _USUAL_SECONDS:
                self._usual_read_at[pool.id] = time
                run_times = await usual(connection, pool.id, now())
            else:
                continue
            if run_times != self._usual.get(pool.id, {}):
                self._usual[pool.id] = run_times
                ids = [node.id for node in self.cluster.nodes_of(pool.name)]
                for part in chunks(ids, _NODES_AT_ONCE):
                    await self._tell_ends(connection, set(part))

    async def _read_typical(self, connection: Connection) -> None:
        """What is typically asked of devices, for the pools that place by it; a change makes all scores stale."""
        time = asyncio.get_running_loop().time()
        for pool in self.pools.values():
            read_at = self._typical_read_at.get(pool.id, -_TYPICAL_SECONDS)
            if not _places_by_typical(pool.policy) or time - read_at < _TYPICAL_SECONDS:
                continue
            self._typical_read_at[pool.id] = time
            asked = await workloads.asked_of_devices(connection, pool.id)
            total = sum(number for _, number in asked)
            typical = [Typical(dict(request), max(1, number * 1000 // total)) for request, number in asked]
            if typical != list(self.cluster.devices.typical.get(pool.name, ())):
                self.cluster.tell_typical(pool.name, typical)

    async def _read_factors(self) -> None:
        """Who used how much lately, as often as it is counted. Placing goes on with what is known if that fails."""
        time = asyncio.get_running_loop().time()
        for name, pool in self.pools.items():
            read_at = self._factors_read_at.get(name, -self._accounting_seconds)
            if pool.policy.sequencer not in _BY_USE or time - read_at < self._accounting_seconds:
                continue
            self._factors_read_at[name] = time
            try:
                async with self._database.read() as connection:
                    self.factors[name] = await factors(connection, name, pool.policy.fair_share, now())
            except Exception:
                _log.exception(f"Use of pool {name} could not be read")

    async def _read_load(self, connection: Connection) -> None:
        time = asyncio.get_running_loop().time()
        if time - self._load_read_at < _LOAD_SECONDS:
            return
        self._load_read_at = time
        for node_id, cpu_percent, memory_percent in await nodes.loads(connection):
            self.cluster.set_load(node_id, cpu_percent, memory_percent)


def _ended(news: Iterable[Event]) -> set[UUID]:
    """The workloads that came to an end: others may have waited for it."""
    return {event.object_id for event in news if event.noun == "workload" and event.kind in _ENDS}


def _places_by_typical(policy: PoolPolicy) -> bool:
    return policy.profile == "gpu" or any(scorer == "fragmentation" for scorer, _ in policy.weights or ())
