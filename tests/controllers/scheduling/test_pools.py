"""A pool's profile and weights decide from the next pass on."""

from __future__ import annotations

import pytest

from mooring.binding.binder import Binder
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.errors import InvalidInput, NotFound
from mooring.model.policy.pools import Binding, PoolPolicy
from mooring.model.policy.preemption import Preemption, PreemptionMode, VictimScope
from mooring.services.administration.pools import PoolAdmin
from mooring.wire.cluster.pools import PoolChange
from tests.store.harness import Harness


async def test_a_changed_profile_holds_from_the_next_pass_on(harness: Harness):
    await harness.node("big", cpu=64, memory="256Gi")
    await harness.node("small", cpu=4, memory="16Gi")
    loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    admin = PoolAdmin(harness.database)
    try:
        first = await harness.submit("first")
        await loop.once()
        await admin.change("default", PoolChange(profile="pack"))
        second = await harness.submit("second")
        await loop.once()
        await admin.change("default", PoolChange(profile="locality", weights={"resources": 1}))
        third = await harness.submit("third")
        await loop.once()
    finally:
        loop.close()
    placed = [task.node_name for workload in (first, second, third) for task in await harness.tasks(workload)]
    assert placed == ["big", "small", "big"]


async def test_round_robin_continues_after_a_restart(harness: Harness):
    for name in ("a", "b", "c"):
        await harness.node(name, cpu=64, memory="256Gi")
    await PoolAdmin(harness.database).change("default", PoolChange(profile="round_robin"))
    placed: list[str] = []
    for number in range(4):
        loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
        try:
            workload = await harness.submit(f"number-{number}")
            await loop.once()
        finally:
            loop.close()
        placed += [task.node_name for task in await harness.tasks(workload)]
    assert placed == ["a", "b", "c", "a"]


async def test_every_option_of_a_policy_is_stored(harness: Harness):
    asked = PoolChange.model_validate(
        {
            "binding": "two_phase",
            "hold_seconds": 5,
            "fragmentation": True,
            "preemption": {"mode": "terminate", "scope": "project", "min_runtime_seconds": 60},
        }
    )
    await PoolAdmin(harness.database).change("default", asked)
    mirror = Mirror(harness.database)
    await mirror.load()
    rules = Preemption(PreemptionMode.TERMINATE, VictimScope.PROJECT, 60)
    assert mirror.pools["default"].policy == PoolPolicy("auto", None, Binding.TWO_PHASE, 5, True, rules)
    await PoolAdmin(harness.database).change("default", PoolChange.model_validate({"preemption": {"enabled": False}}))
    await mirror.follow()
    assert mirror.pools["default"].policy == PoolPolicy("auto", None, Binding.TWO_PHASE, 5, True, None)


async def test_invalid_input_is_rejected_and_changes_nothing(harness: Harness):
    admin = PoolAdmin(harness.database)
    with pytest.raises(InvalidInput, match="known are auto, balanced"):
        await admin.change("default", PoolChange(profile="nonsense"))
    with pytest.raises(InvalidInput, match="no scorer 'nonsense'"):
        await admin.change("default", PoolChange(weights={"nonsense": 1}))
    with pytest.raises(NotFound):
        await admin.change("nowhere", PoolChange(profile="pack"))
    mirror = Mirror(harness.database)
    await mirror.load()
    assert mirror.pools["default"].policy == PoolPolicy("auto")
