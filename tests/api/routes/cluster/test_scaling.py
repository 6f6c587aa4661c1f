"""Node templates and the size of pools over HTTP, and what workloads may ask of machines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.model.nodes.node_templates import ScaleRequest, ScaleRequestStatus
from mooring.model.workloads.constraints import MachineImage
from mooring.store.control import leadership
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.scaling import scale_requests, scaling_states
from mooring.store.scaling.scaling_states import Advised, ScalingState, Unmet
from mooring.store.workloads import pending
from tests.api.world import World
from tests.store.databases import on_sqlite

TEMPLATE: dict[str, Any] = {
    "resources": {"cpu": 16, "memory": "64Gi", "gpu": 2},
    "labels": {"disk": "ssd"},
    "taints": [{"key": "spot"}],
    "region": "eu-west",
    "licence": "enterprise",
    "machine_image": "cml",
    "machine_image_version": "2.7.1",
    "devices": {"gpu": [{"count": 2, "model": "A100", "memory": "80Gi"}]},
    "cost": 7,
    "boot_seconds": 60,
    "least": 1,
    "most": 3,
}


async def test_templates_are_put_listed_and_removed(world: World):
    admin, client, path = await world.admin(), world.client, "/api/pools/simulated/templates"
    made = await client.put(f"{path}/large", json=TEMPLATE, headers=admin)
    assert made.status_code == 200, made.text
    shown = made.json()
    assert (shown["name"], shown["version"], shown["runtimes"]) == ("large", 1, ["container"])
    assert shown["resources"] == {"cpu": "16", "memory": "64Gi", "gpu": "2"}
    assert [device["model"] for device in shown["devices"]["gpu"]] == ["A100", "A100"]
    again = await client.put(f"{path}/large", json={**TEMPLATE, "cost": 8}, headers=admin)
    assert (again.json()["version"], again.json()["cost"]) == (2, 8)
    assert (await client.get(path, headers=admin)).json() == {"templates": [again.json()]}
    assert (await client.get("/api/pools/default/templates", headers=admin)).json() == {"templates": []}
    done = (await client.get("/api/actions?noun=node-template", headers=admin)).json()["actions"]
    assert [(each["action"], each["object"]) for each in done] == [
        ("change", "simulated/large"),
        ("create", "simulated/large"),
    ]
    assert (await client.delete(f"{path}/large", headers=admin)).status_code == 204
    assert (await client.delete(f"{path}/large", headers=admin)).status_code == 404
    assert (await client.get(path, headers=admin)).json() == {"templates": []}


@on_sqlite
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"resources": {}}, "at least 1"),
        ({"resources": {"cpu": 0}, "devices": {}}, "have no resources"),
        ({"resources": {"cpu": "much"}, "devices": {}}, "much"),
        ({"least": 4}, "exceeds the maximum of 3"),
        ({"cost": 0}, "greater than or equal to 1"),
        ({"devices": {"gpu": [{"count": 3}]}}, "3 devices are named"),
        ({"devices": {"cpu": [{"count": 16}]}}, "devices are named for cpu"),
        ({"labels": {"disk": "a b"}}, "not a label value"),
        ({"taints": [{"key": "mooring/failing"}]}, "own"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_template_that_no_node_could_be_like_is_refused(world: World, wrong: dict[str, Any], why: str):
    admin = await world.admin()
    body = TEMPLATE | wrong
    answer = await world.client.put("/api/pools/default/templates/large", json=body, headers=admin)
    assert (answer.status_code, why in answer.text) == (422, True), answer.text
    assert (await world.client.get("/api/pools/default/templates", headers=admin)).json() == {"templates": []}


@on_sqlite
async def test_templates_of_pools_that_there_are_not_are_not_found(world: World):
    admin, client = await world.admin(), world.client
    for pool in ("nowhere", "UPPER", "%00"):
        assert (await client.get(f"/api/pools/{pool}/templates", headers=admin)).status_code == 404
        put = await client.put(f"/api/pools/{pool}/templates/t", json=TEMPLATE, headers=admin)
        assert put.status_code == 404
        assert (await client.delete(f"/api/pools/{pool}/templates/t", headers=admin)).status_code == 404


@on_sqlite
async def test_a_slot_that_only_a_template_has_may_be_asked_for(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    asked = {
        "containers": [{"image": "train", "resources": {"fpga": 1}}],
        "pool": "simulated",
        "on_insufficient": "scale_up",
    }
    refused = await world.client.post("/api/workloads", json=asked, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "slot-not-served")
    template = {"resources": {"cpu": 4, "fpga": 2}}
    await world.client.put("/api/pools/simulated/templates/boards", json=template, headers=await world.admin())
    assert (await world.client.post("/api/workloads", json=asked, headers=headers)).status_code == 202


async def test_requests_unmet_work_and_advice_are_shown(world: World):
    at = now()
    work = UUID(await world.submit(await world.admin(), name="train"))
    await world.add_node("n1")
    node = (await world.client.get("/api/nodes/n1", headers=await world.admin())).json()
    status, late = ScaleRequestStatus.REQUESTED, at + timedelta(hours=1)
    request = ScaleRequest(new_id(), "simulated", "large", status, ({work: 2}, {work: 1}), late, at)

    async def write(connection: Connection) -> None:
        term = await leadership.start_term(connection, "test", at)
        await scale_requests.insert_new(connection, [request], now=at, term=term)
        unmet = (Unmet(work, "no-template", "no node template has the capacity for it"),)
        advice = (Advised(UUID(node["id"]), "n1", "drain", at),)
        await scaling_states.save(connection, {"simulated": ScalingState(unmet, advice)}, now=at, term=term)

    await world.services.database.write(write)
    shown = (await world.client.get("/api/scaling", headers=await world.admin())).json()
    [asked] = shown["requests"]
    assert (asked["id"], asked["template"], asked["status"]) == (str(request.id), "large", "REQUESTED")
    assert (asked["nodes"], asked["joined"], asked["workloads"]) == (2, 0, [str(work)])
    assert [(each["workload"], each["code"]) for each in shown["unmet"]] == [("train", "no-template")]
    assert [(each["node"], each["step"]) for each in shown["advice"]] == [("n1", "drain")]
    nothing: dict[str, list[Any]] = {"requests": [], "unmet": [], "advice": []}
    assert (await world.client.get("/api/scaling?pool=default", headers=await world.admin())).json() == nothing
    events = (await world.client.get("/api/events?expand=true", headers=await world.admin())).json()["events"]
    kinds = [(event["noun"], event["kind"]) for event in events]
    assert ("scale-request", "REQUESTED") in kinds
    assert ("node", "advised") in kinds


@on_sqlite
async def test_a_node_shows_its_licence_and_machine_image(world: World):
    machine = {"licence": "personal", "machine_image": "cml", "machine_image_version": "2.10"}
    await world.add_node("n1", **machine)
    node = (await world.client.get("/api/nodes/n1", headers=await world.admin())).json()
    assert {name: node[name] for name in machine} == machine
    assert (node["template"], node["scale_request_id"]) == (None, None)


async def test_a_workload_asks_for_a_licence_and_a_machine_image(world: World):
    admin = await world.admin()
    await world.add_node("n1", licence="enterprise", machine_image="cml", machine_image_version="2.9")
    await world.add_node("n2", machine_image="cml", machine_image_version="2.10")
    wishes = {"licence": "personal", "machine_image": {"name": "cml", "version": ">=2.10"}}
    asked = {"containers": [{"image": "lab"}], "pool": "simulated"}
    for wish, place in (
        ({"licence": wishes["licence"]}, "n1"),
        ({"machine_image": wishes["machine_image"]}, "n2"),
        (wishes, None),
    ):
        body = {**asked, "placement": wish}
        answer = (await world.client.post("/api/workloads/dry-run", json=body, headers=admin)).json()
        assert (answer["winner"] or {"node": None})["node"] == place, answer
    workload_id = UUID(await world.submit(admin, placement=wishes, on_insufficient="scale_up"))
    async with world.services.database.read() as connection:
        [waiting] = await pending.waiting(connection, [workload_id])
    assert waiting.constraints.licence == "personal"
    assert waiting.constraints.machine_image == MachineImage("cml", ">=2.10")
    assert waiting.on_insufficient == "scale_up"
