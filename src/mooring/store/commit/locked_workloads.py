"""Locked workloads with their current and live tasks: the rows that status changes work on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model import lifecycle
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.reasons import Reason
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Kind, Workload
from mooring.store.core.batch_sql import Statement
from mooring.store.core.ids import array_task_id
from mooring.store.core.types import as_uuid
from mooring.store.workloads.arrays import DEFERRED, rows_ahead

_TASK_STATUS = {status.value: status for status in TaskStatus}
_WORKLOAD_STATUS = {status.value: status for status in WorkloadStatus}
_living = ", ".join(f"'{status}'" for status in sorted({*lifecycle.OCCUPYING, TaskStatus.PENDING}))
_TASK = """
    i.ordinal, t.id, t.status, t.node_id, t.current, t.requeue, t.version, CAST(t.requested_slots AS text),
    t.started_at IS NOT NULL, t.freed_at IS NOT NULL, t.preempted_by IS NOT NULL, CAST(t.ports AS text),
    t.devices IS NOT NULL, t.failures, t.reason ->> 'code', t.ready_at IS NOT NULL, CAST(t.digests AS text), t.address,
    t.restarts, t.crashes, t.earlier_crashes
"""
_ID = {"id": "uuid"}
_WORKLOADS = f"""
    SELECT i.ordinal, w.status, w.replicas, w.timeslot_id IS NOT NULL, w.name, w.kind, w.type, w.user_id, w.access_key,
        w.project_id, w.domain_id, p.name, w.private, w.priority, w.gang, w.min_tasks, w.single_node, w.max_per_node,
        w.parallel, w.time_limit_seconds, w.version, w.stopping, w.ended_at, w.removed_at, w.array IS NOT NULL,
        w.max_retries, CAST(w.retry_on AS text), coalesce(CAST(p.options ->> 'deprioritise' AS bigint), 0),
        w.idle_timeout_seconds, {DEFERRED}, w.next_index
    FROM {{rows}} i JOIN workloads w ON w.id = i.id JOIN pools p ON p.id = w.pool_id ORDER BY w.id {{lock}}
