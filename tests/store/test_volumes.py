"""Volumes: where they come to be, how placement follows them, and that they count for as long as they exist."""

from typing import Any
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.model.decisions import Decision
from mooring.model.errors import Conflict, NotFound
from mooring.model.lifecycle import TaskStatus
from mooring.model.quotas import Scope, Tenant
from mooring.model.volumes import VolumeStatus
from mooring.store import mounts, nodes, quotas, repair, volumes
from mooring.store.actions import Actor
from mooring.store.mounts import Mounted
from mooring.store.volumes import Volume
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour, decision_on

GIB = 1024**3


async def make(harbour: Harbour, name: str, size: int = 10 * GIB, *, shared: bool = False) -> Volume:
    return await harbour.database.write(
        lambda c: volumes.create(
            c,
            name=name,
            project_id=harbour.principal.project_id,
            pool_id=harbour.pool.id,
            size=size,
            shared=shared,
            actor=Actor.of(harbour.principal),
            now=now(),
        )
    )


async def look(harbour: Harbour, name: str) -> Volume:
    async with harbour.database.read() as connection:
        return await volumes.find(connection, harbour.principal.project_id, name)


async def remove(harbour: Harbour, name: str) -> bool:
    volume = await look(harbour, name)
    return await harbour.database.write(
        lambda c: volumes.remove(c, volume, actor=Actor.of(harbour.principal), now=now())
    )


async def gone(harbour: Harbour, node_id: UUID, volume: Volume) -> None:
    await harbour.database.write(lambda c: volumes.gone(c, node_id, [volume.id], now()))


async def submit(harbour: Harbour, name: str, *mounted: Volume, **more: Any) -> UUID:
    current = [await look(harbour, volume.name) for volume in mounted]
    return await harbour.submit(name, mounts=tuple(map(Mounted.of, current)), **more)


async def node(harbour: Harbour, name: str, storage: str = "100Gi", **more: Any) -> UUID:
    return await harbour.node(name, slots={"storage": storage}, **more)


async def remove_node(harbour: Harbour, node_id: UUID, *, force: bool = False) -> None:
    await harbour.database.write(lambda c: nodes.remove(c, node_id, force=force, actor="test", now=now()))


async def where(harbour: Harbour, workload_id: UUID) -> list[str | None]:
    return [task.node_name for task in await harbour.tasks(workload_id)]


async def stored(harbour: Harbour, node_id: UUID) -> int:
    """The node's storage that is taken."""
    return sum(await harbour.counters(node_id, "storage"))


async def charged(harbour: Harbour, scope: Scope) -> int:
    id = {Scope.PROJECT: harbour.principal.project_id, Scope.DOMAIN: harbour.principal.domain_id}[scope]
    tenant = Tenant(scope, str(id))
    async with harbour.database.read() as connection:
        used = (await quotas.usage(connection, [tenant])).get((tenant, ""), {})
    return used["storage"].used if "storage" in used else 0


async def message(harbour: Harbour, workload_id: UUID) -> str:
    [decision] = await harbour.propose([workload_id])
    assert decision.reason is not None
    return decision.reason.message


async def test_a_volume_is_where_its_first_task_is_and_others_follow(harbour: Harbour):
    first, _ = await node(harbour, "n1", cpu=4), await node(harbour, "n2", cpu=8)
    data = await make(harbour, "data")
    assert (await look(harbour, "data")).status is VolumeStatus.UNPLACED
    writer = await submit(harbour, "writer", data, cpu=6)
    await harbour.place()
    assert await where(harbour, writer) == ["n2"]
    placed = await look(harbour, "data")
    assert (placed.status, placed.node, placed.mounted_by) == (VolumeStatus.AVAILABLE, "n2", 1)
    reader = await submit(harbour, "reader", data, cpu=4)
    await harbour.place()
    assert await where(harbour, reader) == [None]
    assert "1 elsewhere: volume data is on node n2, which is full" in await message(harbour, reader)
    await harbour.stop(writer)
    [task] = await harbour.tasks(writer)
    await harbour.move(task, TaskStatus.CANCELLED, freed=True)
    await harbour.place()
    assert await where(harbour, reader) == ["n2"]
    assert await stored(harbour, first) == 0
    assert await harbour.findings() == []


