"""How admission looks at workloads in the loop, and what wakes those whom it keeps waiting."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from mooring.binding import binder
from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers import scheduling
from mooring.controllers.scheduling import SchedulingLoop
from mooring.mirror import mirror
from mooring.mirror.mirror import Mirror
from mooring.model.policies import parse_policy
from mooring.model.quotas import Scope, Tenant
from mooring.store import policies
from tests.mirror.test_admission import limit
from tests.store.harbour import Harbour
from tests.store.tenancy import ACTOR
from tests.store.test_admission import give_policy


@pytest.fixture
async def loop(harbour: Harbour) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harbour.database), Binder(harbour.database), harbour.office)
    yield loop
    loop.close()


async def test_the_record_of_a_look_is_overwritten_by_the_next(harbour: Harbour, loop: SchedulingLoop):
    project = Tenant(Scope.PROJECT, str(harbour.principal.project_id))
    await harbour.node("n1")
    await limit(harbour, project, {"cpu": 1000, "sessions": 0})
    workload_id = await harbour.submit("w", cpu=2)
    await loop.once()
    refused = (await harbour.workload(workload_id)).admission
    assert [failed["by"] for failed in refused["failed"]] == ["concurrency", "group_resource_limit"]
    assert refused["failed"][1]["details"]["violations"][0]["excess"] == 1000
    assert "user_resource_limit" in refused["passed"]

    await limit(harbour, project, {"cpu": 2000, "sessions": 1})
    await loop.once()
    assert await harbour.statuses(workload_id) == ["SCHEDULED"]
    passed = (await harbour.workload(workload_id)).admission
    assert passed["failed"] == []
    assert {"concurrency", "group_resource_limit"} <= set(passed["passed"])
    assert passed["at"] > refused["at"]


async def test_the_loop_wakes_when_an_override_ends(
    harbour: Harbour, loop: SchedulingLoop, monkeypatch: pytest.MonkeyPatch
):
    until = now() + timedelta(minutes=1)
    await harbour.node("n1")
    await limit(harbour, Tenant(Scope.USER, str(harbour.principal.user_id)), {"cpu": 0}, until)
    workload_id = await harbour.submit("w", cpu=2)
    await loop.once()
    await loop.once()
    assert await harbour.statuses(workload_id) == ["PENDING"]
    assert 50 < loop.wait_seconds(3600) <= 60

    for module in (binder, mirror, scheduling):
        monkeypatch.setattr(module, "now", lambda: until)
    await loop.once()
    assert await harbour.statuses(workload_id) == ["SCHEDULED"]
    assert loop.wait_seconds(3600) == 3600


async def test_who_waits_for_less_to_wait_is_woken(harbour: Harbour, loop: SchedulingLoop):
    await harbour.set_options(validators=[["pending_session_count_limit", ["scheduling"]]])
    await give_policy(harbour, "user", {"max_pending": 1})
    await harbour.node("n1")
    tomorrow = now() + timedelta(days=1)
    later = await harbour.set(await harbour.submit("later", cpu=2), starts_at=tomorrow)
    first = await harbour.submit("first", cpu=2)
    await loop.once()
    assert await harbour.statuses(first) == ["PENDING"]
    await harbour.stop(later)
    await loop.once()
    assert await harbour.statuses(first) == ["SCHEDULED"]

    await harbour.set(await harbour.submit("later too", cpu=2), starts_at=tomorrow)
    second = await harbour.submit("second", cpu=2)
    await loop.once()
    assert await harbour.statuses(second) == ["PENDING"]
    more = parse_policy({"max_pending": 2})
    await harbour.database.write(lambda c: policies.change(c, "of-user", more, actor=ACTOR, now=now()))
    await loop.once()
    assert await harbour.statuses(second) == ["SCHEDULED"]