"""
_READ = Statement(_WORKLOADS, _ID)
_CHANGED = Statement(
    """
    SELECT i.ordinal FROM {rows} i LEFT JOIN workloads w ON w.id = i.id
    WHERE w.version IS NULL OR w.version <> i.version OR w.stopping
    """,
    {"id": "uuid", "version": "bigint"},
)
_LOCK = Statement(_WORKLOADS, _ID, lock="FOR UPDATE OF w")
LOCK_NODES = Statement(
    "SELECT 1 FROM {rows} i JOIN nodes n ON n.id = i.id ORDER BY n.id {lock}", _ID, lock="FOR NO KEY UPDATE OF n"
)
_OWNERS = Statement("SELECT DISTINCT t.workload_id FROM {rows} i JOIN tasks t ON t.id = i.id", _ID)
_LIVING = Statement(
    f"SELECT {_TASK} FROM {{rows}} i JOIN tasks t ON t.workload_id = i.id WHERE t.current OR t.status IN ({_living})",
    _ID,
)
_occupying = ", ".join(f"'{status}'" for status in sorted(lifecycle.OCCUPYING))
_PLACED = Statement(
    f"SELECT {_TASK} FROM {{rows}} i JOIN tasks t ON t.workload_id = i.id WHERE t.status IN ({_occupying})", _ID
)
_COUNTS = Statement(
    """
    SELECT i.ordinal, t.status, t.requeue, count(*) FROM {rows} i JOIN tasks t ON t.workload_id = i.id
    WHERE t.current GROUP BY i.ordinal, t.status, t.requeue
    """,
    _ID,
)
_THESE = Statement(f"SELECT {_TASK}, t.workload_id FROM {{rows}} i JOIN tasks t ON t.id = i.id", _ID)


@dataclass(slots=True)
class LoadedWorkload:
    id: UUID
    status: WorkloadStatus
    replicas: int
    in_timeslot: bool
    name: str
    kind: str
    type: str
    user_id: Any
    access_key: str
    project_id: Any
    domain_id: Any
    pool: str
    private: bool
    priority: int
    gang: bool
    min_tasks: int | None
    single_node: bool
    max_per_node: int | None
    parallel: int | None
    time_limit_seconds: int | None
    version: int
    stopping: bool = False
    ended_at: object | None = None
    removed_at: object | None = None
    array: bool = False
    max_retries: int = 0
    retry_on: str | None = None
    """Exit codes as JSON; None: any."""
    deprioritise: int = 0
    """Amount by which its priority drops when it cannot be started; 0: it fails instead."""
    idle_timeout_seconds: int | None = None
    deferred: int = 0
    """Number of tasks of an array that have no row yet."""
    next_index: int = 0
    """Of an array: all indexes below it have a row."""

    @property
    def alone(self) -> bool:
        """Return whether each of its tasks fails for itself: those of arrays and deployments, not those of a gang."""
        return self.array or self.kind == Kind.DEPLOYMENT

    @property
    def exempt(self) -> bool:
        """Return whether its usage is charged to no tenant: private, or inside a timeslot that is charged already."""
        return self.private or self.in_timeslot

    @property
    def counts_tasks(self) -> bool:
        """Return whether placing a task depends on where, or how many, other tasks of the workload are."""
        unlimited = self.max_per_node is None and self.min_tasks is None and self.parallel is None
        return self.single_node or not unlimited

    def lower(self, reason: Reason) -> Reason:
        """Lower the priority after a failed start, and return the reason with the new priority."""
        self.priority = max(0, self.priority - self.deprioritise)
        return replace(reason, message=f"{reason.message}; it is requeued with priority {self.priority}")


_seen = attrgetter(*(part.name for part in fields(LoadedWorkload)[4:] if part.default is MISSING))
"""Getter of the fields that placement knows of a workload, in the order of `LoadedWorkload`."""


@dataclass(slots=True)
class LoadedTask:
    """A task, including the changes of this transaction so far."""

    id: UUID
    workload_id: UUID
    status: TaskStatus
    version: int
    request: Amounts
    node_id: UUID | None = None
    current: bool = True
    requeue: bool = False
    freed: bool = False
    preempted: bool = False
    ports: str | None = None
    """JSON text; None if it has none."""
    has_devices: bool = False
    failures: int = 0
    """Failures of earlier attempts."""
    code: str | None = None
    """The code of the stored reason."""
    column: str | None = None
    """The column of ledger and counters that has its amounts: held, reserved or used."""
    ready: bool = False
    digests: str | None = None
    """As JSON."""
    address: str | None = None
    restarts: int = 0
    crashes: int = 0
    """Ends soon after a start, in a row, of this attempt."""
    earlier_crashes: int = 0


class Created(NamedTuple):
    """New rows of an array's deferred tasks; `next_index` moves from `start` to `stop`."""

    start: int
    stop: int
    indexes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Loaded:
    workloads: dict[UUID, LoadedWorkload]
    """Locked until the transaction ends, unless `load_unlocked` read them."""
    tasks: dict[UUID, LoadedTask]
    """Current or live tasks; of an array, those that were asked for by id or are on a node."""
    others: dict[UUID, Counter[TaskStatus]] = field(default_factory=dict)
    """Of arrays: the number of other current tasks by status, as they count for the workload."""
    locked_nodes: set[UUID] = field(default_factory=set)
    """Nodes whose rows the caller has locked."""
    unread: list[Workload] = field(default_factory=list)
    """Workloads that are unchanged since placement read them; `assume_pending` adds them to the others."""
    ahead: dict[UUID, set[int]] = field(default_factory=dict)
    """Of arrays: the indexes from `next_index` on that have a row, since they were cancelled."""
    created: dict[UUID, Created] = field(default_factory=dict)
    """Of arrays: the deferred tasks that `create_deferred` added."""

    def assume_pending(self) -> None:
        for workload in self.unread:
            self.workloads[workload.id] = _as_pending(workload)
            request = _shared(tuple(workload.request.items()))
            for task in workload.tasks:
                self.tasks[task.id] = LoadedTask(task.id, workload.id, TaskStatus.PENDING, task.version, request)
        self.unread.clear()

    def create_deferred(self, seen: Workload, placed: Collection[UUID]) -> None:
        """Add the deferred tasks of an array up to the last one that is `placed`; `bind` inserts their rows."""
        workload = self.workloads.get(seen.id)
        if workload is None or not workload.deferred:
            return
        first, ahead = workload.next_index, self.ahead.get(seen.id, frozenset[int]())
        last = max((task.index for task in seen.tasks if task.index >= first and task.id in placed), default=-1)
        if last < first:
            return
        created = self.created[seen.id] = Created(
            first, last + 1, [index for index in range(first, last + 1) if index not in ahead]
        )
        request = _shared(tuple(seen.request.items()))
        for index in created.indexes:
            task_id = array_task_id(seen.id, index)
            self.tasks[task_id] = LoadedTask(task_id, seen.id, TaskStatus.PENDING, 1, request)
        workload.deferred -= len(created.indexes)
        workload.next_index = last + 1

    def pending(self, workload_id: UUID) -> int:
        """Return the number of pending tasks of a workload."""
        waiting, workload = TaskStatus.PENDING, self.workloads[workload_id]
        own = sum(t.current and t.status is waiting for t in self.tasks.values() if t.workload_id == workload_id)
        deferred = 0 if workload.stopping or workload.ended_at is not None else workload.deferred
        return own + self.others.get(workload_id, Counter())[waiting] + deferred


