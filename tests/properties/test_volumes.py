"""Volumes under random histories: with any order of binds, stale views and lost nodes, tasks run where their volumes
are, and every byte is counted once."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from uuid import UUID

import pytest
from sqlalchemy import select

from mooring.model.decisions import Decision
from mooring.model.errors import Conflict
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.volumes import VolumeStatus
from mooring.store.tables import nodes as node_rows
from mooring.store.tables import workloads as workload_rows
from mooring.store.workloads import volumes
from mooring.store.workloads.volumes import Volume
from tests.store.harness import Harness
from tests.store.workloads import test_volumes as stored

STEPS = 20
NAMES = ("a", "b", "c")


class History:
    def __init__(self, harness: Harness, seed: int) -> None:
        self.harness, self.random = harness, Random(seed)
        self.stale: list[Decision] = []
        self.homes: dict[UUID, str] = {}
        self.number = 0

    async def begin(self) -> None:
        for name in ("n1", "n2", "n3"):
            await stored.node(self.harness, name, "40Gi", cpu=4)
        for name in NAMES:
            await stored.make(self.harness, name, self.random.randint(1, 15) * stored.GIB)

    async def step(self) -> None:
        ways = {self.submit: 3, self.bind: 4, self.end: 2, self.unsettle: 1}
        (way,) = self.random.choices(list(ways), list(ways.values()))
        await way()
        await self.check()

    async def living(self) -> list[Volume]:
        async with self.harness.database.read() as connection:
            return [v for v in await volumes.every(connection) if v.status is not VolumeStatus.REMOVING]

    async def submit(self) -> None:
        there = await self.living()
        mounted = self.random.sample(there, min(self.random.randint(1, 2), len(there)))
        self.number += 1
        gang = self.random.random() < 0.3
        replicas = self.random.randint(1, 3)
        await stored.submit(self.harness, f"w{self.number}", *mounted, replicas=replicas, gang=gang)

    async def bind(self) -> None:
        """Each decision by itself, as if by binders that know nothing of each other, some of them late."""
        decisions = [decision for decision in await self.harness.propose() if decision.placements]
        self.random.shuffle(decisions)
        for decision in decisions:
            if self.random.random() < 0.3:
                self.stale.append(decision)
            else:
                await self.harness.commit(decision)
        if self.stale and self.random.random() < 0.5:
            await self.harness.commit(self.stale.pop(self.random.randrange(len(self.stale))))

    async def end(self) -> None:
        alive = select(workload_rows.c.id).where(workload_rows.c.ended_at.is_(None), ~workload_rows.c.stopping)
        found = await self.harness.rows(alive.order_by(workload_rows.c.created_at))
        if found:
            workload_id = self.random.choice(found).id
            await self.harness.stop(workload_id)
            for task in await self.harness.tasks(workload_id):
                if task.status == TaskStatus.TERMINATING:
                    await self.harness.move(task, TaskStatus.CANCELLED, freed=True)

    async def unsettle(self) -> None:
        """A volume is removed and created again, or a node is replaced by another of the same name."""
        if self.random.random() < 0.6:
            volume = self.random.choice(await self.living())
            if volume.mounted_by:
                with pytest.raises(Conflict, match="is mounted by"):
                    await stored.remove(self.harness, volume.name)
                return
            await stored.remove(self.harness, volume.name)
            await stored.make(self.harness, volume.name, self.random.randint(1, 15) * stored.GIB)
            if volume.node_id is not None and self.random.random() < 0.7:
                await stored.gone(self.harness, volume.node_id, volume)
        else:
            found = await self.harness.rows(select(node_rows.c.id, node_rows.c.name).order_by(node_rows.c.name))
            node = self.random.choice(found)
            with suppress(Conflict):
                await stored.remove_node(self.harness, node.id, force=True)
                await stored.node(self.harness, node.name, "40Gi", cpu=4)

    async def check(self) -> None:
        assert await self.harness.findings() == []
        for volume in await self.living():
            if volume.node is not None:
                assert self.homes.setdefault(volume.id, volume.node) == volume.node


async def test_tasks_always_run_where_their_volumes_are(harness: Harness):
    history = History(harness, seed=7)
    await history.begin()
    for _ in range(STEPS):
        await history.step()
    assert history.homes
