"""All records about tasks, table by table: the sources that `audit.tasks` compares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.resources.slots import Amounts
from mooring.model.resources.task_resources import requests_of
from mooring.model.workloads.constraints import Constraints
from mooring.store.audit import ledger_diff
from mooring.store.core.batch_sql import among
from mooring.store.core.constraint_columns import decode_constraints
from mooring.store.core.types import AnyRow
from mooring.store.tables import (
    device_allocations,
    events,
    holds,
    node_devices,
    nodes,
    pools,
    port_allocations,
    resource_allocations,
    status_history,
    tasks,
    workload_revisions,
    workloads,
)
from mooring.store.workloads import templates

_STATUSES = [status.value for status in TaskStatus]
REPAIR = "repair:"
"""Prefix of the actor in history rows that a repair wrote. They follow from other records, so they are no source."""
Port = tuple[str, int]
Device = tuple[str, int]
"""Slot and index."""


@dataclass(slots=True)
class TaskEvidence:
    """One task and all rows about it."""

    task: AnyRow
    workload: AnyRow
    pool: AnyRow
    revision: AnyRow | None
    """The row of `workload_revisions`, if there is one."""
    ledger: dict[str, AnyRow] = field(default_factory=dict)
    devices: dict[Device, AnyRow] = field(default_factory=dict)
    ports: list[AnyRow] = field(default_factory=list)
    hold: AnyRow | None = None
    sibling_hold: AnyRow | None = None
    """The hold of another task of its workload; all holds of a workload are created at the same time."""
    is_preemptor: bool = False
    """Victims leave for its workload."""
    history: list[AnyRow] = field(default_factory=list)
    event_statuses: list[str] = field(default_factory=list)
    """Statuses in the event feed, as far as it goes back."""
    event_node: UUID | None = None

    @property
    def last_event(self) -> str | None:
        return self.event_statuses[-1] if self.event_statuses else None

    @property
    def whole_history(self) -> bool:
        """Return whether no part of its history was purged."""
        return bool(self.history) and self.history[0].old_status == TaskStatus.PENDING

    def happened(self, *statuses: TaskStatus) -> datetime | None:
        """Return when it last entered one of these statuses, according to its history."""
        found: datetime | None = next((row.at for row in reversed(self.history) if row.new_status in statuses), None)
        return found

    def held(self) -> datetime | None:
        """Return when it was last held, unless that hold was given up."""
        for row in reversed(self.history):
            if row.new_status == TaskStatus.PENDING:
                return None
            if row.new_status == TaskStatus.RESERVED:
                found: datetime = row.at
                return found
        return None

    def template_requests(self) -> dict[str, Amounts]:
        """Return the request of its revision, by source."""
        found: dict[str, Any] = {}
        if self.workload.revision == self.task.revision:
            found["workloads.requested_slots"] = amounts(self.workload.requested_slots)
            found["workloads.template"] = requests_of_template(self.workload.template)
        if self.revision is not None:
            found["workload_revisions.requested_slots"] = amounts(self.revision.requested_slots)
            found["workload_revisions.template"] = requests_of_template(self.revision.template)
        return {name: asked for name, asked in found.items() if asked is not None}

    def constraints(self) -> Constraints | None:
        """Return the constraints of its workload, if it was placed by the same revision."""
        same = self.workload.revision == self.task.revision
        return decode_constraints(self.workload.constraints) if same else None


@dataclass(slots=True)
class EvidenceBatch:
    """The tasks of one batch, and the state of the nodes."""

    tasks: dict[UUID, TaskEvidence]
    nodes: dict[UUID, str]
    surplus: dict[UUID, dict[str, int]]
    """By node and slot: the counters less what the tasks occupy."""
    taken: dict[tuple[UUID, str, int], tuple[int, int]]
    """By device: its counter, and the sum of its live allocations."""
    ports: dict[tuple[UUID, str, int], UUID]
    """The task that has each port, by node, protocol and number."""

    def node_named(self, name: str | None) -> UUID | None:
        return next((id for id, own in self.nodes.items() if own == name), None)


async def load(connection: AsyncConnection, ids: Sequence[UUID]) -> EvidenceBatch:
    """Load the records of these tasks; tasks that no longer exist are left out."""
    batch = EvidenceBatch(await _tasks(connection, ids), await _nodes(connection), await _surplus(connection), {}, {})
    for row in await _of(connection, resource_allocations, ids):
        if row.task_id in batch.tasks:
            batch.tasks[row.task_id].ledger[row.slot_name] = row
    for row in await _of(connection, device_allocations, ids):
        if row.task_id in batch.tasks:
            batch.tasks[row.task_id].devices[row.slot_name, row.device_index] = row
    for row in await _of(connection, port_allocations, ids):
        if row.task_id in batch.tasks:
            batch.tasks[row.task_id].ports.append(row)
    await _load_holds(connection, batch)
    await _load_past(connection, batch)
    await _load_devices(connection, batch)
    taken = await connection.execute(select(port_allocations))
    batch.ports = {(row.node_id, row.protocol, row.port): row.task_id for row in taken}
    return batch


async def _tasks(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, TaskEvidence]:
    rows = list(await connection.execute(select(tasks).where(among(tasks.c.id, ids))))
    owners = {row.workload_id for row in rows}
    own = await connection.execute(select(workloads).where(among(workloads.c.id, owners)))
    by_id = {row.id: row for row in own}
    of_pool = {row.id: row for row in await connection.execute(select(pools))}
    found = await connection.execute(select(workload_revisions).where(among(workload_revisions.c.workload_id, owners)))
    revisions = {(row.workload_id, row.number): row for row in found}
    return {
        row.id: TaskEvidence(
            row,
            by_id[row.workload_id],
            of_pool[by_id[row.workload_id].pool_id],
            revisions.get((row.workload_id, row.revision)),
        )
        for row in rows
    }


async def _nodes(connection: AsyncConnection) -> dict[UUID, str]:
    return {row.id: row.name for row in await connection.execute(select(nodes.c.id, nodes.c.name))}


async def _surplus(connection: AsyncConnection) -> dict[UUID, dict[str, int]]:
    found: dict[UUID, dict[str, int]] = defaultdict(dict)
    for wrong in await ledger_diff.of_nodes(connection):
        found[wrong.node_id][wrong.slot] = sum(wrong.found[:3]) - sum(wrong.expected[:3])
    return found


async def _of(connection: AsyncConnection, table: Any, ids: Collection[UUID]) -> list[AnyRow]:
    keys = list(table.primary_key.columns)
    return list(await connection.execute(select(table).where(among(table.c.task_id, ids)).order_by(*keys)))


async def _load_holds(connection: AsyncConnection, batch: EvidenceBatch) -> None:
    owners = {own.task.workload_id for own in batch.tasks.values()}
    by_workload: dict[UUID, list[AnyRow]] = defaultdict(list)
    task_ids = set(batch.tasks)
    for row in await connection.execute(
        select(holds).where(among(holds.c.workload_id, owners) | among(holds.c.task_id, task_ids))
    ):
        by_workload[row.workload_id].append(row)
        if row.task_id in batch.tasks:
            batch.tasks[row.task_id].hold = row
    preemptors = set(
        (
            await connection.execute(
                select(tasks.c.preempted_by).where(among(tasks.c.preempted_by, owners), tasks.c.freed_at.is_(None))
            )
        ).scalars()
    )
    for own in batch.tasks.values():
        others = (row for row in by_workload[own.task.workload_id] if row.task_id != own.task.id)
        own.sibling_hold = next(others, None)
        own.is_preemptor = own.task.workload_id in preemptors


async def _load_past(connection: AsyncConnection, batch: EvidenceBatch) -> None:
    owners = {own.task.workload_id for own in batch.tasks.values()}
    past = await connection.execute(
        select(status_history)
        .where(
            among(status_history.c.workload_id, owners),
            status_history.c.noun == "task",
            status_history.c.actor.not_like(f"{REPAIR}%"),
        )
        .order_by(status_history.c.id)
    )
    for row in past:
        if row.object_id in batch.tasks:
            batch.tasks[row.object_id].history.append(row)
    statuses = await connection.execute(
        select(events.c.object_id, events.c.kind, events.c.node_id)
        .where(among(events.c.object_id, list(batch.tasks)), events.c.noun == "task", events.c.kind.in_(_STATUSES))
        .order_by(events.c.revision)
    )
    for task_id, kind, node_id in statuses:
        own = batch.tasks[task_id]
        own.event_statuses.append(kind)
        own.event_node = node_id if node_id is not None else own.event_node


async def _load_devices(connection: AsyncConnection, batch: EvidenceBatch) -> None:
    given, device = device_allocations.c, node_devices.c
    sums: dict[tuple[UUID, str, int], int] = defaultdict(int)
    if not any(own.devices or own.task.devices is not None for own in batch.tasks.values()):
        return
    for row in await connection.execute(
        select(given.node_id, given.slot_name, given.device_index, given.amount).where(given.freed_at.is_(None))
    ):
        sums[row.node_id, row.slot_name, row.device_index] += row.amount
    counters = select(device.node_id, device.slot_name, device.device_index, device.taken)
    for node_id, slot, index, taken in await connection.execute(counters):
        batch.taken[node_id, slot, index] = (taken, sums[node_id, slot, index])


def amounts(value: Any) -> Amounts | None:
    """Return a JSON cell as amounts by slot; None if it is anything else."""
    if not isinstance(value, Mapping) or not all(type(amount) is int for amount in value.values()):
        return None
    return dict(value)


def requests_of_template(encoded: Any) -> Amounts | None:
    try:
        return requests_of(templates.decode(encoded))
    except (msgspec.ValidationError, TypeError, AttributeError):
        return None
