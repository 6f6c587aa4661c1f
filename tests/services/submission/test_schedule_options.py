"""Schedule options: start, time limit and retries, read from requests, stored, and extended."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from mooring.clock import now
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.tenancy.policies import Policy
from mooring.model.tenancy.tenants import Principal, Role
from mooring.model.workloads.dependencies import Condition, Dependency, Fate
from mooring.model.workloads.workload import Workload
from mooring.services.submission.submission import SubmissionService
from mooring.store.core.engine import Connection
from mooring.store.tables import dependencies
from mooring.store.tenancy import (
    keypairs,
    policies,
    tenants,
    users,
)
from mooring.store.tenancy.admin_actions import SERVER
from mooring.store.workloads import pending
from mooring.wire.workloads.sessions import ExtendRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus


def body(name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "containers": [{"command": ["true"], "resources": {"cpu": 1}}], **more}


def after(workload: str, condition: str = "after-ok") -> dict[str, str]:
    return {"workload": workload, "condition": condition}


async def submit(harness: Harness, name: str | None = None, **more: Any) -> Any:
    request = WorkloadRequest.model_validate(body(name, **more))
    return (await SubmissionService(harness.database).submit(harness.principal, request)).id


async def waiting(harness: Harness) -> dict[str, Workload]:
    async with harness.database.read() as connection:
        return {workload.name: workload for workload in await pending.waiting(connection)}


async def test_the_terms_are_written_and_seen_by_placement(harness: Harness):
    await submit(
        harness,
        "sweep",
        private=True,
        starts_at="2026-05-01T12:00:00+02:00",
        time="1-12:00:00",
        signal="USR1@300",
        array="1-9:2%2",
        retries=3,
        retry_on=[75, 1, 75],
        singleton="turn",
        on_dependency_failure="wait",
    )
    found = (await waiting(harness))["sweep"]
    row = await harness.workload(found.id)
    assert (row.warning_signal, row.warning_seconds, row.array) == ("USR1", 300, {"first": 1, "step": 2})
    assert (row.max_retries, row.retry_on, row.on_dependency_failure) == (3, [1, 75], "wait")
    assert (found.private, found.type, found.access_key) == (True, "batch", harness.principal.access_key)
    assert (found.time_limit_seconds, found.parallel, len(found.tasks)) == (129_600, 2, 5)
    assert found.starts_at == datetime(2026, 5, 1, 10, tzinfo=UTC)
    await submit(harness, "plain")
    plain = (await waiting(harness))["plain"]
    assert (plain.private, plain.starts_at, plain.parallel) == (False, None, None)
    assert (plain.dependencies, plain.behind) == ((), ())
    assert await harness.findings() == []


@on_sqlite
async def test_a_session_that_ends_when_idle_may_ask_for_a_signal_without_a_time_limit(harness: Harness):
    row = await harness.workload(await submit(harness, "notebook", idle_timeout="1h30m", signal="USR1"))
    assert (row.idle_timeout_seconds, row.warning_signal, row.time_limit_seconds) == (5400, "USR1", None)
    assert (await harness.workload(await submit(harness, "plain"))).idle_timeout_seconds is None


async def test_dependencies_are_found_by_name_and_id_and_read_with_their_status(harness: Harness):
    await harness.node("n1")
    first = await submit(harness, "first")
    [task] = await harness.run(first)
    await harness.move(task, T.SUCCEEDED)
    second = await submit(harness, "second")
    await submit(harness, "third", dependencies=[after("first"), after(str(second), "after-fail")])
    needs = (await waiting(harness))["third"].dependencies
    assert needs == (
        Dependency(first, "first", Condition.AFTER_OK, WorkloadStatus.SUCCEEDED),
        Dependency(second, "second", Condition.AFTER_FAIL, WorkloadStatus.PENDING),
    )
    assert [need.fate for need in needs] == [Fate.MET, Fate.OPEN]


@on_sqlite
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ([after("nobody")], "unknown-dependency"),
        ([after("00000000-0000-7000-8000-000000000001")], "unknown-dependency"),
        ([after("me")], "dependency-cycle"),
        ([after("there"), after("there", "after-any")], "invalid-dependency"),
    ],
)
async def test_an_invalid_dependency_writes_nothing(harness: Harness, asked: list[Any], code: str):
    await submit(harness, "there")
    with pytest.raises(InvalidInput) as refused:
        await submit(harness, "me", dependencies=asked)
    assert refused.value.code == code
    assert [*await waiting(harness)] == ["there"]


@on_sqlite
async def test_the_work_of_others_cannot_be_depended_on(harness: Harness):
    mine = await submit(harness, "mine")
    other = await _another_user(harness)
    for reference in ("mine", str(mine)):
        request = WorkloadRequest.model_validate(body("theirs", dependencies=[after(reference)]))
        with pytest.raises(InvalidInput, match="there is no workload"):
            await SubmissionService(harness.database).submit(other, request)


async def _another_user(harness: Harness) -> Principal:
    async def work(connection: Connection) -> Principal:
        mine = harness.principal
        user_id = await users.create(
            connection,
            username="other",
            role=Role.USER,
            domain_id=mine.domain_id,
            project=tenants.DEFAULT_PROJECT,
            password_hash=None,
            now=now(),
        )
        account = await tenants.account(connection, user_id)
        assert account is not None
        return account.principal

    return await harness.database.write(work)


async def batch(harness: Harness, *requests: dict[str, Any]) -> dict[str, str]:
    """Return the outcome of each by name: accepted, or the code of the error."""
    answer = await SubmissionService(harness.database).submit_batch(harness.principal, requests)
    named = zip(requests, answer.workloads, strict=True)
    return {request["name"]: item.error.code if item.error else "accepted" for request, item in named}


async def test_workloads_of_a_batch_depend_on_each_other_by_name(harness: Harness):
    await submit(harness, "taken")
    found = await batch(
        harness,
        body("last", dependencies=[after("middle"), after("first", "after-any")]),
        body("middle", dependencies=[after("first")]),
        body("first"),
        body("a", dependencies=[after("b")]),
        body("b", dependencies=[after("a")]),
        body("behind-the-circle", dependencies=[after("a")]),
        body("taken"),
        body("behind-the-taken", dependencies=[after("taken")]),
        body("further-behind", dependencies=[after("behind-the-taken")]),
        body("wrong", pool="nowhere"),
        body("behind-the-wrong", dependencies=[after("wrong")]),
    )
    assert found == {
        "last": "accepted",
        "middle": "accepted",
        "first": "accepted",
        "a": "dependency-cycle",
        "b": "dependency-cycle",
        "behind-the-circle": "dependency-refused",
        "taken": "name-taken",
        "behind-the-taken": "dependency-refused",
        "further-behind": "dependency-refused",
        "wrong": "unknown-pool",
        "behind-the-wrong": "unknown-dependency",
    }
    assert {need.name for need in (await waiting(harness))["last"].dependencies} == {"middle", "first"}
    assert len(await harness.rows(select(dependencies))) == 3


@on_sqlite
async def test_a_dependency_cycle_is_reported_in_order(harness: Harness):
    requests = [body(name, dependencies=[after(other)]) for name, other in ("ab", "bc", "ca")]
    answer = await SubmissionService(harness.database).submit_batch(harness.principal, requests)
    received = {item.error.message.split(": ")[1] for item in answer.workloads if item.error}
    assert received <= {"a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"}
    assert (answer.refused, len(received)) == (3, 1)


async def test_singletons_wait_for_the_previous_one(harness: Harness):
    ids = [await submit(harness, f"w{number}", singleton="turn") for number in range(3)]
    await submit(harness, "apart", singleton="other")
    found = await waiting(harness)
    assert [found[name].behind for name in ("w0", "w1", "w2", "apart")] == [(), (ids[0],), (ids[1],), ()]
    await SubmissionService(harness.database).remove(harness.principal, ids[1])
    assert (await waiting(harness))["w2"].behind == (ids[0],)


@on_sqlite
@pytest.mark.parametrize(
    ("request_body", "code"),
    [
        ({"kind": "deployment", "time": 60}, "not-for-deployments"),
        ({"kind": "deployment", "idle_timeout": "1h"}, "not-for-deployments"),
        ({"idle_timeout": 59}, "invalid-duration"),
        ({"kind": "deployment", "array": "0-1"}, "not-for-deployments"),
        ({"kind": "deployment", "retries": 1}, "not-for-deployments"),
        ({"retry_on": [1]}, "invalid-retry"),
        ({"array": "0-1", "replicas": 2}, "invalid-array"),
        ({"array": "0-1", "gang": True}, "invalid-array"),
        ({"array": "0-1", "on_insufficient": "fail"}, "invalid-array"),
        ({"array": "0-100000"}, "array-too-large"),
        ({"time": "soon"}, "invalid-duration"),
        ({"project": "nowhere"}, "not-found"),
    ],
)
async def test_fields_without_effect_are_refused(harness: Harness, request_body: dict[str, Any], code: str):
    with pytest.raises((InvalidInput, NotFound)) as refused:
        await submit(harness, "w", **request_body)
    assert refused.value.code == code


@on_sqlite
@pytest.mark.parametrize("starts_at", [5, "2026-05-01T12:00:00", "tomorrow"])
async def test_a_start_needs_a_time_with_its_zone(harness: Harness, starts_at: object):
    found = await batch(harness, body("w", starts_at=starts_at))
    assert found == {"w": "invalid-input"}


async def test_a_running_session_is_extended_from_its_start(harness: Harness):
    await harness.node("n1")
    job = await submit(harness, "job", time="30m")
    [task] = await harness.run(job)
    before = await harness.workload(job)
    submissions = SubmissionService(harness.database)
    await submissions.extend(harness.principal, job, ExtendRequest(by="30m"))
    row = await harness.workload(job)
    [own] = await harness.tasks(job)
    assert (row.time_limit_seconds, row.version) == (3600, before.version + 1)
    assert own.deadline_at == own.started_at + timedelta(hours=1)
    assert (await harness.history(job))[-1].reason == "Time limit set to 1h"
    assert [e.kind for e in await harness.feed(job)][-1] == "extended"
    await submissions.extend(harness.principal, job, ExtendRequest(time="1h"))
    assert (await harness.workload(job)).version == row.version
    await harness.move(task, T.SUCCEEDED)
    with pytest.raises(Conflict) as refused:
        await submissions.extend(harness.principal, job, ExtendRequest(time="2h"))
    assert refused.value.code == "already-ended"
    assert await harness.findings() == []


@on_sqlite
async def test_a_time_limit_grows_up_to_what_is_allowed_and_for_an_admin_beyond(
    harness: Harness,
):
    submissions = SubmissionService(harness.database)
    job = await submit(harness, "job", time="30m")

    async def limit(connection: Connection) -> None:
        await policies.create(connection, "an-hour", Policy(max_time_seconds=3600), actor=SERVER, now=now())
        key = harness.principal.access_key
        await keypairs.change(connection, key, policy="an-hour", actor=SERVER, now=now())

    await harness.database.write(limit)
    # It is the work's keypair that counts, not one that its owner comes with.
    user = replace(harness.principal, role=Role.USER, access_key="")
    await submissions.extend(user, job, ExtendRequest(by="30m"))
    with pytest.raises(InvalidInput, match="1h1s exceeds the maximum of 1h") as refused:
        await submissions.extend(user, job, ExtendRequest(by=1))
    assert refused.value.code == "time-limit-too-long"
    await submissions.extend(harness.principal, job, ExtendRequest(by=1))
    assert (await harness.workload(job)).time_limit_seconds == 3601


@on_sqlite
async def test_only_a_time_limit_that_is_there_can_be_longer(harness: Harness):
    submissions = SubmissionService(harness.database)
    job = await submit(harness, "job", time="30m")
    user = harness.principal
    for wrong in (ExtendRequest(), ExtendRequest(time=60, by=60)):
        with pytest.raises(InvalidInput):
            await submissions.extend(user, job, wrong)
    unlimited = await submit(harness, "unlimited")
    with pytest.raises(InvalidInput) as refused:
        await submissions.extend(user, unlimited, ExtendRequest(by=60))
    assert refused.value.code == "no-time-limit"
    service = await submit(harness, "service", kind="deployment")
    with pytest.raises(Conflict):
        await submissions.extend(user, service, ExtendRequest(time=60))
