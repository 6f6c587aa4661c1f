"""Waiting tasks of a deployment that are of an older revision: placement sees at a time only those that are alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.containers import TaskTemplate
from mooring.model.resources import requests_of
from mooring.model.rollouts import Phase
from mooring.model.slots import Amounts
from mooring.model.workloads import Task
from mooring.store import templates
from mooring.store.sets import among
from mooring.store.tables import workload_revisions, workloads


class Turn(NamedTuple):
    """Revisions whose waiting tasks are placed now, and what each of these tasks asks for."""

    revisions: frozenset[int]
    request: Amounts
    architecture: str | None


async def next_to_be_placed(
    connection: AsyncConnection, newest: Mapping[UUID, int], waits: Mapping[UUID, Collection[tuple[int, Task]]]
) -> dict[UUID, Turn]:
    """Of the deployments among workloads, by id with their newest revisions, of which tasks of older ones wait.

    While tasks are replaced the newest has its turn first, so that nothing holds up the way there. Where that rests the
    oldest has: what has served so far comes back before what is still to show that it can.
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
    found: dict[UUID, Turn] = {}
    for workload_id, revisions in groupby(rows, key=lambda row: row.workload_id):
        there = [row for row in revisions if row.number in waiting[workload_id]]
        asked = {row.number: _asked(templates.decode(row.template)) for row in there}
        first = there[-1] if there[0].phase == Phase.ROLLING else there[0]
        alike = frozenset(number for number, each in asked.items() if each == asked[first.number])
        found[workload_id] = Turn(alike, *asked[first.number])
    return found


def _asked(template: TaskTemplate) -> tuple[Amounts, str | None]:
    return requests_of(template), template.architecture
