"""The tenants of admission follow the feed, like the rest of the mirror."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.mirror import mirror as mirror_module
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Moment, PoolPolicy
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, Admission, Rejection
from mooring.store.core.engine import Connection
from mooring.store.tenancy import quotas
from tests.store.databases import on_sqlite
from tests.store.harness import Harness
from tests.store.tenancy.test_pending_counts import give_policy


def user(harness: Harness) -> Tenant:
    return Tenant(Scope.USER, str(harness.principal.user_id))


async def limit(
    harness: Harness, tenant: Tenant, limits: Mapping[str, int | None], until: datetime | None = None
) -> None:
    async def work(connection: Connection) -> None:
        found = await quotas.find(connection, tenant.scope, tenant.id)
        await quotas.set_quota(connection, found, quotas.QuotaChange(limits=limits, until=until), now())

    await harness.database.write(work)


def admission(mirror: Mirror, **policies: PoolPolicy) -> Admission:
    return mirror.tenancy.admission(mirror.queue.values(), policies, BUILT_IN_VALIDATORS, now())


def refusal(mirror: Mirror, workload_id: UUID) -> str | None:
    answer = admission(mirror).admit(mirror.queue[workload_id])
    return answer.reason.message if isinstance(answer, Rejection) else None


async def test_use_and_limits_are_known_and_followed(harness: Harness):
    await harness.node("n1", cpu=8)
    await limit(harness, user(harness), {"cpu": 3000})
    first = await harness.submit("first", cpu=2)
    mirror = Mirror(harness.database)
    await mirror.load()
    await harness.place()
    second = await harness.submit("second", cpu=2)
    await mirror.follow()
    assert mirror.tenancy.usage.used_by(user(harness))["cpu"] == 2000
    assert mirror.tenancy.usage.used_in("default", harness.principal.user_id)["cpu"] == 2000
    message = "user 'admin' may use 3 cpu; 2 are in use and this asks for 2 (1 too many)"
    assert refusal(mirror, second) == message

    mirror.tenancy.eased()
    [task] = await harness.tasks(first)
    await harness.move(task, TaskStatus.RUNNING)
    await mirror.follow()
    assert mirror.tenancy.eased() == set()
    await harness.move(task, TaskStatus.SUCCEEDED)
    await mirror.follow()
    assert user(harness) in mirror.tenancy.eased()
    assert refusal(mirror, second) is None

    await mirror.read_again((), {second})
    await limit(harness, user(harness), {"cpu": 1000})
    await mirror.follow()
    assert mirror.tenancy.eased() >= {user(harness)}
    assert refusal(mirror, second) is not None


async def test_charges_of_placements_that_were_not_committed_are_read_again(harness: Harness):
    workload_id = await harness.submit("w", cpu=2)
    await limit(harness, user(harness), {"cpu": 2000})
    mirror = Mirror(harness.database)
    await mirror.load()
    assert refusal(mirror, workload_id) is None
    assert refusal(mirror, workload_id) is not None
    await mirror.read_again((), {workload_id})
    assert refusal(mirror, workload_id) is None


async def test_an_override_ends_without_a_signal(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    workload_id = await harness.submit("w", cpu=2)
    mirror = Mirror(harness.database)
    await mirror.load()
    await mirror.follow()
    assert mirror.tenancy.limits_until is None

    until = now() + timedelta(hours=1)
    await limit(harness, user(harness), {"cpu": 0}, until)
    await mirror.follow()
    assert mirror.tenancy.limits_until == until
    assert refusal(mirror, workload_id) is not None

    mirror.tenancy.eased()
    monkeypatch.setattr(mirror_module, "now", lambda: until)
    await mirror.follow()
    assert mirror.tenancy.eased() == {user(harness)}
    assert mirror.tenancy.limits_until is None
    assert refusal(mirror, workload_id) is None


@on_sqlite
async def test_pending_limits_can_be_asked_in_a_pass_and_count_only_what_is_ahead(harness: Harness):
    await give_policy(harness, "user", {"max_pending": 2})
    ids = [await harness.submit(name) for name in ("a", "b")]
    mirror = Mirror(harness.database)
    await mirror.load()
    policy = PoolPolicy("locality", validators=(("pending_session_count_limit", (Moment.SCHEDULING,)),))
    assert not isinstance(admission(mirror, default=policy).admit(mirror.queue[ids[0]]), Rejection)
    last = await harness.submit("c")
    await mirror.follow()
    assert not isinstance(admission(mirror, default=policy).admit(mirror.queue[ids[1]]), Rejection)
    answer = admission(mirror, default=policy).admit(mirror.queue[last])
    assert isinstance(answer, Rejection)
    assert answer.reason.code == "too-many-pending"
    private = replace(mirror.queue[last], private=True)
    assert not isinstance(admission(mirror, default=policy).admit(private), Rejection)
