"""Volumes: where they come to be, how placement follows them, and that they count for as long as they exist."""

from typing import Any
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.model.decisions import Decision
from mooring.model.errors import Conflict, NotFound
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.volumes import VolumeStatus
from mooring.store.nodes import nodes
from mooring.store.tenancy import quotas
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.workloads import mounts, volumes
from mooring.store.workloads.mounts import Mounted
from mooring.store.workloads.volumes import Volume
from tests.store.databases import on_sqlite
from tests.store.harness import Harness, decision_on

GIB = 1024**3


async def make(harness: Harness, name: str, size: int = 10 * GIB, *, shared: bool = False) -> Volume:
    return await harness.database.write(
        lambda c: volumes.create(
            c,
            name=name,
            project_id=harness.principal.project_id,
            pool_id=harness.pool.id,
            size=size,
            shared=shared,
            actor=Actor.of(harness.principal),
            now=now(),
        )
    )


async def look(harness: Harness, name: str) -> Volume:
    async with harness.database.read() as connection:
        return await volumes.find(connection, harness.principal.project_id, name)


async def remove(harness: Harness, name: str) -> bool:
    volume = await look(harness, name)
    return await harness.database.write(
        lambda c: volumes.remove(c, volume, actor=Actor.of(harness.principal), now=now())
    )


async def gone(harness: Harness, node_id: UUID, volume: Volume) -> None:
    await harness.database.write(lambda c: volumes.gone(c, node_id, [volume.id], now()))


async def submit(harness: Harness, name: str, *mounted: Volume, **more: Any) -> UUID:
    current = [await look(harness, volume.name) for volume in mounted]
    return await harness.submit(name, mounts=tuple(map(Mounted.of, current)), **more)


async def node(harness: Harness, name: str, storage: str = "100Gi", **more: Any) -> UUID:
    return await harness.node(name, slots={"storage": storage}, **more)


async def remove_node(harness: Harness, node_id: UUID, *, force: bool = False) -> None:
    await harness.database.write(lambda c: nodes.remove(c, node_id, force=force, actor="test", now=now()))


async def where(harness: Harness, workload_id: UUID) -> list[str | None]:
    return [task.node_name for task in await harness.tasks(workload_id)]


async def stored(harness: Harness, node_id: UUID) -> int:
    """The node's storage that is taken."""
    return sum(await harness.counters(node_id, "storage"))


async def charged(harness: Harness, scope: Scope) -> int:
    id = {Scope.PROJECT: harness.principal.project_id, Scope.DOMAIN: harness.principal.domain_id}[scope]
    tenant = Tenant(scope, str(id))
    async with harness.database.read() as connection:
        used = (await quotas.usage(connection, [tenant])).get((tenant, ""), {})
    return used["storage"].used if "storage" in used else 0


async def message(harness: Harness, workload_id: UUID) -> str:
    [decision] = await harness.propose([workload_id])
    assert decision.reason is not None
    return decision.reason.message


async def test_a_volume_is_where_its_first_task_is_and_others_follow(harness: Harness):
    first, _ = await node(harness, "n1", cpu=4), await node(harness, "n2", cpu=8)
    data = await make(harness, "data")
    assert (await look(harness, "data")).status is VolumeStatus.UNPLACED
    writer = await submit(harness, "writer", data, cpu=6)
    await harness.place()
    assert await where(harness, writer) == ["n2"]
    placed = await look(harness, "data")
    assert (placed.status, placed.node, placed.mounted_by) == (VolumeStatus.AVAILABLE, "n2", 1)
    reader = await submit(harness, "reader", data, cpu=4)
    await harness.place()
    assert await where(harness, reader) == [None]
    assert "1 elsewhere: volume data is on node n2, which is full" in await message(harness, reader)
    await harness.stop(writer)
    [task] = await harness.tasks(writer)
    await harness.move(task, TaskStatus.CANCELLED, freed=True)
    await harness.place()
    assert await where(harness, reader) == ["n2"]
    assert await stored(harness, first) == 0
    assert await harness.findings() == []


