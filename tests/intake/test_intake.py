"""The one way in: submissions are written together, and one that is refused does not hurt the others."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError

from mooring.intake import intake as intake_module
from mooring.intake.intake import Intake
from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenants import Principal
from mooring.store.engine import Database
from mooring.store.tables import users, workloads
from mooring.wire.api import WorkloadRequest
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour


def request(name: str | None = None, **more: Any) -> WorkloadRequest:
    return WorkloadRequest.model_validate({"name": name, "containers": [{"command": ["true"]}], **more})


async def outcomes(intake: Intake, principal: Principal, *requests: WorkloadRequest) -> list[str]:
    """What became of submissions that arrive together: the name, or the code of the error."""
    found = await asyncio.gather(*(intake.submit(principal, r) for r in requests), return_exceptions=True)
    return [
        one.code
        if isinstance(one, MooringError)
        else type(one).__name__
        if isinstance(one, BaseException)
        else one.name
        for one in found
    ]


async def count(harbour: Harbour) -> int:
    return int((await harbour.rows(select(func.count()).select_from(workloads)))[0][0])


async def commits(database: Database) -> list[None]:
    told: list[None] = []
    database.on_commit.append(lambda: told.append(None))
    return told


async def test_submissions_that_arrive_together_are_written_together(harbour: Harbour):
    intake = Intake(harbour.database)
    await intake.submit(harbour.principal, request("first"))
    told = await commits(harbour.database)
    names = [f"w{number}" for number in range(50)]
    assert await outcomes(intake, harbour.principal, *map(request, names)) == names
    assert await count(harbour) == 51
    # One for the first that arrived, one for those that came meanwhile; a few more where the machine is busy.
    assert len(told) < 25
    assert await harbour.findings() == []


@on_sqlite
async def test_more_than_one_batch_is_written_whole(harbour: Harbour, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(intake_module, "_MOST_AT_ONCE", 4)
    names = [f"w{number}" for number in range(11)]
    assert await outcomes(Intake(harbour.database), harbour.principal, *map(request, names)) == names
    assert await count(harbour) == 11


async def test_a_name_is_taken_once_in_a_batch_and_against_the_table(harbour: Harbour):
    intake = Intake(harbour.database)
    await intake.submit(harbour.principal, request("there"))
    found = await outcomes(intake, harbour.principal, *map(request, ("there", "new", "new", "other")))
    assert found == ["name-taken", "new", "name-taken", "other"]
    assert await count(harbour) == 3


async def test_a_name_that_another_server_takes_at_the_same_time_is_told_so(harbour: Harbour, migrated_url: str):
    other = Database(migrated_url)
    found = await asyncio.gather(
        outcomes(Intake(harbour.database), harbour.principal, request("web"), request("mine")),
        outcomes(Intake(other), harbour.principal, request("web"), request("theirs")),
    )
    await other.close()
    names = sorted(name for one in found for name in one)
    assert names == ["mine", "name-taken", "theirs", "web"]
    assert await count(harbour) == 3


async def test_the_name_of_a_workload_that_ended_is_free(harbour: Harbour):
    intake = Intake(harbour.database)
    accepted = await intake.submit(harbour.principal, request("web"))
    await intake.remove(harbour.principal, accepted.id)
    assert (await intake.submit(harbour.principal, request("web"))).id != accepted.id


async def test_one_submission_that_the_database_refuses_does_not_hurt_the_batch(harbour: Harbour):
    """A keypair that was removed between the look at it and the write."""
    gone = replace(harbour.principal, access_key="MKGONE", by_keypair=True)
    intake = Intake(harbour.database)
    found = await asyncio.gather(
        intake.submit(harbour.principal, request("a")),
        intake.submit(gone, request("b")),
        intake.submit(harbour.principal, request("c")),
        return_exceptions=True,
    )
    assert isinstance(found[1], IntegrityError)
    assert [one.name for one in (found[0], found[2]) if not isinstance(one, BaseException)] == ["a", "c"]
    assert await count(harbour) == 2


def _tenancy(principal: Principal) -> tuple[UUID, UUID, str]:
    return principal.domain_id, principal.project_id, principal.access_key


@on_sqlite
async def test_a_client_that_went_away_does_not_stop_the_others(harbour: Harbour):
    intake = Intake(harbour.database)
    await intake.submit(harbour.principal, request("before"))
    impatient = asyncio.create_task(intake.submit(harbour.principal, request("gone")))
    patient = asyncio.create_task(intake.submit(harbour.principal, request("kept")))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).name == "kept"
    # What was written stays written.
    assert await count(harbour) == 3


@on_sqlite
async def test_a_refused_request_writes_nothing(harbour: Harbour):
    told = await commits(harbour.database)
    with pytest.raises(InvalidInput):
        await Intake(harbour.database).submit(harbour.principal, request("w", pool="nowhere"))
    assert told == []


@on_sqlite
async def test_an_answer_says_where_it_went_and_whether_it_is_real(harbour: Harbour):
    intake = Intake(harbour.database)
    real = await intake.submit(harbour.principal, request("p"))
    assert (real.pool, real.simulated, real.status) == ("default", False, "PENDING")
    played = await intake.submit(harbour.principal, request("c", containers=[{"image": "nginx"}]))
    assert (played.pool, played.simulated) == ("simulated", True)
    assert "nothing is really started" in played.message


@on_sqlite
async def test_only_a_living_deployment_can_be_scaled(harbour: Harbour):
    intake = Intake(harbour.database)
    session = await intake.submit(harbour.principal, request("job"))
    with pytest.raises(Conflict, match="only deployments"):
        await intake.scale(harbour.principal, session.id, 2)
    service = await intake.submit(harbour.principal, request("web", kind="deployment"))
    await intake.scale(harbour.principal, service.id, 3)
    assert len(await harbour.tasks(service.id)) == 3
    before = (await harbour.workload(service.id)).version
    await intake.scale(harbour.principal, service.id, 3)
    assert (await harbour.workload(service.id)).version == before
    await intake.remove(harbour.principal, service.id)
    with pytest.raises(Conflict, match="removed") as refused:
        await intake.scale(harbour.principal, service.id, 1)
    assert refused.value.code == "already-ended"


@on_sqlite
async def test_removing_a_running_workload_stops_it_in_the_name_of_who_asked(harbour: Harbour):
    await harbour.node("n1")
    service = await harbour.submit("web")
    [task] = await harbour.run(service)
    await Intake(harbour.database).remove(harbour.principal, service)
    assert await harbour.statuses(service) == ["TERMINATING"]
    last = (await harbour.history(service))[-1]
    assert (last.new_status, last.actor, last.reason) == (
        "TERMINATING",
        str(harbour.principal.user_id),
        "Removed by admin",
    )
    await harbour.move(task, TaskStatus.CANCELLED)
    assert (await harbour.workload(service)).status == "CANCELLED"


@on_sqlite
async def test_a_name_of_a_tenant_cannot_write_into_the_log(harbour: Harbour):
    await harbour.database.write(lambda c: c.execute(update(users).values(name="x\x1b[31m")))
    evil = Principal(harbour.principal.user_id, "x\x1b[31m", harbour.principal.role, *_tenancy(harbour.principal))
    workload_id = await harbour.submit("web")
    await Intake(harbour.database).remove(evil, workload_id)
    task = (await harbour.tasks(workload_id))[0]
    assert task.reason["message"] == "Removed by x\\x1b[31m"


async def test_a_key_that_two_servers_are_given_at_the_same_time_is_used_once(harbour: Harbour, migrated_url: str):
    other = Database(migrated_url)
    intakes = [Intake(harbour.database), Intake(other)]
    batch = [{"name": name, "containers": [{"command": ["true"]}]} for name in ("a", None)]
    answers = await asyncio.gather(*(i.submit_batch(harbour.principal, batch, key="k") for i in intakes * 2))
    await other.close()
    assert all(answer == answers[0] for answer in answers)
    assert answers[0].accepted == 2
    assert await count(harbour) == 2


async def test_a_batch_whose_name_another_server_takes_meanwhile_loses_that_name_only(
    harbour: Harbour, migrated_url: str
):
    other = Database(migrated_url)
    containers = [{"command": ["true"]}]
    batches = [[{"name": name, "containers": containers} for name in ("web", own)] for own in ("mine", "theirs")]
    found = await asyncio.gather(
        Intake(harbour.database).submit_batch(harbour.principal, batches[0]),
        Intake(other).submit_batch(harbour.principal, batches[1]),
    )
    await other.close()
    assert sorted(answer.accepted for answer in found) == [1, 2]
    codes = [item.error.code for answer in found for item in answer.workloads if item.error is not None]
    assert codes == ["name-taken"]
    assert await count(harbour) == 3