async def test_the_size_counts_with_node_project_and_domain_for_as_long_as_the_volume_exists(harbour: Harbour):
    home = await node(harbour, "n1")
    data = await make(harbour, "data", 10 * GIB)
    assert [await charged(harbour, scope) for scope in (Scope.PROJECT, Scope.DOMAIN)] == [10 * GIB, 10 * GIB]
    assert await stored(harbour, home) == 0
    job = await submit(harbour, "job", data, slots={"storage": 5 * GIB})
    await harbour.run(job)
    assert await stored(harbour, home) == 15 * GIB
    assert await charged(harbour, Scope.PROJECT) == 15 * GIB
    assert await harbour.findings() == []
    await harbour.stop(job)
    [task] = await harbour.tasks(job)
    await harbour.move(task, TaskStatus.CANCELLED, freed=True)
    assert (await stored(harbour, home), await charged(harbour, Scope.PROJECT)) == (10 * GIB, 10 * GIB)
    assert not await remove(harbour, "data")
    assert (await stored(harbour, home), await charged(harbour, Scope.PROJECT)) == (10 * GIB, 10 * GIB)
    await gone(harbour, home, data)
    assert (await stored(harbour, home), await charged(harbour, Scope.PROJECT)) == (0, 0)
    await gone(harbour, home, data)
    assert await harbour.findings() == []


async def test_a_wrong_count_of_a_volume_is_found_and_repaired(harbour: Harbour):
    home = await node(harbour, "n1")
    data = await make(harbour, "data")
    await harbour.run(await submit(harbour, "job", data))
    await harbour.database.write(
        lambda c: c.exec_driver_sql("UPDATE node_resources SET used = 0 WHERE slot_name = 'storage'")
    )
    await harbour.database.write(
        lambda c: c.exec_driver_sql("UPDATE tenant_resources SET used = 1 WHERE slot_name = 'storage'")
    )
    found = {(finding.rule, finding.subject.split()[0]) for finding in await harbour.findings()}
    assert found == {("ledger = counters", "node"), ("ledger = tenants", "project"), ("ledger = tenants", "domain")}
    await harbour.database.write(lambda c: repair.repair(c, now()))
    assert await harbour.findings() == []
    assert await stored(harbour, home) == 10 * GIB


@on_sqlite
async def test_only_a_node_with_room_for_the_volume_gets_it(harbour: Harbour):
    await node(harbour, "small", "8Gi", cpu=16)
    await node(harbour, "large", "20Gi")
    data = await make(harbour, "data", 10 * GIB)
    job = await submit(harbour, "job", data, slots={"storage": 5 * GIB})
    await harbour.place()
    assert await where(harbour, job) == ["large"]
    second = await make(harbour, "more", 10 * GIB)
    other = await submit(harbour, "other", second)
    await harbour.place()
    assert await where(harbour, other) == [None]
    assert "storage" in await message(harbour, other)
    assert await harbour.findings() == []


async def test_a_project_has_no_more_volumes_than_its_quota_of_storage(harbour: Harbour):
    tenant = Tenant(Scope.PROJECT, str(harbour.principal.project_id))

    async def limit(connection: Any) -> None:
        found = await quotas.find(connection, Scope.PROJECT, tenant.id)
        await quotas.set_quota(connection, found, quotas.QuotaChange(limits={"storage": 15 * GIB}), now())

    await harbour.database.write(limit)
    await make(harbour, "data", 10 * GIB)
    with pytest.raises(Conflict, match="may use 15Gi storage; 10Gi are in use and this volume has 6Gi") as refused:
        await make(harbour, "more", 6 * GIB)
    assert refused.value.code == "project-quota-exceeded"
    with pytest.raises(NotFound):
        await look(harbour, "more")
    await make(harbour, "more", 5 * GIB)
    home = await node(harbour, "n1")
    job = await harbour.submit("job", slots={"storage": 1 * GIB})
    bound = await harbour.commit(await decision_on(harbour, job, [home]))
    assert ["storage limit 15Gi" in why for _, why in bound.conflicts] == [True]