async def test_the_size_counts_with_node_project_and_domain_for_as_long_as_the_volume_exists(harness: Harness):
    home = await node(harness, "n1")
    data = await make(harness, "data", 10 * GIB)
    assert [await charged(harness, scope) for scope in (Scope.PROJECT, Scope.DOMAIN)] == [10 * GIB, 10 * GIB]
    assert await stored(harness, home) == 0
    job = await submit(harness, "job", data, slots={"storage": 5 * GIB})
    await harness.run(job)
    assert await stored(harness, home) == 15 * GIB
    assert await charged(harness, Scope.PROJECT) == 15 * GIB
    assert await harness.findings() == []
    await harness.stop(job)
    [task] = await harness.tasks(job)
    await harness.move(task, TaskStatus.CANCELLED, freed=True)
    assert (await stored(harness, home), await charged(harness, Scope.PROJECT)) == (10 * GIB, 10 * GIB)
    assert not await remove(harness, "data")
    assert (await stored(harness, home), await charged(harness, Scope.PROJECT)) == (10 * GIB, 10 * GIB)
    await gone(harness, home, data)
    assert (await stored(harness, home), await charged(harness, Scope.PROJECT)) == (0, 0)
    await gone(harness, home, data)
    assert await harness.findings() == []


async def test_a_wrong_count_of_a_volume_is_found_and_repaired(harness: Harness):
    home = await node(harness, "n1")
    data = await make(harness, "data")
    await harness.run(await submit(harness, "job", data))
    await harness.database.write(
        lambda c: c.exec_driver_sql("UPDATE node_resources SET used = 0 WHERE slot_name = 'storage'")
    )
    await harness.database.write(
        lambda c: c.exec_driver_sql("UPDATE tenant_resources SET used = 1 WHERE slot_name = 'storage'")
    )
    found = {(finding.rule, finding.subject.split()[0]) for finding in await harness.findings()}
    assert found == {("ledger = counters", "node"), ("ledger = tenants", "project"), ("ledger = tenants", "domain")}
    await harness.repair()
    assert await harness.findings() == []
    assert await stored(harness, home) == 10 * GIB


@on_sqlite
async def test_only_a_node_with_capacity_for_the_volume_gets_it(harness: Harness):
    await node(harness, "small", "8Gi", cpu=16)
    await node(harness, "large", "20Gi")
    data = await make(harness, "data", 10 * GIB)
    job = await submit(harness, "job", data, slots={"storage": 5 * GIB})
    await harness.place()
    assert await where(harness, job) == ["large"]
    second = await make(harness, "more", 10 * GIB)
    other = await submit(harness, "other", second)
    await harness.place()
    assert await where(harness, other) == [None]
    assert "storage" in await message(harness, other)
    assert await harness.findings() == []


async def test_a_project_has_no_more_volumes_than_its_quota_of_storage(harness: Harness):
    tenant = Tenant(Scope.PROJECT, str(harness.principal.project_id))

    async def limit(connection: Any) -> None:
        found = await quotas.find(connection, Scope.PROJECT, tenant.id)
        await quotas.set_quota(connection, found, quotas.QuotaChange(limits={"storage": 15 * GIB}), now())

    await harness.database.write(limit)
    await make(harness, "data", 10 * GIB)
    with pytest.raises(Conflict, match="may use 15Gi storage; 10Gi are in use and this volume has 6Gi") as refused:
        await make(harness, "more", 6 * GIB)
    assert refused.value.code == "project-quota-exceeded"
    with pytest.raises(NotFound):
        await look(harness, "more")
    await make(harness, "more", 5 * GIB)
    home = await node(harness, "n1")
    job = await harness.submit("job", slots={"storage": 1 * GIB})
    bound = await harness.commit(await decision_on(harness, job, [home]))
    assert ["storage limit 15Gi" in why for _, why in bound.conflicts] == [True]


