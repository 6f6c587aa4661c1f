"""An event tells when a workload starts to wait and when the reason changes, not when only the amounts do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from mooring.binding.binder import Binder
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.services.administration.pools import PoolAdmin
from tests.store.harness import Harness


@pytest.fixture
async def loop(harness: Harness) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    yield loop
    loop.lose()
    loop.close()


async def received(harness: Harness, workload_id: UUID) -> list[dict[str, Any]]:
    return [row.details for row in await harness.feed(workload_id) if row.kind == "unschedulable"]


async def test_a_new_reason_is_an_event_and_the_same_reason_with_other_amounts_is_not(
    harness: Harness, loop: SchedulingLoop
):
    await harness.node("n", cpu=2)
    work = await harness.submit("work", cpu=4)
    await loop.once()
    first = await received(harness, work)
    assert len(first) == 1
    assert first[0]["code"] == (await harness.workload(work)).reason["code"]
    assert "4" in first[0]["message"]
    message = (await harness.workload(work)).reason["message"]
    await harness.node("m", cpu=3)
    await loop.once()
    assert (await harness.workload(work)).reason["message"] != message
    assert await received(harness, work) == first
    await PoolAdmin(harness.database).pause("default", "new cables")
    await loop.once()
    codes = [each["code"] for each in await received(harness, work)]
    assert len(codes) == 2
    assert codes[1] == (await harness.workload(work)).reason["code"] != codes[0]


async def test_a_leader_that_takes_over_does_not_announce_known_reasons_again(harness: Harness, loop: SchedulingLoop):
    await harness.node("n", cpu=2)
    work = await harness.submit("work", cpu=4)
    await loop.once()
    other = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    try:
        await other.take_over()
        await other.once()
    finally:
        other.lose()
        other.close()
    assert len(await received(harness, work)) == 1
