"""Admission in the scheduling loop, and the changes that requeue rejected workloads."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from mooring.binding import binder
from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.scheduling import scheduling_loop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror import mirror
from mooring.mirror.mirror import Mirror
from mooring.model.tenancy.policies import parse_policy
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.store.tenancy import policies
from tests.mirror.test_admission import limit
from tests.store.harness import Harness
from tests.store.tenancy.test_pending_counts import give_policy
from tests.store.tenant_builders import ACTOR


@pytest.fixture
async def loop(harness: Harness) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    yield loop
    loop.close()


async def test_the_record_of_a_look_is_overwritten_by_the_next(harness: Harness, loop: SchedulingLoop):
    project = Tenant(Scope.PROJECT, str(harness.principal.project_id))
    await harness.node("n1")
    await limit(harness, project, {"cpu": 1000, "sessions": 0})
    workload_id = await harness.submit("w", cpu=2)
    await loop.once()
    refused = (await harness.workload(workload_id)).admission
    assert [failed["by"] for failed in refused["failed"]] == ["concurrency", "group_resource_limit"]
    assert refused["failed"][1]["details"]["violations"][0]["excess"] == 1000
    assert "user_resource_limit" in refused["passed"]

    await limit(harness, project, {"cpu": 2000, "sessions": 1})
    await loop.once()
    assert await harness.statuses(workload_id) == ["SCHEDULED"]
    passed = (await harness.workload(workload_id)).admission
    assert passed["failed"] == []
    assert {"concurrency", "group_resource_limit"} <= set(passed["passed"])
    assert passed["at"] > refused["at"]


async def test_the_loop_runs_when_an_override_ends(
    harness: Harness, loop: SchedulingLoop, monkeypatch: pytest.MonkeyPatch
):
    until = now() + timedelta(minutes=1)
    await harness.node("n1")
    await limit(harness, Tenant(Scope.USER, str(harness.principal.user_id)), {"cpu": 0}, until)
    workload_id = await harness.submit("w", cpu=2)
    await loop.once()
    await loop.once()
    assert await harness.statuses(workload_id) == ["PENDING"]
    assert 50 < loop.wait_seconds(3600) <= 60

    for module in (binder, mirror, scheduling_loop):
        monkeypatch.setattr(module, "now", lambda: until)
    await loop.once()
    assert await harness.statuses(workload_id) == ["SCHEDULED"]
    assert loop.wait_seconds(3600) == 3600


@pytest.mark.parametrize("sequencer", ["fifo", "lifo"])
@pytest.mark.parametrize("rules", [{"max_pending": 1}, {"max_pending_slots": {"cpu": 2}}])
async def test_all_above_a_lowered_pending_limit_start_one_after_the_other(
    harness: Harness, loop: SchedulingLoop, rules: dict[str, Any], sequencer: str
):
    validators = ("pending_session_count_limit", "pending_session_resource_limit")
    await harness.set_options(sequencer=sequencer, validators=[[name, ["scheduling"]] for name in validators])
    await harness.node("n1", cpu=32)
    four = [await harness.submit(name, cpu=2) for name in ("a", "b", "c", "d")]
    await give_policy(harness, "user", rules)
    for started in range(1, 5):
        await loop.once()
        statuses = [status for workload in four for status in await harness.statuses(workload)]
        assert statuses == ["SCHEDULED"] * started + ["PENDING"] * (4 - started)


async def test_work_over_the_pending_limit_is_requeued_when_less_is_pending(harness: Harness, loop: SchedulingLoop):
    await harness.set_options(validators=[["pending_session_count_limit", ["scheduling"]]])
    await give_policy(harness, "user", {"max_pending": 1})
    await harness.node("n1")
    tomorrow = now() + timedelta(days=1)
    later = await harness.set(await harness.submit("later", cpu=2), starts_at=tomorrow)
    first = await harness.submit("first", cpu=2)
    await loop.once()
    assert await harness.statuses(first) == ["PENDING"]
    await harness.stop(later)
    await loop.once()
    assert await harness.statuses(first) == ["SCHEDULED"]

    await harness.set(await harness.submit("later too", cpu=2), starts_at=tomorrow)
    second = await harness.submit("second", cpu=2)
    await loop.once()
    assert await harness.statuses(second) == ["PENDING"]
    more = parse_policy({"max_pending": 2})
    await harness.database.write(lambda c: policies.change(c, "of-user", more, actor=ACTOR, now=now()))
    await loop.once()
    assert await harness.statuses(second) == ["SCHEDULED"]
