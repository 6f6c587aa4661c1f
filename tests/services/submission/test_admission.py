"""Limits on what waits refuse at submission, each by itself, and hold for all servers together."""

import asyncio
from typing import Any

import pytest

from mooring.intake.hooks import Hooks
from mooring.intake.intake import Intake
from mooring.model.admission import AdmissionError
from mooring.model.pools import Moment
from mooring.model.quotas import Scope, Tenant
from mooring.model.workloads import Workload
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, AdmissionContext
from mooring.scheduling.admission.user_resource_limit import UserResourceLimit
from mooring.store.engine import Database
from tests.intake.test_intake import count, outcomes, request
from tests.mirror.test_admission import limit
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour
from tests.store.test_admission import give_policy


def asking(cpu: str) -> dict[str, Any]:
    return {"containers": [{"command": ["true"], "resources": {"cpu": cpu}}]}


async def test_so_many_wait_and_no_more(harbour: Harbour):
    await give_policy(harbour, "keypair", {"max_pending": 2})
    intake = Intake(harbour.database)
    found = await outcomes(intake, harbour.principal, *map(request, "abcd"))
    assert found.count("admission-refused") == 2
    with pytest.raises(AdmissionError) as refused:
        await intake.submit(harbour.principal, request("e"))
    key = harbour.principal.access_key
    assert refused.value.message == f"keypair '{key}' cannot have more than 2 workloads waiting; 2 wait already"
    assert refused.value.details["violations"] == [
        {
            "scope": "keypair",
            "tenant": key,
            "name": key,
            "slot": "pending",
            "used": 2,
            "requested": 1,
            "limit": 2,
            "excess": 1,
        }
    ]
    assert (refused.value.details["project"], refused.value.details["domain"]) == ("default", "default")
    assert await count(harbour) == 2


async def test_what_leaves_the_queue_makes_place_for_another(harbour: Harbour):
    await give_policy(harbour, "user", {"max_pending": 1})
    await harbour.node("n1")
    intake = Intake(harbour.database)
    assert await outcomes(intake, harbour.principal, request("a")) == ["a"]
    assert await outcomes(intake, harbour.principal, request("b")) == ["admission-refused"]
    await harbour.place()
    assert await outcomes(intake, harbour.principal, request("b")) == ["b"]


async def test_of_a_batch_the_others_go_on(harbour: Harbour):
    await give_policy(harbour, "project", {"max_pending_slots": {"cpu": "4"}})
    sent = [{"name": name, **asking(cpu)} for name, cpu in (("a", "3"), ("b", "2"), ("c", "1"))]
    answer = await Intake(harbour.database).submit_batch(harbour.principal, sent)
    assert [item.error.code if item.error else item.name for item in answer.workloads] == [
        "a",
        "admission-refused",
        "c",
    ]
    assert answer.workloads[1].error is not None
    [violation] = answer.workloads[1].error.details["violations"]
    assert (violation["slot"], violation["used"], violation["requested"], violation["excess"]) == (
        "cpu",
        3000,
        2000,
        1000,
    )
    assert "5 cpu would wait, which exceeds the pending limit" in answer.workloads[1].error.message


async def test_two_servers_together_let_in_no_more_than_one_would(harbour: Harbour, migrated_url: str):
    await give_policy(harbour, "keypair", {"max_pending": 5})
    other = Database(migrated_url)
    servers = [Intake(harbour.database), Intake(other)]
    found = await asyncio.gather(
        *(outcomes(servers[number % 2], harbour.principal, request(f"w{number}")) for number in range(12))
    )
    await other.close()
    assert sum(one != ["admission-refused"] for one in found) == 5
    assert await count(harbour) == 5


class AtOnce(UserResourceLimit):
    """As a pool has it that refuses at submission what its user may not use now."""

    moments = frozenset({Moment.ENQUEUE})


@on_sqlite
async def test_a_quota_can_refuse_at_submission(harbour: Harbour):
    await limit(harbour, Tenant(Scope.USER, str(harbour.principal.user_id)), {"cpu": 2000})
    intake = Intake(harbour.database, validators=[AtOnce()])
    small, large = request("small", **asking("2")), request("large", **asking("3"))
    assert await outcomes(intake, harbour.principal, small, large) == ["small", "admission-refused"]


class Quiet:
    """A validator of somebody else."""

    name = "quiet"
    moments = frozenset({Moment.ENQUEUE})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        if workload.name == "noise":
            raise AdmissionError("too loud", code="too-loud", cure="never")


@on_sqlite
async def test_a_validator_of_a_package_is_asked_at_submission(harbour: Harbour):
    intake = Intake(harbour.database, Hooks(), [*BUILT_IN_VALIDATORS, Quiet()])
    assert await outcomes(intake, harbour.principal, request("noise"), request("ok")) == ["admission-refused", "ok"]
