"""Submissions: simultaneous ones share a transaction, and a rejected one does not affect the others."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError

from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.tenants import Principal, Role
from mooring.services.submission import group_commit
from mooring.services.submission.context_loader import ContextLoader
from mooring.services.submission.submission import SubmissionService
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import nodes
from mooring.store.tables import keypairs, users, workloads
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.store.databases import on_sqlite
from tests.store.harness import Harness
from tests.store.tenancy.test_pending_counts import give_policy


def request(name: str | None = None, **more: Any) -> WorkloadRequest:
    return WorkloadRequest.model_validate({"name": name, "containers": [{"command": ["true"]}], **more})


async def outcomes(submissions: SubmissionService, principal: Principal, *requests: WorkloadRequest) -> list[str]:
    """Return the outcomes of concurrent submissions: the name, or the code of the error."""
    found = await asyncio.gather(*(submissions.submit(principal, r) for r in requests), return_exceptions=True)
    return [
        one.code
        if isinstance(one, MooringError)
        else type(one).__name__
        if isinstance(one, BaseException)
        else one.name
        for one in found
    ]


async def count(harness: Harness) -> int:
    return int((await harness.rows(select(func.count()).select_from(workloads)))[0][0])


async def commits(database: Database) -> list[None]:
    received: list[None] = []
    database.on_commit.append(lambda _topics: received.append(None))
    return received


async def test_simultaneous_submissions_share_a_transaction(harness: Harness):
    submissions = SubmissionService(harness.database)
    await submissions.submit(harness.principal, request("first"))
    received = await commits(harness.database)
    names = [f"w{number}" for number in range(50)]
    assert await outcomes(submissions, harness.principal, *map(request, names)) == names
    assert await count(harness) == 51
    # One for the first that arrived, one for those that came meanwhile; a few more where the machine is busy.
    assert len(received) < 25
    assert await harness.findings() == []


@on_sqlite
async def test_concurrent_submissions_read_a_changed_configuration_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    configuration, read = ConfigurationVersion(), list[None]()
    submissions = SubmissionService(harness.database, configuration=configuration)
    await submissions.submit(harness.principal, request("first"))
    refresh = ContextLoader._refresh

    async def noted(self: ContextLoader, connection: Connection) -> Any:
        read.append(None)
        return await refresh(self, connection)

    monkeypatch.setattr(ContextLoader, "_refresh", noted)
    configuration.receive(None)
    names = [f"w{number}" for number in range(8)]
    assert await outcomes(submissions, harness.principal, *map(request, names)) == names
    assert len(read) == 1


@on_sqlite
async def test_changes_that_users_make_to_their_credentials_cause_no_look_at_all_nodes(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    configuration, read = ConfigurationVersion(), list[None]()
    submissions = SubmissionService(harness.database, configuration=configuration)
    harness.database.on_commit.append(configuration.receive)
    user = replace(harness.principal, role=Role.USER)
    await submissions.submit(user, request("first"))
    served_slots = nodes.served_slots

    async def noted(connection: Connection) -> Any:
        read.append(None)
        return await served_slots(connection)

    monkeypatch.setattr(nodes, "served_slots", noted)
    await give_policy(harness, "keypair", {"max_priority": 50})
    assert await outcomes(submissions, user, request("second", priority=60)) == ["priority-too-high"]
    assert len(read) == 1, "an admin made a policy"

    own = keypairs.c.access_key == harness.principal.access_key
    await harness.database.write(lambda c: c.execute(update(keypairs).where(own).values(policy_id=None)))
    assert await outcomes(submissions, user, request("third", priority=60)) == ["third"]
    assert len(read) == 1


@on_sqlite
async def test_more_than_one_batch_is_written_whole(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(group_commit, "_MAX_GROUP_WORKLOADS", 4)
    names = [f"w{number}" for number in range(11)]
    assert await outcomes(SubmissionService(harness.database), harness.principal, *map(request, names)) == names
    assert await count(harness) == 11


async def test_a_name_is_taken_once_in_a_batch_and_against_the_table(harness: Harness):
    submissions = SubmissionService(harness.database)
    await submissions.submit(harness.principal, request("there"))
    found = await outcomes(submissions, harness.principal, *map(request, ("there", "new", "new", "other")))
    assert found == ["name-taken", "new", "name-taken", "other"]
    assert await count(harness) == 3


async def test_a_name_that_another_server_takes_at_the_same_time_is_reported(harness: Harness, migrated_url: str):
    other = Database(migrated_url)
    found = await asyncio.gather(
        outcomes(SubmissionService(harness.database), harness.principal, request("web"), request("mine")),
        outcomes(SubmissionService(other), harness.principal, request("web"), request("theirs")),
    )
    await other.close()
    names = sorted(name for one in found for name in one)
    assert names == ["mine", "name-taken", "theirs", "web"]
    assert await count(harness) == 3


async def test_the_name_of_a_workload_that_ended_is_free(harness: Harness):
    submissions = SubmissionService(harness.database)
    accepted = await submissions.submit(harness.principal, request("web"))
    await submissions.remove(harness.principal, accepted.id)
    assert (await submissions.submit(harness.principal, request("web"))).id != accepted.id


async def test_one_submission_that_the_database_refuses_does_not_hurt_the_batch(harness: Harness):
    """A keypair that was removed between the look at it and the write."""
    gone = replace(harness.principal, access_key="MKGONE", by_keypair=True)
    submissions = SubmissionService(harness.database)
    found = await asyncio.gather(
        submissions.submit(harness.principal, request("a")),
        submissions.submit(gone, request("b")),
        submissions.submit(harness.principal, request("c")),
        return_exceptions=True,
    )
    assert isinstance(found[1], IntegrityError)
    assert [one.name for one in (found[0], found[2]) if not isinstance(one, BaseException)] == ["a", "c"]
    assert await count(harness) == 2


def _tenancy(principal: Principal) -> tuple[UUID, UUID, str]:
    return principal.domain_id, principal.project_id, principal.access_key


@on_sqlite
async def test_a_client_that_went_away_does_not_stop_the_others(harness: Harness):
    submissions = SubmissionService(harness.database)
    await submissions.submit(harness.principal, request("before"))
    impatient = asyncio.create_task(submissions.submit(harness.principal, request("gone")))
    patient = asyncio.create_task(submissions.submit(harness.principal, request("kept")))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).name == "kept"
    # What was written stays written.
    assert await count(harness) == 3


@on_sqlite
async def test_a_refused_request_writes_nothing(harness: Harness):
    received = await commits(harness.database)
    with pytest.raises(InvalidInput):
        await SubmissionService(harness.database).submit(harness.principal, request("w", pool="nowhere"))
    assert received == []


@on_sqlite
async def test_an_answer_says_where_it_went_and_whether_it_is_real(harness: Harness):
    submissions = SubmissionService(harness.database)
    real = await submissions.submit(harness.principal, request("p"))
    assert (real.pool, real.simulated, real.status) == ("default", False, "PENDING")
    image = request("c", containers=[{"image": "nginx"}], pool="simulated")
    simulated = await submissions.submit(harness.principal, image)
    assert (simulated.pool, simulated.simulated) == ("simulated", True)


@on_sqlite
async def test_a_deployment_scaled_to_zero_stays_and_can_be_scaled_up_again(harness: Harness):
    submissions = SubmissionService(harness.database)
    service = await submissions.submit(harness.principal, request("web", kind="deployment", replicas=2))
    await submissions.scale(harness.principal, service.id, 0)
    stopped = await harness.workload(service.id)
    assert (stopped.replicas, stopped.status, stopped.ended_at) == (0, "RUNNING", None)
    assert not [task for task in await harness.tasks(service.id) if task.status == "PENDING"]
    await submissions.scale(harness.principal, service.id, 1)
    assert (await harness.workload(service.id)).status == "PENDING"
    assert len([task for task in await harness.tasks(service.id) if task.status == "PENDING"]) == 1


@on_sqlite
async def test_only_a_living_deployment_can_be_scaled(harness: Harness):
    submissions = SubmissionService(harness.database)
    session = await submissions.submit(harness.principal, request("job"))
    with pytest.raises(Conflict, match="only deployments"):
        await submissions.scale(harness.principal, session.id, 2)
    service = await submissions.submit(harness.principal, request("web", kind="deployment"))
    await submissions.scale(harness.principal, service.id, 3)
    assert len(await harness.tasks(service.id)) == 3
    before = (await harness.workload(service.id)).version
    await submissions.scale(harness.principal, service.id, 3)
    assert (await harness.workload(service.id)).version == before
    await submissions.remove(harness.principal, service.id)
    with pytest.raises(Conflict, match="removed") as refused:
        await submissions.scale(harness.principal, service.id, 1)
    assert refused.value.code == "already-ended"


@on_sqlite
async def test_removing_a_running_workload_records_the_requester(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web")
    [task] = await harness.run(service)
    await SubmissionService(harness.database).remove(harness.principal, service)
    assert await harness.statuses(service) == ["TERMINATING"]
    last = (await harness.history(service))[-1]
    assert (last.new_status, last.actor, last.reason) == (
        "TERMINATING",
        str(harness.principal.user_id),
        "Removed by admin",
    )
    await harness.move(task, TaskStatus.CANCELLED)
    assert (await harness.workload(service)).status == "CANCELLED"


@on_sqlite
async def test_a_name_of_a_tenant_cannot_write_into_the_log(harness: Harness):
    await harness.database.write(lambda c: c.execute(update(users).values(name="x\x1b[31m")))
    evil = Principal(harness.principal.user_id, "x\x1b[31m", harness.principal.role, *_tenancy(harness.principal))
    workload_id = await harness.submit("web")
    await SubmissionService(harness.database).remove(evil, workload_id)
    task = (await harness.tasks(workload_id))[0]
    assert task.reason["message"] == "Removed by x\\x1b[31m"


async def test_a_key_that_two_servers_are_given_at_the_same_time_is_used_once(harness: Harness, migrated_url: str):
    other = Database(migrated_url)
    intakes = [SubmissionService(harness.database), SubmissionService(other)]
    batch = [{"name": name, "containers": [{"command": ["true"]}]} for name in ("a", None)]
    answers = await asyncio.gather(*(i.submit_batch(harness.principal, batch, key="k") for i in intakes * 2))
    await other.close()
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].accepted == 2
    assert await count(harness) == 2


async def test_a_batch_whose_name_another_server_takes_meanwhile_loses_that_name_only(
    harness: Harness, migrated_url: str
):
    other = Database(migrated_url)
    containers = [{"command": ["true"]}]
    batches = [[{"name": name, "containers": containers} for name in ("web", own)] for own in ("mine", "theirs")]
    found = await asyncio.gather(
        SubmissionService(harness.database).submit_batch(harness.principal, batches[0]),
        SubmissionService(other).submit_batch(harness.principal, batches[1]),
    )
    await other.close()
    assert sorted(answer.accepted for answer in found) == [1, 2]
    codes = [item.error.code for answer in found for item in answer.workloads if item.error is not None]
    assert codes == ["name-taken"]
    assert await count(harness) == 3
