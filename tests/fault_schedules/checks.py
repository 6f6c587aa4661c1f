"""The invariants within a schedule and at its end, checked on the rows without the code that wrote them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from sqlalchemy import select

from mooring.store.tables import events, status_history, tasks, workloads
from tests.properties import proofs

if TYPE_CHECKING:
    from tests.fault_schedules.world import World


async def check_books(world: World) -> None:
    """Ledger, counters and copies agree within capacity, and every transition was legal and recorded once."""
    harness, report_violation = world.harness, world.gate.report_violation
    for found in await harness.findings():
        report_violation(f"audit: {found}")
    for where, excess in (await proofs.excesses(harness)).items():
        report_violation(f"above capacity: {where}: {excess}")
    await proofs.check_edges(harness)
    await proofs.check_together(harness, ())
    await _check_terms(world)


def check_machines(world: World) -> None:
    """Silence is no proof of an end: a task that still runs is charged to its node."""
    for machine in world.machines:
        for task_id in machine.living:
            if world.store.one("SELECT freed_at IS NOT NULL FROM tasks WHERE id = ?", task_id.hex):
                world.gate.report_violation(f"task {task_id} is free and still there on {machine.name}")


async def check_end(world: World) -> None:
    """Check the final state, long enough after the last fault."""
    await check_books(world)
    await _check_accepted(world)
    await _check_progress(world)
    await _check_retries(world)


async def _check_terms(world: World) -> None:
    """No write of an older term follows a write of a newer one."""
    for what, table, order in (
        ("history", status_history, status_history.c.id),
        ("events", events, events.c.revision),
    ):
        rows = await world.harness.rows(select(table.c.term).where(table.c.term.is_not(None)).order_by(order))
        terms = [row.term for row in rows]
        if terms != sorted(terms):
            world.gate.report_violation(f"{what}: a term is followed by an older one")


async def _check_accepted(world: World) -> None:
    """Accepted work exists once, existing work was requested, and no request was rejected without a reason."""
    client, report_violation = world.client, world.gate.report_violation
    there = {row.id: row for row in await world.harness.rows(select(workloads))}
    for name, workload_id in client.accepted.items():
        if workload_id not in there:
            report_violation(f"{name} was accepted and is not there")
        elif workload_id in client.cancelled and there[workload_id].ended_at is None:
            report_violation(f"{name} was cancelled and goes on")
        elif there[workload_id].replicas != client.scaled.get(workload_id, there[workload_id].replicas):
            report_violation(f"{name} was scaled to {client.scaled[workload_id]} and has {there[workload_id].replicas}")
    for name, number in Counter(row.name for row in there.values()).items():
        if number > 1 or name not in client.asked:
            report_violation(f"{name} is there {number} times")
    for refusal in client.refusals:
        report_violation(f"refused: {refusal}")


async def _check_progress(world: World) -> None:
    """After the faults all work has ended, runs, or waits for capacity that does not exist."""
    report_violation = world.gate.report_violation
    rows = await world.harness.rows(
        select(tasks, workloads.c.kind).join(workloads, workloads.c.id == tasks.c.workload_id)
    )
    for row in rows:
        moving = row.status in ("RESERVED", "SCHEDULED", "PREPARING", "TERMINATING")
        if moving or (row.status == "RUNNING" and row.kind == "session"):
            report_violation(f"task {row.id} is still {row.status}")
        elif row.node_id is not None and row.freed_at is None and row.status != "RUNNING":
            report_violation(f"task {row.id} is {row.status} and still charged")
    for decision in await world.harness.propose():
        if decision.placements:
            report_violation(f"workload {decision.workload.name} waits although it fits")


async def _check_retries(world: World) -> None:
    """No task fails more often than its retries allow, and only failures of the task itself use them.

    A task that was told to leave its node, or that the node forgot, uses none however it ended.
    """
    rows = await world.harness.rows(
        select(tasks, workloads.c.max_retries)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(workloads.c.kind == "session")
        .order_by(tasks.c.attempt)
    )
    leaving = select(status_history.c.object_id).where(status_history.c.new_status == "TERMINATING")
    evicted = {row.object_id for row in await world.harness.rows(leaving)}
    own: Counter[tuple[UUID, int]] = Counter()
    for row in rows:
        own[row.workload_id, row.task_index] += (
            row.status == "FAILED" and row.id not in evicted and (row.reason or {}).get("code") != "record-lost"
        )
    for row in rows:
        failures = own[row.workload_id, row.task_index]
        if failures > row.max_retries + 1:
            world.gate.report_violation(f"task {row.id} failed {failures} times, with {row.max_retries} retries")
        # The failure of one task of a gang is one of all.
        most = sum(number for (workload_id, _), number in own.items() if workload_id == row.workload_id)
        if row.failures > most:
            world.gate.report_violation(f"task {row.id} counts {row.failures} failures after {most}")