async def test_two_binders_at_once_give_a_volume_one_node(harbour: Harbour):
    first, second = await node(harbour, "n1"), await node(harbour, "n2")
    data = await make(harbour, "data")
    one, other = await submit(harbour, "one", data), await submit(harbour, "other", data)
    decisions = [await decision_on(harbour, one, [first]), await decision_on(harbour, other, [second])]
    bound = await harbour.commit(*decisions)
    assert [decision.workload.id for decision in bound.bound] == [one]
    assert [why for _, why in bound.conflicts] == ["volume data is on node n1"]
    late = await harbour.commit(decisions[1])
    assert [why for _, why in late.conflicts] == ["volume data is on node n1"]
    assert (await stored(harbour, first), await stored(harbour, second)) == (10 * GIB, 0)
    await harbour.place()
    assert await where(harbour, other) == ["n1"]
    assert await stored(harbour, first) == 10 * GIB
    assert await harbour.findings() == []


@on_sqlite
async def test_replicas_go_where_the_first_of_them_brought_the_volume(harbour: Harbour):
    for name in ("n1", "n2", "n3"):
        await node(harbour, name, cpu=8)
    web = await submit(harbour, "web", await make(harbour, "data"), replicas=3)
    bound = await harbour.place()
    assert [len(decision.placements) for decision in bound.bound] == [1]
    await harbour.place()
    assert len({*await where(harbour, web)}) == 1
    assert None not in await where(harbour, web)
    assert await harbour.findings() == []


@on_sqlite
@pytest.mark.parametrize("size", [9 * GIB, 9 * GIB + 1])
async def test_a_gang_comes_to_one_node_with_its_new_volume_or_waits(harbour: Harbour, size: int):
    for name, cpu in (("n1", 2), ("n2", 4)):
        await node(harbour, name, "15Gi", cpu=cpu)
    data = await make(harbour, "data", size)
    gang = await submit(harbour, "gang", data, replicas=3, gang=True, slots={"storage": 2 * GIB})
    await harbour.place()
    assert await where(harbour, gang) == (["n2"] * 3 if size == 9 * GIB else [None] * 3)
    assert await harbour.findings() == []


@on_sqlite
async def test_volumes_on_different_nodes_keep_a_task_from_all_of_them(harbour: Harbour):
    await node(harbour, "n1", cpu=1)
    await node(harbour, "n2", cpu=1)
    left, right = await make(harbour, "left"), await make(harbour, "right")
    both = await submit(harbour, "both", left, right)
    for name, volume in (("one", left), ("other", right)):
        await harbour.bind(await harbour.propose([await submit(harbour, name, volume)]))
    assert {(await look(harbour, name)).node for name in ("left", "right")} == {"n1", "n2"}
    why = await message(harbour, both)
    assert "volume left is on node" in why
    assert "volume right is on node" in why
    [decision] = await harbour.propose([both])
    assert not decision.placements


@on_sqlite
async def test_who_waits_for_a_volume_is_read_again_when_it_comes_to_a_node(harbour: Harbour):
    await node(harbour, "n1", cpu=2)
    data = await make(harbour, "data")
    waits = await submit(harbour, "waits", data, cpu=4)
    await harbour.bind(await harbour.propose([await submit(harbour, "goes", data)]))
    assert [event.kind for event in await harbour.feed(waits)][-1] == "volumes"


@on_sqlite
async def test_a_shared_volume_keeps_nobody_anywhere_and_counts_with_the_project_alone(harbour: Harbour):
    homes = [await node(harbour, name, cpu=1) for name in ("n1", "n2")]
    web = await submit(harbour, "web", await make(harbour, "pictures", shared=True), replicas=2)
    await harbour.place()
    assert sorted(map(str, await where(harbour, web))) == ["n1", "n2"]
    assert [await stored(harbour, home) for home in homes] == [0, 0]
    assert await charged(harbour, Scope.PROJECT) == 10 * GIB
    assert await harbour.findings() == []


async def test_a_volume_goes_when_nobody_living_mounts_it_and_its_node_has_deleted_it(harbour: Harbour):
    home, other = await node(harbour, "n1", cpu=4), await node(harbour, "n2", cpu=2)
    data = await make(harbour, "data")
    job = await submit(harbour, "job", data, cpu=3)
    await harbour.run(job)
    with pytest.raises(Conflict, match="mounted by job") as refused:
        await remove(harbour, "data")
    assert refused.value.code == "volume-in-use"
    await harbour.stop(job, force=True)
    with pytest.raises(Conflict, match="mounted by job"):
        await remove(harbour, "data")
    await harbour.free_lost((await harbour.tasks(job))[0].id)
    assert not await remove(harbour, "data")
    with pytest.raises(NotFound):
        await look(harbour, "data")
    async with harbour.database.read() as connection:
        assert [row.id for row in await volumes.to_delete(connection, home)] == [data.id]
        assert await volumes.to_delete(connection, other) == []
        assert await mounts.lock_living(connection, [data.id]) == set()
    again = await make(harbour, "data")
    await gone(harbour, other, data)
    assert await charged(harbour, Scope.PROJECT) == 20 * GIB
    await gone(harbour, home, data)
    await gone(harbour, home, again)
    assert await charged(harbour, Scope.PROJECT) == 10 * GIB
    assert (await look(harbour, "data")).id == again.id
    assert await harbour.findings() == []


