"""The readable copy of what a task occupies: written beside the ledger, or not."""

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.store.engine import Database
from mooring.store.repair import repair
from tests.store.harbour import Harbour

SLOTS = {"cpu": 1000, "memory": 1 << 30}


async def test_what_a_task_occupies_is_copied_while_it_does(harbour: Harbour):
    await harbour.node("n1")
    [task] = await harbour.run(await harbour.submit("w"))
    assert task.occupied_slots == SLOTS
    await harbour.move(task, TaskStatus.SUCCEEDED)
    assert (await harbour.task(task.id)).occupied_slots == {}


async def test_without_dual_write_no_copy_is_kept_and_the_audit_asks_for_none(harbour: Harbour, migrated_url: str):
    single = Database(migrated_url, dual_write=False)
    try:
        quiet = Harbour(single, harbour.principal, harbour.pool, harbour.office)
        node_id = await quiet.node("n1")
        workload_id = await quiet.submit("w")
        [task] = await quiet.run(workload_id)
        assert task.requested_slots == SLOTS
        assert task.occupied_slots == {}
        assert await quiet.counters(node_id) == (0, 0, 1000)
        assert await quiet.findings() == []
    finally:
        await single.close()

    assert [finding.rule for finding in await harbour.findings()] == ["JSON = ledger, occupied"]
    await harbour.database.write(lambda c: repair(c, now()))
    assert (await harbour.task(task.id)).occupied_slots == SLOTS
