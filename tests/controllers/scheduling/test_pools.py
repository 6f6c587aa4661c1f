"""A pool's profile and weights decide from the next pass on."""

from __future__ import annotations

import pytest

from mooring.binding.binder import Binder
from mooring.controllers.scheduling import SchedulingLoop
from mooring.intake.pools import PoolAdmin
from mooring.mirror.mirror import Mirror
from mooring.model.errors import InvalidInput, NotFound
from mooring.model.pools import Binding, PoolPolicy
from mooring.model.preemption import Preemption, PreemptionMode, VictimScope
from mooring.wire.pools import PoolChange
from tests.store.harbour import Harbour


async def test_a_changed_profile_holds_from_the_next_pass_on(harbour: Harbour):
    await harbour.node("big", cpu=64, memory="256Gi")
    await harbour.node("small", cpu=4, memory="16Gi")
    loop = SchedulingLoop(Mirror(harbour.database), Binder(harbour.database), harbour.office)
    admin = PoolAdmin(harbour.database)
    try:
        first = await harbour.submit("first")
        await loop.once()
        await admin.change("default", PoolChange(profile="pack"))
        second = await harbour.submit("second")
        await loop.once()
        await admin.change("default", PoolChange(profile="locality", weights={"resources": 1}))
        third = await harbour.submit("third")
        await loop.once()
    finally:
        loop.close()
    placed = [task.node_name for workload in (first, second, third) for task in await harbour.tasks(workload)]
    assert placed == ["big", "small", "big"]


async def test_round_robin_goes_on_after_a_restart(harbour: Harbour):
    for name in ("a", "b", "c"):
        await harbour.node(name, cpu=64, memory="256Gi")
    await PoolAdmin(harbour.database).change("default", PoolChange(profile="round_robin"))
    placed: list[str] = []
    for number in range(4):
        loop = SchedulingLoop(Mirror(harbour.database), Binder(harbour.database), harbour.office)
        try:
            workload = await harbour.submit(f"number-{number}")
            await loop.once()
        finally:
            loop.close()
        placed += [task.node_name for task in await harbour.tasks(workload)]
    assert placed == ["a", "b", "c", "a"]


async def test_every_option_of_a_policy_is_kept(harbour: Harbour):
    asked = PoolChange.model_validate(
        {
            "binding": "two_phase",
            "hold_seconds": 5,
            "fragmentation": True,
            "preemption": {"mode": "terminate", "scope": "project", "min_runtime_seconds": 60},
        }
    )
    await PoolAdmin(harbour.database).change("default", asked)
    mirror = Mirror(harbour.database)
    await mirror.load()
    rules = Preemption(PreemptionMode.TERMINATE, VictimScope.PROJECT, 60)
    assert mirror.pools["default"].policy == PoolPolicy("locality", None, Binding.TWO_PHASE, 5, True, rules)
    await PoolAdmin(harbour.database).change("default", PoolChange.model_validate({"preemption": {"enabled": False}}))
    await mirror.follow()
    assert mirror.pools["default"].policy == PoolPolicy("locality", None, Binding.TWO_PHASE, 5, True, None)


async def test_what_cannot_be_meant_is_refused_and_changes_nothing(harbour: Harbour):
    admin = PoolAdmin(harbour.database)
    with pytest.raises(InvalidInput, match="known are balanced"):
        await admin.change("default", PoolChange(profile="nonsense"))
    with pytest.raises(InvalidInput, match="no scorer 'nonsense'"):
        await admin.change("default", PoolChange(weights={"nonsense": 1}))
    with pytest.raises(NotFound):
        await admin.change("nowhere", PoolChange(profile="pack"))
    mirror = Mirror(harbour.database)
    await mirror.load()
    assert mirror.pools["default"].policy == PoolPolicy("locality")
