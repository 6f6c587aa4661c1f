"""Pending tasks of older revisions of a deployment: placement sees only tasks with equal requests at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.resources.slots import Amounts
from mooring.model.resources.task_resources import requests_of
from mooring.model.workloads.containers import TaskTemplate
from mooring.model.workloads.lifetime.rollouts import Phase
from mooring.model.workloads.workload import Task
from mooring.store.core.batch_sql import among
from mooring.store.tables import workload_revisions, workloads
from mooring.store.workloads import templates


class RevisionRequest(NamedTuple):
    """Revisions whose pending tasks are placed now, and the request of each of these tasks."""

    revisions: frozenset[int]
    request: Amounts
    architecture: str | None


async def next_revision_requests(
    connection: AsyncConnection, newest: Mapping[UUID, int], waits: Mapping[UUID, Collection[tuple[int, Task]]]
) -> dict[UUID, RevisionRequest]:
    """Return the revisions to place now of each deployment that has pending tasks of older revisions.

    `newest` holds the newest revision by workload. During a rollout, the newest pending revision is placed first, so
    that nothing delays the rollout. Otherwise the oldest is: proven tasks are restored before unproven ones.
    """
    waiting = {
        id: {revision for revision, _ in waits[id]}
        for id, number in newest.items()
        if any(revision != number for revision, _ in waits[id])
    }
    if not waiting:
        return {}
    own = workload_revisions.c
    rows = await connection.execute(
        select(own.workload_id, own.number, own.template, workloads.c.rollout["phase"].as_string().label("phase"))
        .join(workloads, workloads.c.id == own.workload_id)
        .where(among(own.workload_id, waiting.keys()))
        .order_by(own.workload_id, own.number)
    )
    found: dict[UUID, RevisionRequest] = {}
    for workload_id, revisions in groupby(rows, key=lambda row: row.workload_id):
        there = [row for row in revisions if row.number in waiting[workload_id]]
        asked = {row.number: _asked(templates.decode(row.template)) for row in there}
        first = there[-1] if there[0].phase == Phase.ROLLING else there[0]
        alike = frozenset(number for number, each in asked.items() if each == asked[first.number])
        found[workload_id] = RevisionRequest(alike, *asked[first.number])
    return found


def _asked(template: TaskTemplate) -> tuple[Amounts, str | None]:
    return requests_of(template), template.architecture
