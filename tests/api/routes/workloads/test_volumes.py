"""The API of volumes, and requests that mount them."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mooring import clock
from mooring.model.tenancy.tenants import Role
from mooring.store.reservations import timeslots
from tests.api.world import World, real_pool_takes_containers
from tests.store.databases import on_sqlite

Headers = dict[str, str]


def mounting(*names: str, **more: Any) -> dict[str, Any]:
    mounts = [{"volume": name, "path": f"/mnt/{name}"} for name in names]
    return {
        "containers": [{"image": "busybox", "mounts": mounts, "resources": {"cpu": 1}}],
        "volumes": [{"name": name, "kind": "named"} for name in names],
        **more,
    }


async def make(world: World, headers: Headers, name: str, **more: Any) -> Any:
    body = {"name": name, "size": "10Gi", "pool": "simulated", **more}
    return await world.client.post("/api/volumes", json=body, headers=headers)


async def submitted(world: World, headers: Headers, body: dict[str, Any]) -> Any:
    return await world.client.post("/api/workloads", json=body, headers=headers)


@pytest.fixture
async def ann(world: World) -> Headers:
    options = {"shared_volumes": "/mnt/shared"}
    answer = await world.client.patch("/api/pools/simulated", json=options, headers=await world.admin())
    assert answer.status_code == 204, answer.text
    return await world.user("ann", project="vision")


@on_sqlite
async def test_a_volume_is_made_listed_shown_and_removed(world: World, ann: Headers):
    made = await make(world, ann, "data")
    assert made.status_code == 201, made.text
    shown = {
        "name": "data",
        "project": "vision",
        "pool": "simulated",
        "size": "10Gi",
        "shared": False,
        "created_by": "ann",
    }
    assert shown | {"status": "unplaced", "node": None, "mounted_by": 0, "uses": []} == {
        name: value for name, value in made.json().items() if name not in ("id", "domain", "created_at")
    }
    assert (await world.client.get("/api/volumes", headers=ann)).json() == [made.json()]
    assert (await world.client.get("/api/volumes/data", headers=ann)).json() == made.json()
    quota = (await world.client.get("/api/quotas/project/vision", headers=ann)).json()
    assert [(line["slot"], line["used"]) for line in quota["quotas"]] == [("storage", "10Gi")]
    assert (await make(world, ann, "data")).json()["code"] == "volume-exists"
    assert (await world.client.delete("/api/volumes/data", headers=ann)).status_code == 204
    assert (await world.client.get("/api/volumes/data", headers=ann)).status_code == 404


@on_sqlite
async def test_members_of_the_project_see_and_mount_a_volume_and_its_maker_and_admins_remove_it(
    world: World, ann: Headers
):
    bob, eve = await world.user("bob", project="vision"), await world.user("eve", project="speech")
    chief = await world.user("chief", project="vision", role=Role.PROJECT_ADMIN)
    await make(world, ann, "data")
    assert [v["name"] for v in (await world.client.get("/api/volumes", headers=bob)).json()] == ["data"]
    assert (await submitted(world, bob, mounting("data", name="web"))).status_code == 202
    for headers, seen in ((bob, ["web"]), (ann, []), (chief, ["web"])):
        [volume] = (await world.client.get("/api/volumes", headers=headers)).json()
        assert (volume["mounted_by"], [use["workload"] for use in volume["uses"]]) == (1, seen)
    assert (await world.client.delete("/api/volumes/data", headers=bob)).status_code == 403
    assert (await world.client.delete("/api/volumes/data", headers=chief)).json()["code"] == "volume-in-use"
    assert (await world.client.get("/api/volumes", headers=eve)).json() == []
    assert (await world.client.get("/api/volumes/data?project=vision", headers=eve)).status_code == 404
    foreign = await submitted(world, eve, mounting("data"))
    assert (foreign.status_code, foreign.json()["code"]) == (404, "not-found")


@on_sqlite
async def test_an_invalid_volume_is_refused_and_changes_nothing(world: World, ann: Headers):
    before = await world.counts()
    for body, code in (
        ({"size": "0"}, "invalid-volume"),
        ({"size": "1.5"}, "inexact-quantity"),
        ({"size": "10Gi", "pool": "nowhere"}, "unknown-pool"),
        ({"size": "10Gi", "pool": "default", "shared": True}, "no-shared-volumes"),
        ({"size": "10Gi", "name": "../etc"}, "invalid-input"),
        ({"size": "10Gi", "path": "/etc"}, "invalid-input"),
    ):
        given: dict[str, Any] = {"name": "data", **body}
        answer = await make(world, ann, **given)
        assert (body, answer.json()["code"]) == (body, code)
    assert await world.counts() == before


@on_sqlite
async def test_work_goes_to_the_pool_of_its_volumes_and_to_no_other(world: World, ann: Headers):
    await make(world, ann, "data")
    await real_pool_takes_containers(world.services.database)
    assert (await submitted(world, ann, mounting("data"))).json()["pool"] == "simulated"
    elsewhere = await submitted(world, ann, mounting("data", pool="real"))
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (422, "volume-in-other-pool")


@on_sqlite
async def test_volumes_on_different_nodes_are_refused_at_submission(world: World, ann: Headers):
    for name in ("left", "right"):
        await make(world, ann, name)
        await world.add_node(f"node-{name}")

    async def place(connection: Any) -> None:
        await connection.exec_driver_sql(
            "UPDATE volumes SET node_id = (SELECT id FROM nodes WHERE nodes.name = 'node-' || volumes.name),"
            " node_name = 'node-' || name"
        )

    await world.services.database.write(place)
    here = (await world.client.get("/api/volumes?node=node-left", headers=ann)).json()
    assert [(volume["name"], volume["node"]) for volume in here] == [("left", "node-left")]
    apart = await submitted(world, ann, mounting("left", "right"))
    assert (apart.status_code, apart.json()["code"]) == (422, "volumes-apart")
    assert "left on node node-left, right on node node-right" in apart.json()["message"]
    assert (await submitted(world, ann, mounting("left"))).status_code == 202


@on_sqlite
async def test_a_dry_run_says_where_the_volume_is(world: World, ann: Headers):
    await world.add_node("n1")
    await world.add_node("n2")
    await make(world, ann, "data")
    asked = mounting("data", single_node=False)
    tried = (await world.client.post("/api/workloads/dry-run", json=asked, headers=ann)).json()
    assert tried["outcome"] == "placed", tried
    too_large = await make(world, ann, "huge", size="2Ti")
    assert too_large.status_code == 201
    tried = (await world.client.post("/api/workloads/dry-run", json=mounting("huge"), headers=ann)).json()
    assert "storage" in tried["summary"], tried


@on_sqlite
async def test_a_node_with_volumes_says_so_when_it_is_to_be_removed(world: World, ann: Headers):
    await world.add_node("n1")
    await make(world, ann, "data")
    await world.services.database.write(
        lambda c: c.exec_driver_sql(
            "UPDATE volumes SET node_id = (SELECT id FROM nodes WHERE name = 'n1'), node_name = 'n1'"
        )
    )
    admin = await world.admin()
    refused = await world.client.delete("/api/nodes/n1", headers=admin)
    assert (refused.status_code, refused.json()["code"]) == (409, "node-has-volumes")
    assert (await world.client.delete("/api/nodes/n1?force=true", headers=admin)).status_code == 204
    assert (await world.client.get("/api/volumes/data", headers=ann)).json()["status"] == "lost"


@on_sqlite
async def test_the_folder_of_shared_volumes_stays_while_there_are_any(world: World, ann: Headers):
    admin = await world.admin()
    await make(world, ann, "pictures", shared=True)
    moved = await world.client.patch("/api/pools/simulated", json={"shared_volumes": "/mnt/other"}, headers=admin)
    assert (moved.status_code, moved.json()["code"]) == (409, "pool-has-volumes")
    for path in ("/proc/x", "/mnt/../etc", "/run/docker.sock"):
        wrong = await world.client.patch("/api/pools/simulated", json={"shared_volumes": path}, headers=admin)
        assert (path, wrong.json()["code"]) == (path, "invalid-path")
    assert (await world.client.delete("/api/volumes/pictures", headers=ann)).status_code == 204
    assert (
        await world.client.patch("/api/pools/simulated", json={"shared_volumes": ""}, headers=admin)
    ).status_code == 204
    assert (await make(world, ann, "pictures", shared=True)).json()["code"] == "no-shared-volumes"


@on_sqlite
async def test_a_volume_that_work_mounts_shows_by_how_much(world: World, ann: Headers):
    await make(world, ann, "data")
    workload = (await submitted(world, ann, mounting("data"))).json()["id"]
    assert (await world.client.get("/api/volumes/data", headers=ann)).json()["mounted_by"] == 1
    await world.client.delete(f"/api/workloads/{workload}", headers=ann)
    assert (await world.client.get("/api/volumes/data", headers=ann)).json()["mounted_by"] == 0


@on_sqlite
async def test_a_lab_is_booked_on_the_node_of_its_volume_which_has_to_have_one(world: World, ann: Headers):
    for name in ("n1", "n2"):
        await world.add_node(name)
    await make(world, ann, "data")
    start = (clock.now() + timedelta(days=1)).isoformat()
    lab = {"start": start, "duration": "1h", "workload": mounting("data", name="lab")}
    refused = await world.client.post("/api/labs", json=lab, headers=ann)
    assert (refused.status_code, refused.json()["code"]) == (422, "volume-unplaced")
    await world.services.database.write(
        lambda c: c.exec_driver_sql(
            "UPDATE volumes SET node_id = (SELECT id FROM nodes WHERE name = 'n2'), node_name = 'n2'"
        )
    )
    asked = await world.client.post("/api/labs", json=lab, headers=ann)
    assert asked.status_code == 202, asked.text
    async with world.services.database.read() as connection:
        (slot,) = await timeslots.load(connection, [UUID(asked.json()["timeslot"])])
    assert [(volume.name, volume.node) for volume in slot.constraints.volumes] == [("data", "n2")]
