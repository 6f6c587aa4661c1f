"""The history that placement depends on: submissions, ends, nodes and placements, transaction by transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus, WorkloadStatus, is_end, is_workload_end
from mooring.model.workloads.workload import Task, Workload
from mooring.store.tables import pools, status_history, tasks, workloads
from mooring.store.workloads.pending import PLACEMENT_COLUMNS, as_workload


class Transaction(NamedTuple):
    """The changes of one commit, in the order in which they were recorded."""

    at: datetime
    term: int | None
    """Of the leader; None for changes by users and agents."""
    submitted: tuple[UUID, ...]
    ended: tuple[UUID, ...]
    """Tasks."""
    ended_workloads: tuple[UUID, ...]
    nodes: tuple[tuple[UUID, str], ...]
    """Nodes with their new status."""
    placed: tuple[tuple[UUID, UUID, str], ...]
    """Workload, task and name of the node."""


class History(NamedTuple):
    workloads: Mapping[UUID, Workload]
    """As submitted: with the first attempts of all tasks."""
    transactions: tuple[Transaction, ...]


async def read(connection: AsyncConnection) -> History:
    """Return the whole history. What was purged is missing."""
    submitted: defaultdict[UUID, list[Task]] = defaultdict(list)
    nodes: dict[UUID, str] = {}
    own = tasks.c
    for row in await connection.execute(
        select(own.id, own.workload_id, own.task_index, own.attempt, own.node_name).order_by(
            own.workload_id, own.task_index, own.attempt
        )
    ):
        if row.attempt == 1:
            submitted[row.workload_id].append(Task(row.id, row.task_index))
        if row.node_name is not None:
            nodes[row.id] = row.node_name
    found = await connection.execute(
        select(*PLACEMENT_COLUMNS, pools.c.name.label("pool_name")).join(pools, pools.c.id == workloads.c.pool_id)
    )
    known = {row.id: as_workload(row, submitted[row.id], {}) for row in found}
    fields = status_history.c
    rows = await connection.execute(
        select(
            fields.noun, fields.object_id, fields.workload_id, fields.new_status, fields.old_status, fields.at,
            fields.term, fields.actor,
        ).order_by(fields.id)
    )  # fmt: skip
    transactions: list[Transaction] = []
    for (at, term, _), group in groupby(rows.all(), key=lambda row: (row.at, row.term, row.actor)):
        changes = list(group)
        of_tasks = [row for row in changes if row.noun == "task"]
        of_workloads = [row for row in changes if row.noun == "workload"]
        transactions.append(
            Transaction(
                at,
                term,
                tuple(row.object_id for row in of_workloads if row.new_status == WorkloadStatus.PENDING),
                tuple(row.object_id for row in of_tasks if is_end(TaskStatus(row.new_status))),
                tuple(row.object_id for row in of_workloads if is_workload_end(WorkloadStatus(row.new_status))),
                tuple((row.object_id, row.new_status) for row in changes if row.noun == "node"),
                tuple(
                    (row.workload_id, row.object_id, nodes[row.object_id])
                    for row in of_tasks
                    if row.new_status == TaskStatus.SCHEDULED
                ),
            )
        )
    return History(known, tuple(transactions))
