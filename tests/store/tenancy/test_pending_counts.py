"""What of a keypair waits, and the record of the last look at a workload."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import insert, update

from mooring.clock import now
from mooring.model.admission import Checked
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.store import admission, workloads
from mooring.store.engine import Connection, Database
from mooring.store.ids import new_id
from mooring.store.tables import domains, keypairs, policies, projects, users
from mooring.store.tables import workloads as workloads_table
from tests.store.databases import on_postgresql
from tests.store.harbour import LONG_AGO, Harbour


async def give_policy(harbour: Harbour, level: str, rules: Mapping[str, Any]) -> None:
    """The principal's keypair, user, project or domain carries a policy of these rules."""
    who = harbour.principal
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

    await harbour.database.write(work)


async def test_pending_is_what_waits_and_has_nothing_on_a_node(harbour: Harbour):
    await harbour.node("n1", cpu=2)
    key = harbour.principal.access_key

    async def pending() -> tuple[int, dict[str, int]]:
        return (await harbour.database.write(lambda c: admission.pending(c, [key])))[key]

    assert await pending() == (0, {})
    placed = await harbour.submit("placed", cpu=2)
    await harbour.place()
    partly = await harbour.submit("partly", replicas=2, cpu=1, memory="1Gi")
    private = await harbour.submit("private", cpu=5)
    hidden = update(workloads_table).where(workloads_table.c.id == private).values(private=True)
    await harbour.database.write(lambda c: c.execute(hidden))
    stopped = await harbour.submit("stopped", cpu=7)
    await harbour.stop(stopped)
    assert await pending() == (1, {"cpu": 2000, "memory": 2 << 30})

    [task] = await harbour.tasks(placed)
    await harbour.move(task, TaskStatus.RUNNING, TaskStatus.SUCCEEDED)
    assert len((await harbour.bind(await harbour.propose([partly]))).bound) == 1
    assert await pending() == (0, {})


@on_postgresql
async def test_two_servers_do_not_both_take_the_last_place(harbour: Harbour, migrated_url: str):
    key = harbour.principal.access_key
    other = Database(migrated_url)
    counted: list[str] = []
    first_has_counted = asyncio.Event()

    async def first(connection: Connection) -> None:
        await admission.pending(connection, [key])
        counted.append("first")
        first_has_counted.set()
        await asyncio.sleep(0.05)
        counted.append("first is done")

    async def second(connection: Connection) -> None:
        await admission.pending(connection, [key])
        counted.append("second")

    async def after_the_first() -> None:
        await first_has_counted.wait()
        await other.write(second)

    await asyncio.gather(harbour.database.write(first), after_the_first())
    await other.close()
    assert counted == ["first", "first is done", "second"]


async def test_the_next_look_overwrites_the_record_of_the_last(harbour: Harbour):
    workload_id = await harbour.submit("w")
    version = (await harbour.workload(workload_id)).version
    at = now()

    async def note(checked: Checked, connection: Connection) -> None:
        await workloads.note_admission(connection, {workload_id: checked}, at)

    for checked in (
        Checked(at, ("dependencies",), (Reason("too-many-sessions", "no more", "concurrency", "release"),)),
        Checked(at, ("dependencies", "concurrency")),
    ):
        await harbour.database.write(partial(note, checked))
        row = await harbour.workload(workload_id)
        assert (row.admission, row.version) == (checked.as_dict(), version)
    await harbour.database.write(lambda c: workloads.note_admission(c, {}, at))
