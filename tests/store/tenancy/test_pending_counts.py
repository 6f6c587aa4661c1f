"""Pending counts of keypairs, and the record of a workload's last admission check."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import insert, update

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.tenancy.admission import Checked
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.arrays import Array
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import Kind
from mooring.store.core.engine import Connection, Database
from mooring.store.core.ids import new_id
from mooring.store.tables import domains, keypairs, policies, projects, users
from mooring.store.tables import workloads as workloads_table
from mooring.store.tenancy import pending_counts
from mooring.store.workloads import pending
from tests.store.databases import on_postgresql
from tests.store.harness import LONG_AGO, Harness


async def give_policy(harness: Harness, level: str, rules: Mapping[str, Any]) -> None:
    """The principal's keypair, user, project or domain carries a policy of these rules."""
    who = harness.principal
    carrier = {
        "keypair": update(keypairs).where(keypairs.c.access_key == who.access_key),
        "user": update(users).where(users.c.id == who.user_id),
        "project": update(projects).where(projects.c.id == who.project_id),
        "domain": update(domains).where(domains.c.id == who.domain_id),
    }[level]

    async def work(connection: Connection) -> None:
        policy_id = new_id()
        await connection.execute(
            insert(policies).values(id=policy_id, name=f"of-{level}", rules=dict(rules), created_at=LONG_AGO)
        )
        await connection.execute(carrier.values(policy_id=policy_id))

    await harness.database.write(work)


async def test_pending_is_what_waits_and_has_nothing_on_a_node(harness: Harness):
    await harness.node("n1", cpu=2)
    key = harness.principal.access_key

    async def pending() -> tuple[int, dict[str, int]]:
        return (await harness.database.write(lambda c: pending_counts.pending(c, [key])))[key]

    assert await pending() == (0, {})
    placed = await harness.submit("placed", cpu=2)
    await harness.place()
    partly = await harness.submit("partly", replicas=2, cpu=1, memory="1Gi")
    private = await harness.submit("private", cpu=5)
    hidden = update(workloads_table).where(workloads_table.c.id == private).values(private=True)
    await harness.database.write(lambda c: c.execute(hidden))
    stopped = await harness.submit("stopped", cpu=7)
    await harness.stop(stopped)
    assert await pending() == (1, {"cpu": 2000, "memory": 2 << 30})

    [task] = await harness.tasks(placed)
    await harness.move(task, TaskStatus.RUNNING, TaskStatus.SUCCEEDED)
    assert len((await harness.bind(await harness.propose([partly]))).bound) == 1
    assert await pending() == (0, {})


@on_postgresql
async def test_two_servers_do_not_both_take_the_last_pending_slot(harness: Harness, migrated_url: str):
    key = harness.principal.access_key
    other = Database(migrated_url)
    counted: list[str] = []
    first_has_counted = asyncio.Event()

    async def first(connection: Connection) -> None:
        await pending_counts.pending(connection, [key])
        counted.append("first")
        first_has_counted.set()
        await asyncio.sleep(0.05)
        counted.append("first is done")

    async def second(connection: Connection) -> None:
        await pending_counts.pending(connection, [key])
        counted.append("second")

    async def after_the_first() -> None:
        await first_has_counted.wait()
        await other.write(second)

    await asyncio.gather(harness.database.write(first), after_the_first())
    await other.close()
    assert counted == ["first", "first is done", "second"]


async def test_the_next_look_overwrites_the_record_of_the_last(harness: Harness):
    workload_id = await harness.submit("w")
    version = (await harness.workload(workload_id)).version
    at = now()

    async def note(checked: Checked, connection: Connection) -> None:
        await pending.note_admission(connection, {workload_id: checked}, at)

    for checked in (
        Checked(at, ("dependencies",), (Reason("too-many-sessions", "no more", "concurrency", "release"),)),
        Checked(at, ("dependencies", "concurrency")),
    ):
        await harness.database.write(partial(note, checked))
        row = await harness.workload(workload_id)
        assert (row.admission, row.version) == (checked.as_dict(), version)
    await harness.database.write(lambda c: pending.note_admission(c, {}, at))


async def test_pending_amounts_of_tenants_are_those_of_tasks_that_wait(harness: Harness):
    await harness.node("n1", cpu=4)
    placed = await harness.submit("placed", cpu=3, memory=0)
    await harness.place()
    await harness.run(placed)
    await harness.submit("waits", kind=Kind.SESSION, cpu=2, memory="1Gi", replicas=2, gang=True)
    await harness.submit(
        "later", kind=Kind.SESSION, memory=0, replicas=3, schedule=ScheduleOptions(array=Array(0, 1, 3))
    )
    who = harness.principal
    levels = {
        Tenant(Scope.KEYPAIR, who.access_key),
        Tenant(Scope.USER, str(who.user_id)),
        Tenant(Scope.PROJECT, str(who.project_id)),
        Tenant(Scope.DOMAIN, str(who.domain_id)),
    }
    stranger = Tenant(Scope.PROJECT, str(new_id()))
    async with harness.database.read() as connection:
        found = await pending_counts.pending_amounts(connection, [*levels, stranger])
    expected = {"cpu": (2 * 2 + 3) * 1000, "memory": 2 << 30, "sessions": 2}
    assert [{slot: amount for slot, amount in found[level].items() if amount} for level in levels] == [expected] * 4
    assert found[stranger] == {}
