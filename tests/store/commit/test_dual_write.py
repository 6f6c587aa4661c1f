"""The readable copy of the occupied amounts of a task: written with the ledger, or not at all."""

from mooring.model.lifecycle import TaskStatus
from mooring.store.core.engine import Database
from tests.store.harness import Harness

SLOTS = {"cpu": 1000, "memory": 1 << 30}


async def test_occupied_slots_are_set_while_a_task_occupies_its_node(harness: Harness):
    await harness.node("n1")
    [task] = await harness.run(await harness.submit("w"))
    assert task.occupied_slots == SLOTS
    await harness.move(task, TaskStatus.SUCCEEDED)
    assert (await harness.task(task.id)).occupied_slots == {}


async def test_without_dual_write_there_is_no_copy_and_the_audit_expects_none(harness: Harness, migrated_url: str):
    single = Database(migrated_url, dual_write=False)
    try:
        quiet = Harness(single, harness.principal, harness.pool, harness.leadership)
        node_id = await quiet.node("n1")
        workload_id = await quiet.submit("w")
        [task] = await quiet.run(workload_id)
        assert task.requested_slots == SLOTS
        assert task.occupied_slots == {}
        assert await quiet.counters(node_id) == (0, 0, 1000)
        assert await quiet.findings() == []
    finally:
        await single.close()

    assert [finding.rule for finding in await harness.findings()] == ["JSON = ledger, occupied"]
    await harness.repair()
    assert (await harness.task(task.id)).occupied_slots == SLOTS