async def load(
    connection: AsyncConnection,
    *,
    tasks_of: Sequence[UUID] = (),
    workload_ids: Iterable[UUID] = (),
    naming: Sequence[UUID] = (),
    whole: bool = False,
) -> Loaded:
    """Lock and return the workloads of these tasks, and these workloads, with their tasks.

    An array may have very many tasks, most of them pending or ended. Of an array only the tasks on nodes and those of
    `tasks_of` and `naming` are read, unless `whole` is set.
    """
    locked = await lock_workloads(connection, {*await _owners(connection, tasks_of), *workload_ids})
    return await _with_tasks(connection, locked, {*tasks_of, *naming}, whole=whole)


async def load_unlocked(
    connection: AsyncConnection, seen: Iterable[Workload], *, fresh: Sequence[Workload], naming: Sequence[UUID]
) -> Loaded:
    """As `load`, without locks: the writes compare the versions of the workloads to detect later changes.

    `seen`: the workloads as placement saw them. `fresh`: those of them that never had a task or a hold on a node; one
    whose version is unchanged is not read again.
    """
    changed = {row[0] for row in await _CHANGED.read(connection, [(w.id, w.version) for w in fresh])} if fresh else ()
    known = {workload.id: workload for number, workload in enumerate(fresh) if number not in changed}
    others = [workload.id for workload in seen if workload.id not in known]
    loaded = await _with_tasks(connection, await _workloads(connection, _READ, others), set(naming))
    loaded.unread.extend(known.values())
    return loaded


def _as_pending(workload: Workload) -> LoadedWorkload:
    """Return a workload whose tasks are all pending for the first time; fields that only ends depend on are unset."""
    booked = workload.booking is not None
    return LoadedWorkload(workload.id, WorkloadStatus.PENDING, len(workload.tasks), booked, *_seen(workload))


async def _with_tasks(
    connection: AsyncConnection, found: dict[UUID, LoadedWorkload], named: set[UUID], *, whole: bool = False
) -> Loaded:
    arrays = [id for id, workload in found.items() if workload.array and not whole]
    ids = [id for id in found if id not in arrays] if arrays else list(found)
    rows = await _LIVING.read(connection, [(id,) for id in ids]) if ids else ()
    loaded = Loaded(found, {(task := _task(ids[row[0]], row)).id: task for row in rows})
    if arrays:
        await _load_arrays(connection, loaded, arrays, named)
    return loaded