async def test_two_binders_at_once_give_a_volume_one_node(harness: Harness):
    first, second = await node(harness, "n1"), await node(harness, "n2")
    data = await make(harness, "data")
    one, other = await submit(harness, "one", data), await submit(harness, "other", data)
    decisions = [await decision_on(harness, one, [first]), await decision_on(harness, other, [second])]
    bound = await harness.commit(*decisions)
    assert [decision.workload.id for decision in bound.bound] == [one]
    assert [why for _, why in bound.conflicts] == ["volume data is on node n1"]
    late = await harness.commit(decisions[1])
    assert [why for _, why in late.conflicts] == ["volume data is on node n1"]
    assert (await stored(harness, first), await stored(harness, second)) == (10 * GIB, 0)
    await harness.place()
    assert await where(harness, other) == ["n1"]
    assert await stored(harness, first) == 10 * GIB
    assert await harness.findings() == []


@on_sqlite
async def test_replicas_go_where_the_first_of_them_brought_the_volume(harness: Harness):
    for name in ("n1", "n2", "n3"):
        await node(harness, name, cpu=8)
    web = await submit(harness, "web", await make(harness, "data"), replicas=3)
    bound = await harness.place()
    assert [len(decision.placements) for decision in bound.bound] == [1]
    await harness.place()
    assert len({*await where(harness, web)}) == 1
    assert None not in await where(harness, web)
    assert await harness.findings() == []


@on_sqlite
@pytest.mark.parametrize("size", [9 * GIB, 9 * GIB + 1])
async def test_a_gang_comes_to_one_node_with_its_new_volume_or_waits(harness: Harness, size: int):
    for name, cpu in (("n1", 2), ("n2", 4)):
        await node(harness, name, "15Gi", cpu=cpu)
    data = await make(harness, "data", size)
    gang = await submit(harness, "gang", data, replicas=3, gang=True, slots={"storage": 2 * GIB})
    await harness.place()
    assert await where(harness, gang) == (["n2"] * 3 if size == 9 * GIB else [None] * 3)
    assert await harness.findings() == []


@on_sqlite
async def test_volumes_on_different_nodes_keep_a_task_from_all_of_them(harness: Harness):
    await node(harness, "n1", cpu=1)
    await node(harness, "n2", cpu=1)
    left, right = await make(harness, "left"), await make(harness, "right")
    both = await submit(harness, "both", left, right)
    for name, volume in (("one", left), ("other", right)):
        await harness.bind(await harness.propose([await submit(harness, name, volume)]))
    assert {(await look(harness, name)).node for name in ("left", "right")} == {"n1", "n2"}
    why = await message(harness, both)
    assert "volume left is on node" in why
    assert "volume right is on node" in why
    [decision] = await harness.propose([both])
    assert not decision.placements


@on_sqlite
async def test_work_that_waits_for_a_volume_is_read_again_when_the_volume_gets_a_node(harness: Harness):
    await node(harness, "n1", cpu=2)
    data = await make(harness, "data")
    waits = await submit(harness, "waits", data, cpu=4)
    await harness.bind(await harness.propose([await submit(harness, "goes", data)]))
    assert [event.kind for event in await harness.feed(waits)][-1] == "volumes"


@on_sqlite
async def test_a_shared_volume_restricts_no_placement_and_counts_only_for_its_project(harness: Harness):
    homes = [await node(harness, name, cpu=1) for name in ("n1", "n2")]
    web = await submit(harness, "web", await make(harness, "pictures", shared=True), replicas=2)
    await harness.place()
    assert sorted(map(str, await where(harness, web))) == ["n1", "n2"]
    assert [await stored(harness, home) for home in homes] == [0, 0]
    assert await charged(harness, Scope.PROJECT) == 10 * GIB
    assert await harness.findings() == []


async def test_a_volume_is_removed_when_unmounted_and_deleted_on_its_node(harness: Harness):
    home, other = await node(harness, "n1", cpu=4), await node(harness, "n2", cpu=2)
    data = await make(harness, "data")
    job = await submit(harness, "job", data, cpu=3)
    await harness.run(job)
    with pytest.raises(Conflict, match="mounted by job") as refused:
        await remove(harness, "data")
    assert refused.value.code == "volume-in-use"
    await harness.stop(job, force=True)
    with pytest.raises(Conflict, match="mounted by job"):
        await remove(harness, "data")
    await harness.free_lost((await harness.tasks(job))[0].id)
    assert not await remove(harness, "data")
    with pytest.raises(NotFound):
        await look(harness, "data")
    async with harness.database.read() as connection:
        assert [row.id for row in await volumes.to_delete(connection, home)] == [data.id]
        assert await volumes.to_delete(connection, other) == []
        assert await mounts.lock_mountable(connection, [data.id]) == set()
    again = await make(harness, "data")
    await gone(harness, other, data)
    assert await charged(harness, Scope.PROJECT) == 20 * GIB
    await gone(harness, home, data)
    await gone(harness, home, again)
    assert await charged(harness, Scope.PROJECT) == 10 * GIB
    assert (await look(harness, "data")).id == again.id
    assert await harness.findings() == []


