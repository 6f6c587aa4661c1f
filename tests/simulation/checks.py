"""What must hold within a schedule and at its end: looked up in the rows, without the code that wrote them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sqlalchemy import select

from mooring.store.tables import events, status_history, tasks, workloads
from tests.properties import proofs

if TYPE_CHECKING:
    from tests.simulation.world import World


async def check_books(world: World) -> None:
    """At any moment: ledger, counters and copies agree within capacity, and each edge was legal and is told once."""
    harbour, accuse = world.harbour, world.gate.accuse
    for found in await harbour.findings():
        accuse(f"audit: {found}")
    for where, excess in (await proofs.excesses(harbour)).items():
        accuse(f"above capacity: {where}: {excess}")
    await proofs.check_edges(harbour)
    await proofs.check_together(harbour, ())
    await _check_terms(world)


def check_machines(world: World) -> None:
    """Silence is no proof of an end: what is still there is charged to its node."""
    for machine in world.machines:
        for task_id in machine.living:
            if world.store.one("SELECT freed_at IS NOT NULL FROM tasks WHERE id = ?", task_id.hex):
                world.gate.accuse(f"task {task_id} is free and still there on {machine.name}")


async def check_end(world: World) -> None:
    """When faults were over for long enough."""
    await check_books(world)
    await _check_accepted(world)
    await _check_progress(world)


async def _check_terms(world: World) -> None:
    """Nothing was written in an older term after something was in a newer one."""
    for what, table, order in (
        ("history", status_history, status_history.c.id),
        ("events", events, events.c.revision),
    ):
        rows = await world.harbour.rows(select(table.c.term).where(table.c.term.is_not(None)).order_by(order))
        terms = [row.term for row in rows]
        if terms != sorted(terms):
            world.gate.accuse(f"{what}: a term is followed by an older one")


async def _check_accepted(world: World) -> None:
    """Whatever was accepted is there once, whatever is there was asked for, and nobody was refused for no reason."""
    client, accuse = world.client, world.gate.accuse
    there = {row.id: row for row in await world.harbour.rows(select(workloads))}
    for name, workload_id in client.accepted.items():
        if workload_id not in there:
            accuse(f"{name} was accepted and is not there")
        elif workload_id in client.cancelled and there[workload_id].ended_at is None:
            accuse(f"{name} was cancelled and goes on")
        elif there[workload_id].replicas != client.scaled.get(workload_id, there[workload_id].replicas):
            accuse(f"{name} was scaled to {client.scaled[workload_id]} and has {there[workload_id].replicas}")
    for name, number in Counter(row.name for row in there.values()).items():
        if number > 1 or name not in client.asked:
            accuse(f"{name} is there {number} times")
    for refusal in client.refusals:
        accuse(f"refused: {refusal}")


async def _check_progress(world: World) -> None:
    """When faults are over all comes to its end, or runs, or waits for room that is not there."""
    accuse = world.gate.accuse
    rows = await world.harbour.rows(
        select(tasks, workloads.c.kind).join(workloads, workloads.c.id == tasks.c.workload_id)
    )
    for row in rows:
        moving = row.status in ("RESERVED", "SCHEDULED", "PREPARING", "TERMINATING")
        if moving or (row.status == "RUNNING" and row.kind == "session"):
            accuse(f"task {row.id} is still {row.status}")
        elif row.node_id is not None and row.freed_at is None and row.status != "RUNNING":
            accuse(f"task {row.id} is {row.status} and still charged")
    for decision in await world.harbour.propose():
        if decision.placements:
            accuse(f"workload {decision.workload.name} waits although it fits")
