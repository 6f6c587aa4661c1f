"""What admission knows of tenants follows the feed, as the rest of the mirror does."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.mirror import mirror as mirror_module
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import Moment, PoolPolicy
from mooring.model.quotas import Scope, Tenant
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, Admission, Rejection
from mooring.store import quotas
from mooring.store.engine import Connection
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour
from tests.store.test_admission import give_policy


def user(harbour: Harbour) -> Tenant:
    return Tenant(Scope.USER, str(harbour.principal.user_id))


async def limit(
    harbour: Harbour, tenant: Tenant, limits: Mapping[str, int | None], until: datetime | None = None
) -> None:
    async def work(connection: Connection) -> None:
        found = await quotas.find(connection, tenant.scope, tenant.id)
        await quotas.set_quota(connection, found, quotas.QuotaChange(limits=limits, until=until), now())

    await harbour.database.write(work)


def admission(mirror: Mirror, **policies: PoolPolicy) -> Admission:
    return mirror.tenancy.admission(mirror.queue.values(), policies, BUILT_IN_VALIDATORS, now())


def refusal(mirror: Mirror, workload_id: UUID) -> str | None:
    answer = admission(mirror).admit(mirror.queue[workload_id])
    return answer.reason.message if isinstance(answer, Rejection) else None


async def test_use_and_limits_are_known_and_followed(harbour: Harbour):
    await harbour.node("n1", cpu=8)
    await limit(harbour, user(harbour), {"cpu": 3000})
    first = await harbour.submit("first", cpu=2)
    mirror = Mirror(harbour.database)
    await mirror.load()
    await harbour.place()
    second = await harbour.submit("second", cpu=2)
    await mirror.follow()
    assert mirror.tenancy.usage.used_by(user(harbour))["cpu"] == 2000
    assert mirror.tenancy.usage.used_in("default", harbour.principal.user_id)["cpu"] == 2000
    told = "user 'admin' may use 3 cpu; 2 are in use and this asks for 2 (1 too many)"
    assert refusal(mirror, second) == told

    mirror.tenancy.eased()
    [task] = await harbour.tasks(first)
    await harbour.move(task, TaskStatus.RUNNING)
    await mirror.follow()
    assert mirror.tenancy.eased() == set()
    await harbour.move(task, TaskStatus.SUCCEEDED)
    await mirror.follow()
    assert user(harbour) in mirror.tenancy.eased()
    assert refusal(mirror, second) is None

    await mirror.read_again((), {second})
    await limit(harbour, user(harbour), {"cpu": 1000})
    await mirror.follow()
    assert mirror.tenancy.eased() >= {user(harbour)}
    assert refusal(mirror, second) is not None


async def test_what_was_charged_and_did_not_come_true_is_read_again(harbour: Harbour):
    workload_id = await harbour.submit("w", cpu=2)
    await limit(harbour, user(harbour), {"cpu": 2000})
    mirror = Mirror(harbour.database)
    await mirror.load()
    assert refusal(mirror, workload_id) is None
    assert refusal(mirror, workload_id) is not None
    await mirror.read_again((), {workload_id})
    assert refusal(mirror, workload_id) is None


async def test_an_override_ends_though_nothing_tells_of_it(harbour: Harbour, monkeypatch: pytest.MonkeyPatch):
    workload_id = await harbour.submit("w", cpu=2)
    mirror = Mirror(harbour.database)
    await mirror.load()
    await mirror.follow()
    assert mirror.tenancy.limits_until is None

    until = now() + timedelta(hours=1)
    await limit(harbour, user(harbour), {"cpu": 0}, until)
    await mirror.follow()
    assert mirror.tenancy.limits_until == until
    assert refusal(mirror, workload_id) is not None

    mirror.tenancy.eased()
    monkeypatch.setattr(mirror_module, "now", lambda: until)
    await mirror.follow()
    assert mirror.tenancy.eased() == {user(harbour)}
    assert mirror.tenancy.limits_until is None
    assert refusal(mirror, workload_id) is None


@on_sqlite
async def test_pending_limits_can_be_asked_in_a_pass_and_do_not_count_the_workload_itself(harbour: Harbour):
    await give_policy(harbour, "user", {"max_pending": 2})
    ids = [await harbour.submit(name) for name in ("a", "b")]
    mirror = Mirror(harbour.database)
    await mirror.load()
    policy = PoolPolicy("locality", validators=(("pending_session_count_limit", (Moment.SCHEDULING,)),))
    assert not isinstance(admission(mirror, default=policy).admit(mirror.queue[ids[0]]), Rejection)
    await harbour.submit("c")
    await mirror.follow()
    answer = admission(mirror, default=policy).admit(mirror.queue[ids[1]])
    assert isinstance(answer, Rejection)
    assert answer.reason.code == "too-many-pending"
    private = replace(mirror.queue[ids[1]], private=True)
    assert not isinstance(admission(mirror, default=policy).admit(private), Rejection)