async def _load_arrays(connection: AsyncConnection, loaded: Loaded, arrays: list[UUID], named: set[UUID]) -> None:
    of_arrays = [(id,) for id in arrays]
    with_gaps = [w.id for id in arrays if (w := loaded.workloads[id]).deferred < w.replicas - w.next_index]
    if with_gaps:
        loaded.ahead.update(await rows_ahead(connection, with_gaps))
    found = [_task(arrays[row[0]], row) for row in await _PLACED.read(connection, of_arrays)]
    if named:
        found += [_task(as_uuid(row[-1]), row) for row in await _THESE.read(connection, [(id,) for id in named])]
    for task in found:
        if task.workload_id in arrays:
            loaded.tasks[task.id] = task
    for ordinal, status, requeue, number in await _COUNTS.read(connection, of_arrays):
        workload = loaded.workloads[arrays[ordinal]]
        counted = loaded.others.setdefault(workload.id, Counter())
        counted[_counted_status(_TASK_STATUS[status], requeue, workload)] += number
    for task in loaded.tasks.values():
        if task.current and task.workload_id in loaded.others:
            workload = loaded.workloads[task.workload_id]
            loaded.others[workload.id][_counted_status(task.status, task.requeue, workload)] -= 1


def _counted_status(status: TaskStatus, requeue: bool, workload: LoadedWorkload) -> TaskStatus:
    return lifecycle.counted_status(status, requeue=requeue, stopping=workload.stopping)


async def lock_workloads(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, LoadedWorkload]:
    """Return the workloads, locked in the order of their ids until the transaction ends."""
    return await _workloads(connection, _LOCK, ids)


async def _workloads(
    connection: AsyncConnection, statement: Statement, ids: Iterable[UUID]
) -> dict[UUID, LoadedWorkload]:
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return {}
    rows = await statement.read(connection, [(id,) for id in wanted])
    return {
        (id := wanted[ordinal]): LoadedWorkload(id, _WORKLOAD_STATUS[status], *values)
        for ordinal, status, *values in rows
    }


async def lock_owners(connection: AsyncConnection, task_ids: Collection[UUID]) -> None:
    """Lock the workloads of these tasks, as `lock_workloads` does."""
    await lock_workloads(connection, await _owners(connection, list(task_ids)))


async def lock_nodes(connection: AsyncConnection, ids: Iterable[UUID]) -> None:
    """Lock nodes in the order of their ids. Every transaction that changes the counters of nodes does this first."""
    rows = [(id,) for id in ids]
    if rows and connection.dialect.name == "postgresql":
        await LOCK_NODES.read(connection, rows)


async def load_ended(connection: AsyncConnection, task_ids: Sequence[UUID]) -> list[LoadedTask]:
    """Return these tasks in whatever status, with their workloads locked."""
    await lock_owners(connection, task_ids)
    rows = await _THESE.read(connection, [(id,) for id in dict.fromkeys(task_ids)]) if task_ids else ()
    return [_task(as_uuid(row[-1]), row) for row in sorted(rows, key=itemgetter(0))]


async def _owners(connection: AsyncConnection, task_ids: Sequence[UUID]) -> list[UUID]:
    if not task_ids:
        return []
    return [as_uuid(row[0]) for row in await _OWNERS.read(connection, [(id,) for id in task_ids])]


def _task(workload_id: UUID, row: Sequence[Any]) -> LoadedTask:
    _, task_id, status, node_id, current, requeue, version, request, started, freed, preempted, ports, *more = row
    devices, failures, code, ready, digests, address, restarts, crashes, earlier_crashes, *_ = more
    return LoadedTask(
        as_uuid(task_id),
        workload_id,
        _TASK_STATUS[status],
        version,
        _amounts(request),
        None if node_id is None else as_uuid(node_id),
        current,
        requeue,
        freed,
        preempted,
        ports,
        devices,
        failures,
        code,
        None if node_id is None else "held" if status == TaskStatus.RESERVED else "used" if started else "reserved",
        bool(ready),
        digests,
        address,
        restarts,
        crashes,
        earlier_crashes,
    )


@lru_cache(maxsize=4096)
def _amounts(text: str) -> Amounts:
    """Return one shared object for all tasks with the same request; it is never modified."""
    amounts: dict[str, int] = msgspec.json.decode(text)
    return amounts


@lru_cache(maxsize=4096)
def _shared(amounts: tuple[tuple[str, int], ...]) -> Amounts:
    """As `_amounts`, from amounts that are decoded already."""
    return dict(amounts)
