"""Nodes on which different work fails are avoided, then drained; what is not the node's fault does not count."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import update

from mooring.clock import now
from mooring.controllers.nodes.draining import DrainingLoop
from mooring.controllers.nodes.suspicion import SuspicionLoop
from mooring.model.lifecycle import TaskStatus
from mooring.model.nodes.suspicion import (
    FAILING,
    USUAL,
    Suspicion,
    max_drained,
)
from mooring.model.reasons import Reason
from mooring.model.workloads.workload import Kind
from mooring.services.administration.nodes import NodeAdmin
from mooring.store.commit.status_changes import Change
from mooring.store.nodes.taints import timed_taints
from mooring.store.tables import tasks
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus


class Lab:
    """Nodes, of which the first may be bad, and the loop."""

    def __init__(self, harness: Harness, nodes: list[UUID], rules: Suspicion = USUAL) -> None:
        self.harness = harness
        self.nodes = nodes
        self.loop = SuspicionLoop(harness.fenced, rules)
        self._number = 0

    async def fail(
        self, times: int = 1, *, node: int = 0, code: str = "start-failed", ran: float | None = None, work: str = ""
    ) -> None:
        """Sessions that fail: never started, or after so many seconds; the same `work`, or other each time."""
        for _ in range(times):
            task_id = await self._placed(node, work)
            if ran is not None:
                await self._ran(task_id, ran)
            await self.harness.move(task_id, T.FAILED, reason=Reason(code, "it failed", "agent"))

    async def succeed(self, *, node: int = 0) -> None:
        task_id = await self._placed(node)
        await self._ran(task_id, 1)
        await self.harness.move(task_id, T.SUCCEEDED)

    async def run(self, seconds: float, *, node: int = 0) -> None:
        """A session that has been running for this long."""
        await self._ran(await self._placed(node), seconds)

    async def _placed(self, node: int, work: str = "") -> UUID:
        self._number += 1
        workload_id = await self.harness.submit(f"w{self._number}", kind=Kind.SESSION, cpu="100m")
        command = {"containers": [{"command": [work or f"command-{self._number}"]}]}
        await self.harness.set(workload_id, template=command)
        [task] = await self.harness.tasks(workload_id)
        node_id = self.nodes[node]
        await self.harness.apply(Change(task.id, T.SCHEDULED, node_id=node_id, node_name="n"))
        return UUID(str(task.id))

    async def _ran(self, task_id: UUID, seconds: float) -> None:
        await self.harness.move(task_id, T.RUNNING)
        started = now() - timedelta(seconds=seconds)
        await self.harness.database.write(
            lambda c: c.execute(update(tasks).where(tasks.c.id == task_id).values(started_at=started))
        )

    async def avoided(self, node: int = 0) -> str | None:
        """Return the reason why the node is avoided, or None."""
        await self.loop.once()
        row = await self.harness.node_row(self.nodes[node])
        return next((each.reason for each in timed_taints(row) if each.taint == FAILING), None)

    async def drained(self) -> list[int]:
        """Return the draining nodes after two iterations."""
        for _ in range(2):
            await self.loop.once()
        rows = [await self.harness.node_row(each) for each in self.nodes]
        return [number for number, row in enumerate(rows) if row.draining]


@pytest.fixture
async def lab(harness: Harness) -> Lab:
    return Lab(harness, [await harness.node(f"n{number}") for number in range(3)])


async def test_a_node_where_different_work_fails_is_avoided_then_drained(lab: Lab):
    harness = lab.harness
    await lab.fail(2)
    assert await lab.avoided() is None
    await lab.fail(code="exited", ran=3)
    reason = "3 different workloads failed there within 30m: start-failed (2), exited (1)"
    assert await lab.avoided() == reason
    assert await lab.avoided(1) is None
    assert [row.reason for row in await harness.history(lab.nodes[0])][-1] == f"Avoided: {reason}"
    assert await lab.drained() == []
    await lab.fail(3)
    assert await lab.drained() == [0]
    row = await harness.node_row(lab.nodes[0])
    assert (row.status, row.drain_until) == ("DRAINING", None)
    assert row.drain_reason.startswith("6 different workloads failed there")
    await DrainingLoop(harness.fenced).once()
    assert (await harness.node_row(lab.nodes[0])).drained_at is not None
    # When an admin resumes the node, counting starts over.
    await NodeAdmin(harness.database, simulation_allowed=False).resume(harness.principal, "n0")
    assert await lab.avoided() is None
    assert (await harness.node_row(lab.nodes[0])).status == "READY"
    await lab.fail(2)
    assert await lab.avoided() is None


@on_sqlite
async def test_work_goes_elsewhere_while_a_node_is_avoided(lab: Lab):
    harness = lab.harness
    await lab.fail(3)
    assert await lab.avoided() is not None
    workload = await harness.submit("w", replicas=2)
    await harness.place()
    assert lab.nodes[0] not in {task.node_id for task in await harness.tasks(workload)}


@on_sqlite
async def test_a_success_on_the_node_ends_the_suspicion(lab: Lab):
    await lab.fail(2)
    await lab.succeed()
    await lab.fail(2)
    assert await lab.avoided() is None
    await lab.fail(1)
    assert await lab.avoided() is not None
    await lab.run(9)
    assert await lab.avoided() is not None
    await lab.succeed()
    assert await lab.avoided() is None
    assert (await lab.harness.history(lab.nodes[0]))[-1].reason == "No longer avoided: work succeeds there again"


@on_sqlite
async def test_work_that_fails_everywhere_does_not_speak_against_a_node(lab: Lab):
    for number in range(4):
        await lab.fail(work=f"broken-{number}")
        await lab.fail(work=f"broken-{number}", node=1)
    assert await lab.avoided() is None
    # Nor does the same, over and over again.
    await lab.fail(8, work="hopeless")
    assert await lab.avoided() is None


@on_sqlite
@pytest.mark.parametrize(
    ("code", "ran"),
    [("exited", 11), ("time-limit", 2), ("evicted", 2), ("out-of-reach", None), ("node-rebooted", None)],
)
async def test_failures_that_the_node_did_not_cause_do_not_count(lab: Lab, code: str, ran: float | None):
    await lab.fail(8, code=code, ran=ran)
    assert await lab.avoided() is None


@on_sqlite
async def test_failures_of_long_ago_do_not_count(lab: Lab):
    await lab.fail(3)
    old = now() - timedelta(minutes=31)
    await lab.harness.database.write(lambda c: c.execute(update(tasks).values(ended_at=old)))
    assert await lab.avoided() is None


@on_sqlite
@pytest.mark.parametrize(
    ("rules", "avoided"),
    [
        (replace(USUAL, failures=2), True),
        (replace(USUAL, failures=4), False),
        (replace(USUAL, failures=0), False),
        (replace(USUAL, fast_end=timedelta(seconds=4)), False),
        (replace(USUAL, window=timedelta(0)), False),
        (USUAL, True),
    ],
)
async def test_the_thresholds_can_be_set(harness: Harness, rules: Suspicion, avoided: bool):
    lab = Lab(harness, [await harness.node("n0"), await harness.node("n1")], rules)
    await lab.fail(3, code="exited", ran=5)
    assert (await lab.avoided() is not None) == avoided


@on_sqlite
async def test_no_more_than_a_tenth_of_a_pool_is_drained_and_never_the_last(lab: Lab):
    for node in (0, 1):
        await lab.fail(6 + node, node=node)
    assert await lab.drained() == [1]
    assert await lab.avoided(0) is not None
    assert [max_drained(number) for number in (1, 10, 19, 20, 5000)] == [1, 1, 1, 2, 500]


@on_sqlite
async def test_the_only_node_that_takes_work_is_not_drained(harness: Harness):
    lab = Lab(harness, [await harness.node("n0"), await harness.node("n1")])
    await lab.fail(6)
    await harness.drain(lab.nodes[1])
    assert await lab.drained() == [1]
    await harness.drain(lab.nodes[1], False)
    assert await lab.drained() == [0]
