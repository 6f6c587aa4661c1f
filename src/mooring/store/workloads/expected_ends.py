"""When what is on the nodes will end at the latest, as far as that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus
from mooring.model.slots import Amounts
from mooring.store.run_times import Kind, RunTimes
from mooring.store.sets import among
from mooring.store.tables import tasks, timeslots, workloads
from mooring.store.types import AnyRow


class Ending(NamedTuple):
    """A task on a node, when it will be gone, and what comes back then."""

    node_id: UUID
    task_id: UUID
    ends_at: datetime | None
    """At the latest; None: nobody knows."""
    usually_at: datetime | None
    """As such work did before, if that is sooner."""
    request: Amounts


async def on_nodes(
    connection: AsyncConnection, ids: Sequence[UUID], now: datetime, usual: Mapping[UUID, RunTimes]
) -> list[Ending]:
    """The tasks on these nodes that have a time limit, run inside a timeslot or are being stopped.

    The end of all others is open. `usual`: by pool how long work runs that is expected to end as such work did before.
    """
    in_pools = [workloads.c.pool_id.in_(sorted(usual))] if usual else []
    query = _on_nodes().where(or_(_ENDS, *in_pools))
    found = [_ending(row, now, usual) for row in await connection.execute(query, {"ids": ids})]
    return [each for each in found if each.ends_at is not None or each.usually_at is not None]


_ENDS = or_(
    workloads.c.time_limit_seconds.is_not(None),
    timeslots.c.ends_at.is_not(None),
    tasks.c.status == TaskStatus.TERMINATING,
)


@cache
def _on_nodes() -> Select[Any]:
    return (
        select(
            tasks.c.node_id,
            tasks.c.id,
            tasks.c.status,
            tasks.c.started_at,
            tasks.c.deadline_at,
            tasks.c.requested_slots,
            workloads.c.pool_id,
            workloads.c.user_id,
            workloads.c.type,
            workloads.c.time_limit_seconds,
            workloads.c.template["stop_grace_seconds"].as_integer().label("stop_grace_seconds"),
            timeslots.c.ends_at.label("timeslot_ends_at"),
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .outerjoin(timeslots, and_(timeslots.c.id == workloads.c.timeslot_id, timeslots.c.ended_at.is_(None)))
        .where(among(tasks.c.node_id), tasks.c.status.in_(list(OCCUPYING)))
    )


def _ending(row: AnyRow, now: datetime, usual: Mapping[UUID, RunTimes]) -> Ending:
    ends_at, usually_at = _end(row, now), _usual_end(row, now, usual)
    if ends_at is not None and usually_at is not None and usually_at >= ends_at:
        usually_at = None
    return Ending(row.node_id, row.id, ends_at, usually_at, row.requested_slots)


def _end(row: AnyRow, now: datetime) -> datetime | None:
    """Its limit is counted from its start, which may be yet to come; then it is given time to stop.

    What is inside a timeslot makes room for others at the end of that: what leaves sooner leaves it to the timeslot.
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


def _usual_end(row: AnyRow, now: datetime, usual: Mapping[UUID, RunTimes]) -> datetime | None:
    run_time = usual.get(row.pool_id, {}).get(Kind.of(row.user_id, row.type, row.time_limit_seconds))
    if run_time is None or row.timeslot_ends_at is not None or row.status == TaskStatus.TERMINATING:
        return None
    started: datetime = row.started_at or now
    return started + run_time