@on_sqlite
async def test_a_volume_that_is_nowhere_yet_or_on_a_simulated_node_goes_at_once(harness: Harness):
    await make(harness, "new")
    assert await remove(harness, "new")
    await node(harness, "sim", simulated=True)
    data = await make(harness, "data")
    job = await submit(harness, "job", data)
    await harness.run(job)
    await harness.stop(job)
    await harness.move((await harness.tasks(job))[0], TaskStatus.CANCELLED, freed=True)
    assert await remove(harness, "data")
    assert await charged(harness, Scope.PROJECT) == 0
    assert await harness.findings() == []


async def test_a_node_with_volumes_is_removed_by_force_alone_and_they_are_lost_with_it(harness: Harness):
    home = await node(harness, "n1", cpu=4)
    data, leaving = await make(harness, "data"), await make(harness, "leaving")
    job = await submit(harness, "job", data, leaving)
    await harness.run(job)
    await harness.stop(job)
    await harness.move((await harness.tasks(job))[0], TaskStatus.CANCELLED, freed=True)
    await remove(harness, "leaving")
    with pytest.raises(Conflict, match="has 2 volumes") as refused:
        await remove_node(harness, home)
    assert refused.value.code == "node-has-volumes"
    await remove_node(harness, home, force=True)
    lost = await look(harness, "data")
    assert (lost.status, lost.node) == (VolumeStatus.LOST, "n1")
    assert await charged(harness, Scope.PROJECT) == 10 * GIB
    await node(harness, "n1")
    waits = await submit(harness, "waits", data)
    await harness.place()
    assert "volume data was on node n1, which was removed" in await message(harness, waits)
    await harness.stop(waits)
    assert await remove(harness, "data")
    assert await harness.findings() == []


async def test_a_shared_volume_that_is_to_go_waits_for_a_node_while_there_is_one(harness: Harness):
    homes = [await node(harness, name) for name in ("n1", "n2")]
    pictures = await make(harness, "pictures", shared=True)
    assert not await remove(harness, "pictures")
    for left, home in ((10 * GIB, homes[0]), (0, homes[1])):
        async with harness.database.read() as connection:
            assert [row.id for row in await volumes.to_delete(connection, home)] == [pictures.id]
        await remove_node(harness, home)
        assert await charged(harness, Scope.PROJECT) == left
    assert await harness.findings() == []


@on_sqlite
async def test_work_waits_for_a_node_that_is_lost_with_its_volume(harness: Harness):
    home = await node(harness, "n1", cpu=8)
    await node(harness, "n2", cpu=2)
    data = await make(harness, "data")
    await harness.run(await submit(harness, "job", data, cpu=4))
    at = now()
    assert await harness.fall_silent(home, at)
    assert (await look(harness, "data")).status is VolumeStatus.UNREACHABLE
    waits = await submit(harness, "waits", data)
    assert "volume data is on node n1, which is lost" in await message(harness, waits)


@on_sqlite
async def test_a_task_and_the_storage_of_its_new_volume_conflict_as_one(harness: Harness):
    home = await node(harness, "n1", "12Gi")
    data = await make(harness, "data", 10 * GIB)
    job = await submit(harness, "job", data)
    wish: Decision = await decision_on(harness, job, [home])
    await harness.bind(await harness.propose([await harness.submit("other", slots={"storage": 3 * GIB})]))
    bound = await harness.commit(wish)
    assert [why for _, why in bound.conflicts] == ["node n1 has too little storage left"]
    assert (await look(harness, "data")).node is None
    assert await harness.findings() == []
