"""Expected ends of the tasks on nodes, as far as they are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus
from mooring.model.resources.devices import DeviceShare, shares_of
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.lifetime.runs import JobFeatures
from mooring.store.core.batch_sql import among
from mooring.store.core.queries import Query
from mooring.store.core.types import AnyRow
from mooring.store.tables import tasks, timeslots, workloads
from mooring.store.workloads.run_times import Kind, RunTimes
from mooring.store.workloads.runs.job_features import FEATURES, features_of

Predict = Callable[[JobFeatures], int | None]
_NOT_PREDICTED: Mapping[UUID, Predict] = MappingProxyType({})


class ExpectedEnd(NamedTuple):
    """Task on a node, with its expected end and the resources it then frees."""

    node_id: UUID
    task_id: UUID
    ends_at: datetime | None
    """Latest end; None if it is unknown."""
    usually_at: datetime | None
    """Expected end by the usual run time, if that is earlier."""
    request: Amounts
    workload_id: UUID
    ports: tuple[tuple[str, int], ...] = ()
    """Protocol and number of its ports on the node."""
    devices: tuple[DeviceShare, ...] = ()
    leaving: bool = False
    """True if the task is being stopped."""
    grace_seconds: int = 0
    """Stop grace included in `ends_at`; 0 if a timeslot sets the end or `usually_at` is known."""


async def on_nodes(
    connection: AsyncConnection,
    ids: Sequence[UUID],
    now: datetime,
    usual: Mapping[UUID, RunTimes],
    predicted: Mapping[UUID, Predict] = _NOT_PREDICTED,
) -> list[ExpectedEnd]:
    """Return the tasks on these nodes with a time limit, a timeslot or a usual end, and those that are being stopped.

    The end of all others is open. `usual` holds the usual run times of those pools that rely on them, `predicted` the
    predicted run times in seconds of others.
    """
    rows: Iterable[AnyRow]
    if guessing := sorted({*usual, *predicted}):
        query = _ON_NODES.where(or_(_ENDS, workloads.c.pool_id.in_(guessing)))
        rows = await connection.execute(query, {"ids": ids})
    else:
        rows = await _ENDING_ON_NODES.rows(connection, ids=ids)
    found = [_expected_end(row, now, _guessed_run_time(row, usual, predicted)) for row in rows]
    return [each for each in found if each.ends_at is not None or each.usually_at is not None]


_ENDS = or_(
    workloads.c.time_limit_seconds.is_not(None),
    timeslots.c.ends_at.is_not(None),
    tasks.c.status == TaskStatus.TERMINATING,
)


_ON_NODES: Select[Any] = (
    select(
        tasks.c.node_id,
        tasks.c.id,
        tasks.c.status,
        tasks.c.started_at,
        tasks.c.deadline_at,
        tasks.c.requested_slots,
        tasks.c.workload_id,
        tasks.c.ports,
        tasks.c.devices,
        workloads.c.pool_id,
        *FEATURES,
        workloads.c.template["stop_grace_seconds"].as_integer().label("stop_grace_seconds"),
        timeslots.c.ends_at.label("timeslot_ends_at"),
    )
    .join(workloads, workloads.c.id == tasks.c.workload_id)
    .outerjoin(timeslots, and_(timeslots.c.id == workloads.c.timeslot_id, timeslots.c.ended_at.is_(None)))
    .where(among(tasks.c.node_id), tasks.c.status.in_(list(OCCUPYING)))
)
_ENDING_ON_NODES = Query(_ON_NODES.where(_ENDS))


def _expected_end(row: AnyRow, now: datetime, run_time: timedelta | None) -> ExpectedEnd:
    ends_at, usually_at = _end(row, now), _usual_end(row, now, run_time)
    if ends_at is not None and usually_at is not None and usually_at >= ends_at:
        usually_at = None
    return ExpectedEnd(
        row.node_id,
        row.id,
        ends_at,
        usually_at,
        row.requested_slots,
        row.workload_id,
        tuple((protocol, port) for protocol, port in row.ports or ()),
        tuple(shares_of(row.devices)),
        row.status == TaskStatus.TERMINATING,
        0 if ends_at is None or row.timeslot_ends_at is not None or usually_at is not None else row.stop_grace_seconds,
    )


def _end(row: AnyRow, now: datetime) -> datetime | None:
    """Return the latest end: the time limit, counted from the start or from now if it has not started, plus stop grace.

    A task inside a timeslot frees its capacity for others only at the end of the timeslot, which holds it until then.
    """
    if row.timeslot_ends_at is not None:
        ends_at: datetime = row.timeslot_ends_at
        return ends_at
    grace = timedelta(seconds=row.stop_grace_seconds)
    if row.status == TaskStatus.TERMINATING:
        return now + grace
    if row.time_limit_seconds is None:
        return None
    deadline: datetime = row.deadline_at or (row.started_at or now) + timedelta(seconds=row.time_limit_seconds)
    return deadline + grace


def _guessed_run_time(
    row: AnyRow, usual: Mapping[UUID, RunTimes], predicted: Mapping[UUID, Predict]
) -> timedelta | None:
    if row.pool_id not in predicted:
        return usual.get(row.pool_id, {}).get(Kind.of(row.user_id, row.type, row.time_limit_seconds))
    seconds = predicted[row.pool_id](features_of(row))
    return None if seconds is None else timedelta(seconds=seconds)


def _usual_end(row: AnyRow, now: datetime, run_time: timedelta | None) -> datetime | None:
    if run_time is None or row.timeslot_ends_at is not None or row.status == TaskStatus.TERMINATING:
        return None
    started: datetime = row.started_at or now
    return started + run_time
