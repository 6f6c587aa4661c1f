"""When a workload starts, how long it takes and how often it is tried: read from requests, stored, and extended."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from mooring.clock import now
from mooring.intake.intake import Intake
from mooring.model.dependencies import Condition, Dependency, Fate
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.policies import Policy
from mooring.model.tenants import Principal, Role
from mooring.model.workloads import Workload
from mooring.store import keypairs, policies, tenants, users
from mooring.store import workloads as store
from mooring.store.actions import SERVER
from mooring.store.engine import Connection
from mooring.store.tables import dependencies
from mooring.wire.api import WorkloadRequest
from mooring.wire.sessions import ExtendRequest
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

T = TaskStatus


def body(name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "containers": [{"command": ["true"], "resources": {"cpu": 1}}], **more}


def after(workload: str, condition: str = "after-ok") -> dict[str, str]:
    return {"workload": workload, "condition": condition}


async def submit(harbour: Harbour, name: str | None = None, **more: Any) -> Any:
    request = WorkloadRequest.model_validate(body(name, **more))
    return (await Intake(harbour.database).submit(harbour.principal, request)).id


async def waiting(harbour: Harbour) -> dict[str, Workload]:
    async with harbour.database.read() as connection:
        return {workload.name: workload for workload in await store.waiting(connection)}


async def test_the_terms_are_written_and_seen_by_placement(harbour: Harbour):
    await submit(
        harbour,
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
    found = (await waiting(harbour))["sweep"]
    row = await harbour.workload(found.id)
    assert (row.warning_signal, row.warning_seconds, row.array) == ("USR1", 300, {"first": 1, "step": 2})
    assert (row.max_retries, row.retry_on, row.on_dependency_failure) == (3, [1, 75], "wait")
    assert (found.private, found.type, found.access_key) == (True, "batch", harbour.principal.access_key)
    assert (found.time_limit_seconds, found.parallel, len(found.tasks)) == (129_600, 2, 5)
    assert found.starts_at == datetime(2026, 5, 1, 10, tzinfo=UTC)
    await submit(harbour, "plain")
    plain = (await waiting(harbour))["plain"]
    assert (plain.private, plain.starts_at, plain.parallel) == (False, None, None)
    assert (plain.dependencies, plain.behind) == ((), ())
    assert await harbour.findings() == []


@on_sqlite
async def test_a_session_that_ends_when_idle_may_ask_for_a_signal_without_a_time_limit(harbour: Harbour):
    row = await harbour.workload(await submit(harbour, "notebook", idle_timeout="1h30m", signal="USR1"))
    assert (row.idle_timeout_seconds, row.warning_signal, row.time_limit_seconds) == (5400, "USR1", None)
    assert (await harbour.workload(await submit(harbour, "plain"))).idle_timeout_seconds is None


async def test_dependencies_are_found_by_name_and_id_and_read_with_their_status(harbour: Harbour):
    await harbour.node("n1")
    first = await submit(harbour, "first")
    [task] = await harbour.run(first)
    await harbour.move(task, T.SUCCEEDED)
    second = await submit(harbour, "second")
    await submit(harbour, "third", dependencies=[after("first"), after(str(second), "after-fail")])
    needs = (await waiting(harbour))["third"].dependencies
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
async def test_a_dependency_that_cannot_be_meant_writes_nothing(harbour: Harbour, asked: list[Any], code: str):
    await submit(harbour, "there")
    with pytest.raises(InvalidInput) as refused:
        await submit(harbour, "me", dependencies=asked)
    assert refused.value.code == code
    assert [*await waiting(harbour)] == ["there"]


@on_sqlite
async def test_the_work_of_others_cannot_be_depended_on(harbour: Harbour):
    mine = await submit(harbour, "mine")
    other = await _another_user(harbour)
    for reference in ("mine", str(mine)):
        request = WorkloadRequest.model_validate(body("theirs", dependencies=[after(reference)]))
        with pytest.raises(InvalidInput, match="there is no workload"):
            await Intake(harbour.database).submit(other, request)


async def _another_user(harbour: Harbour) -> Principal:
    async def work(connection: Connection) -> Principal:
        mine = harbour.principal
        user_id = await users.create(
            connection,
            username="other",
            role=Role.USER,
            domain_id=mine.domain_id,
            project=tenants.DEFAULT_PROJECT,
            password_hash=None,
            now=now(),
        )
        standing = await tenants.standing(connection, user_id)
        assert standing is not None
        return standing.principal

    return await harbour.database.write(work)


async def batch(harbour: Harbour, *requests: dict[str, Any]) -> dict[str, str]:
    """What became of each by its name: accepted, or the code of the error."""
    answer = await Intake(harbour.database).submit_batch(harbour.principal, requests)
    named = zip(requests, answer.workloads, strict=True)
    return {request["name"]: item.error.code if item.error else "accepted" for request, item in named}


async def test_workloads_of_a_batch_depend_on_each_other_by_name(harbour: Harbour):
    await submit(harbour, "taken")
    found = await batch(
        harbour,
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
    assert {need.name for need in (await waiting(harbour))["last"].dependencies} == {"middle", "first"}
    assert len(await harbour.rows(select(dependencies))) == 3


@on_sqlite
async def test_a_circle_is_told_in_the_order_of_waiting(harbour: Harbour):
    requests = [body(name, dependencies=[after(other)]) for name, other in ("ab", "bc", "ca")]
    answer = await Intake(harbour.database).submit_batch(harbour.principal, requests)
    told = {item.error.message.split(": ")[1] for item in answer.workloads if item.error}
    assert told <= {"a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"}
    assert (answer.refused, len(told)) == (3, 1)


async def test_singletons_stand_in_line_behind_the_one_before(harbour: Harbour):
    ids = [await submit(harbour, f"w{number}", singleton="turn") for number in range(3)]
    await submit(harbour, "apart", singleton="other")
    found = await waiting(harbour)
    assert [found[name].behind for name in ("w0", "w1", "w2", "apart")] == [(), (ids[0],), (ids[1],), ()]
    await Intake(harbour.database).remove(harbour.principal, ids[1])
    assert (await waiting(harbour))["w2"].behind == (ids[0],)


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
async def test_what_could_have_no_effect_is_refused(harbour: Harbour, request_body: dict[str, Any], code: str):
    with pytest.raises((InvalidInput, NotFound)) as refused:
        await submit(harbour, "w", **request_body)
    assert refused.value.code == code


@on_sqlite
@pytest.mark.parametrize("starts_at", [5, "2026-05-01T12:00:00", "tomorrow"])
async def test_a_start_needs_a_time_with_its_zone(harbour: Harbour, starts_at: object):
    found = await batch(harbour, body("w", starts_at=starts_at))
    assert found == {"w": "invalid-input"}


async def test_a_running_session_is_extended_from_its_start(harbour: Harbour):
    await harbour.node("n1")
    job = await submit(harbour, "job", time="30m")
    [task] = await harbour.run(job)
    before = await harbour.workload(job)
    intake = Intake(harbour.database)
    await intake.extend(harbour.principal, job, ExtendRequest(by="30m"))
    row = await harbour.workload(job)
    [own] = await harbour.tasks(job)
    assert (row.time_limit_seconds, row.version) == (3600, before.version + 1)
    assert own.deadline_at == own.started_at + timedelta(hours=1)
    assert (await harbour.history(job))[-1].reason == "Time limit set to 1h"
    assert [e.kind for e in await harbour.feed(job)][-1] == "extended"
    await intake.extend(harbour.principal, job, ExtendRequest(time="1h"))
    assert (await harbour.workload(job)).version == row.version
    await harbour.move(task, T.SUCCEEDED)
    with pytest.raises(Conflict) as refused:
        await intake.extend(harbour.principal, job, ExtendRequest(time="2h"))
    assert refused.value.code == "already-ended"
    assert await harbour.findings() == []


@on_sqlite
async def test_a_time_limit_grows_up_to_what_is_allowed_and_for_an_admin_beyond(
    harbour: Harbour,
):
    intake = Intake(harbour.database)
    job = await submit(harbour, "job", time="30m")

    async def limit(connection: Connection) -> None:
        await policies.create(connection, "an-hour", Policy(max_time_seconds=3600), actor=SERVER, now=now())
        key = harbour.principal.access_key
        await keypairs.change(connection, key, policy="an-hour", actor=SERVER, now=now())

    await harbour.database.write(limit)
    # It is the work's keypair that counts, not one that its owner comes with.
    user = replace(harbour.principal, role=Role.USER, access_key="")
    await intake.extend(user, job, ExtendRequest(by="30m"))
    with pytest.raises(InvalidInput, match="1h1s is above the 1h") as refused:
        await intake.extend(user, job, ExtendRequest(by=1))
    assert refused.value.code == "time-limit-too-long"
    await intake.extend(harbour.principal, job, ExtendRequest(by=1))
    assert (await harbour.workload(job)).time_limit_seconds == 3601


@on_sqlite
async def test_only_a_time_limit_that_is_there_can_be_longer(harbour: Harbour):
    intake = Intake(harbour.database)
    job = await submit(harbour, "job", time="30m")
    user = harbour.principal
    for wrong in (ExtendRequest(), ExtendRequest(time=60, by=60)):
        with pytest.raises(InvalidInput):
            await intake.extend(user, job, wrong)
    unlimited = await submit(harbour, "unlimited")
    with pytest.raises(InvalidInput) as refused:
        await intake.extend(user, unlimited, ExtendRequest(by=60))
    assert refused.value.code == "no-time-limit"
    service = await submit(harbour, "service", kind="deployment")
    with pytest.raises(Conflict):
        await intake.extend(user, service, ExtendRequest(time=60))
