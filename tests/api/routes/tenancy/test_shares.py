"""Fair-share standing and weights, and occupancy over five axes, through the API."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update

from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.tenants import Role
from mooring.store.tables import nodes, pools
from tests.api.routes.tenancy.test_accounting import used
from tests.api.world import World


async def shares(world: World, headers: dict[str, str], pool: str = "default") -> dict[str, dict[str, Any]]:
    answer = await world.client.get("/api/shares", params={"pool": pool}, headers=headers)
    assert answer.status_code == 200, answer.text
    return {f"{row['scope']} {row['name']}": row for row in answer.json()["shares"]}


async def test_past_use_lowers_the_factor_and_the_rank_and_a_weight_raises_both(world: World):
    admin = await world.admin()
    await world.user("ada")
    await world.user("ben")
    await world.add_node("n1")
    in_default = select(pools.c.id).where(pools.c.name == "default").scalar_subquery()
    await world.services.database.write(lambda c: c.execute(update(nodes).values(pool_id=in_default)))
    changed = await world.client.patch("/api/pools/default", json={"sequencer": "fair_share"}, headers=admin)
    assert changed.status_code == 204, changed.text
    await used(world, "ada", 0, 8000)
    await used(world, "ben", 0, 6000)
    before = await shares(world, admin)
    ada, ben = before["user default/default/ada"], before["user default/default/ben"]
    assert (ben["rank"] < ada["rank"], ben["factor"] > ada["factor"], ada["weight"]) == (True, True, 100)
    set_weight = await world.client.put("/api/shares/user/ada", json={"weight": 400}, headers=admin)
    assert set_weight.status_code == 204, set_weight.text
    after = await shares(world, admin)
    ada, ben = after["user default/default/ada"], after["user default/default/ben"]
    assert (ada["rank"] < ben["rank"], ada["weight"], ada["used_percent"]) == (True, 400, ada["used_percent"])
    assert ada["factor"] > before["user default/default/ada"]["factor"]
    assert (await world.client.put("/api/shares/user/ada", json={"weight": 100}, headers=admin)).status_code == 204
    assert await shares(world, admin) == before


async def test_a_user_sees_its_own_standing_only_and_sets_no_weight(world: World):
    admin, ada = await world.admin(), await world.user("ada")
    await world.user("ben")
    await world.add_node("n1")
    await used(world, "ben", 0, 8000)
    own = await shares(world, ada)
    assert [row["name"] for row in own.values() if row["scope"] == "user"] == ["default/default/ada"]
    assert (await world.client.put("/api/shares/user/ada", json={"weight": 900}, headers=ada)).status_code == 403
    assert (await world.client.put("/api/shares/user/ben", json={"weight": 1}, headers=ada)).status_code == 404
    for wrong in (0, -1, 10_001, "2", None):
        answer = await world.client.put("/api/shares/user/ada", json={"weight": wrong}, headers=admin)
        assert answer.status_code == 422, wrong
    assert (await world.client.get("/api/shares", params={"pool": "none"}, headers=ada)).status_code == 404


async def test_a_domain_admin_weighs_its_users_and_not_its_domain(world: World):
    boss = await world.user("boss", role=Role.DOMAIN_ADMIN)
    await world.user("ada")
    assert (await world.client.put("/api/shares/user/ada", json={"weight": 50}, headers=boss)).status_code == 204
    refused = await world.client.put("/api/shares/domain/default", json={"weight": 200}, headers=boss)
    assert refused.status_code == 403
    actions = (await world.client.get("/api/actions", headers=await world.admin())).json()["actions"]
    assert [(each["noun"], each["object"], each["after"]) for each in actions if each["noun"] == "weight"] == [
        ("weight", "user ada", {"weight": 50})
    ]


async def test_occupancy_agrees_over_the_five_axes_and_hides_the_work_of_others(world: World):
    admin, ada, ben = await world.admin(), await world.user("ada"), await world.user("ben")
    await world.add_node("n1")
    for headers in (ada, ada, ben):
        await world.move(await world.submit(headers), TaskStatus.SCHEDULED)

    async def occupied(headers: dict[str, str], **params: str) -> list[tuple[str, str, str, int]]:
        answer = await world.client.get("/api/occupancy", params=params, headers=headers)
        assert answer.status_code == 200, answer.text
        lines = answer.json()["occupancy"]
        return [(line["axis"], line["name"], line["shown"], line["amount"]) for line in lines if line["slot"] == "cpu"]

    everything = await occupied(admin)
    totals = {axis: sum(row[3] for row in everything if row[0] == axis) for axis, *_ in everything}
    assert totals == dict.fromkeys(("keypair", "user", "project", "domain", "node"), 1500)
    assert [row[1:] for row in everything if row[0] == "user"] == [("ada", "1", 1000), ("ben", "0.5", 500)]
    assert await occupied(admin, by="node") == [("node", "n1", "1.5", 1500)]
    assert [row[:3] for row in await occupied(ben) if row[0] != "keypair"] == [
        ("user", "ben", "0.5"),
        ("node", "n1", "1.5"),
    ]
    assert (await world.client.get("/api/occupancy", params={"by": "moon"}, headers=admin)).status_code == 422
