"""The profile of a pool that chooses none follows the devices of its nodes."""

from __future__ import annotations

from sqlalchemy import update

from mooring.api.serializers import pool_view
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.scheduling.plugins.profiles import Registry
from mooring.store.tables import node_resources, nodes, pools
from mooring.store.views.nodes import pool_by_name
from tests.store.harness import Harness


async def shown(harness: Harness) -> tuple[str, str]:
    """Return the profile of the pool as chosen, and the one that applies."""
    async with harness.database.read() as connection:
        row = await pool_by_name(connection, "default")
    assert row is not None
    view = pool_view(row)
    return view.profile, view.effective_profile


async def used(harness: Harness) -> str:
    mirror = Mirror(harness.database)
    await mirror.load()
    return Schedulers(mirror, Registry(), compiled=False).of(mirror.pools["default"]).profile.name


async def test_pool_without_a_chosen_profile_places_by_expected_fill_while_it_has_devices(harness: Harness):
    await harness.database.write(lambda c: c.execute(update(pools).values(profile="auto")))
    await harness.node("plain")
    assert (await shown(harness), await used(harness)) == (("auto", "locality"), "locality")
    node_id = await harness.node("accelerated", slots={"gpu": 4})
    assert (await shown(harness), await used(harness)) == (("auto", "gpu"), "gpu")
    own = node_resources.c.node_id == node_id
    await harness.database.write(lambda c: c.execute(update(node_resources).where(own).values(allocatable=0)))
    raised = nodes.c.generation + 1
    await harness.database.write(lambda c: c.execute(update(nodes).values(generation=raised)))
    assert (await shown(harness), await used(harness)) == (("auto", "locality"), "locality")


async def test_chosen_profile_applies_whatever_the_nodes_have(harness: Harness):
    await harness.database.write(lambda c: c.execute(update(pools).values(profile="spread")))
    await harness.node("accelerated", slots={"gpu": 4})
    assert (await shown(harness), await used(harness)) == (("spread", "spread"), "spread")


async def test_running_server_changes_the_profile_when_the_first_device_joins(harness: Harness):
    await harness.database.write(lambda c: c.execute(update(pools).values(profile="auto")))
    await harness.node("plain")
    mirror = Mirror(harness.database)
    await mirror.load()
    schedulers = Schedulers(mirror, Registry(), compiled=False)
    before = schedulers.of(mirror.pools["default"])
    await harness.node("accelerated", slots={"gpu": 4})
    await mirror.follow()
    after = schedulers.of(mirror.pools["default"])
    assert (before.profile.name, after.profile.name) == ("locality", "gpu")
    assert schedulers.of(mirror.pools["default"]) is after