@on_sqlite
async def test_a_volume_that_is_nowhere_yet_or_on_a_simulated_node_goes_at_once(harbour: Harbour):
    await make(harbour, "new")
    assert await remove(harbour, "new")
    await node(harbour, "sim", simulated=True)
    data = await make(harbour, "data")
    job = await submit(harbour, "job", data)
    await harbour.run(job)
    await harbour.stop(job)
    await harbour.move((await harbour.tasks(job))[0], TaskStatus.CANCELLED, freed=True)
    assert await remove(harbour, "data")
    assert await charged(harbour, Scope.PROJECT) == 0
    assert await harbour.findings() == []


async def test_a_node_with_volumes_is_removed_by_force_alone_and_they_are_lost_with_it(harbour: Harbour):
    home = await node(harbour, "n1", cpu=4)
    data, leaving = await make(harbour, "data"), await make(harbour, "leaving")
    job = await submit(harbour, "job", data, leaving)
    await harbour.run(job)
    await harbour.stop(job)
    await harbour.move((await harbour.tasks(job))[0], TaskStatus.CANCELLED, freed=True)
    await remove(harbour, "leaving")
    with pytest.raises(Conflict, match="has 2 volumes") as refused:
        await remove_node(harbour, home)
    assert refused.value.code == "node-has-volumes"
    await remove_node(harbour, home, force=True)
    lost = await look(harbour, "data")
    assert (lost.status, lost.node) == (VolumeStatus.LOST, "n1")
    assert await charged(harbour, Scope.PROJECT) == 10 * GIB
    await node(harbour, "n1")
    waits = await submit(harbour, "waits", data)
    await harbour.place()
    assert "volume data was on node n1, which was removed" in await message(harbour, waits)
    await harbour.stop(waits)
    assert await remove(harbour, "data")
    assert await harbour.findings() == []


async def test_a_shared_volume_that_is_to_go_waits_for_a_node_while_there_is_one(harbour: Harbour):
    homes = [await node(harbour, name) for name in ("n1", "n2")]
    pictures = await make(harbour, "pictures", shared=True)
    assert not await remove(harbour, "pictures")
    for left, home in ((10 * GIB, homes[0]), (0, homes[1])):
        async with harbour.database.read() as connection:
            assert [row.id for row in await volumes.to_delete(connection, home)] == [pictures.id]
        await remove_node(harbour, home)
        assert await charged(harbour, Scope.PROJECT) == left
    assert await harbour.findings() == []


@on_sqlite
async def test_work_waits_for_a_node_that_is_lost_with_its_volume(harbour: Harbour):
    home = await node(harbour, "n1", cpu=8)
    await node(harbour, "n2", cpu=2)
    data = await make(harbour, "data")
    await harbour.run(await submit(harbour, "job", data, cpu=4))
    at = now()
    assert await harbour.fall_silent(home, at)
    assert (await look(harbour, "data")).status is VolumeStatus.UNREACHABLE
    waits = await submit(harbour, "waits", data)
    assert "volume data is on node n1, which is lost" in await message(harbour, waits)


@on_sqlite
async def test_a_task_and_the_storage_of_its_new_volume_conflict_as_one(harbour: Harbour):
    home = await node(harbour, "n1", "12Gi")
    data = await make(harbour, "data", 10 * GIB)
    job = await submit(harbour, "job", data)
    wish: Decision = await decision_on(harbour, job, [home])
    await harbour.bind(await harbour.propose([await harbour.submit("other", slots={"storage": 3 * GIB})]))
    bound = await harbour.commit(wish)
    assert [why for _, why in bound.conflicts] == ["node n1 has too little storage left"]
    assert (await look(harbour, "data")).node is None
    assert await harbour.findings() == []
