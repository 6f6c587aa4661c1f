"""Limits on what waits refuse at submission, each by itself, and hold for all servers together."""

import asyncio
from typing import Any

import pytest

from mooring.clock import monotonic, now
from mooring.model.policy.pools import Moment, PoolPolicy
from mooring.model.tenancy.admission import AdmissionError
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, AdmissionContext
from mooring.scheduling.plugins.validators.user_resource_limit import UserResourceLimit
from mooring.services.submission import admission
from mooring.services.submission.hooks import Hooks
from mooring.services.submission.submission import SubmissionService
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core.engine import Database
from mooring.store.nodes.pools import create
from tests.mirror.test_admission import limit
from tests.services.submission.test_submission import count, outcomes, request
from tests.store.databases import on_sqlite
from tests.store.harness import Harness
from tests.store.tenancy.test_pending_counts import give_policy


def asking(cpu: str) -> dict[str, Any]:
    return {"containers": [{"command": ["true"], "resources": {"cpu": cpu}}]}


async def test_submissions_beyond_the_pending_limit_are_refused(harness: Harness):
    await give_policy(harness, "keypair", {"max_pending": 2})
    submissions = SubmissionService(harness.database)
    found = await outcomes(submissions, harness.principal, *map(request, "abcd"))
    assert found.count("admission-refused") == 2
    with pytest.raises(AdmissionError) as refused:
        await submissions.submit(harness.principal, request("e"))
    key = harness.principal.access_key
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
    assert await count(harness) == 2


async def test_limit_and_pool_count_soon_although_their_signal_was_lost(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    no_signals = ConfigurationVersion()
    submissions, rules = SubmissionService(harness.database, configuration=no_signals), admission.Rules(no_signals)
    assert await outcomes(submissions, harness.principal, request("a")) == ["a"]
    async with harness.database.read() as connection:
        assert harness.pool.id in await rules.pools(connection, {harness.pool.id})

    await give_policy(harness, "keypair", {"max_pending": 1})
    monkeypatch.setattr(admission, "monotonic", lambda: monotonic() + 6)
    assert await outcomes(submissions, harness.principal, request("b")) == ["admission-refused"]

    added = await harness.database.write(
        lambda c: create(c, "added", runtimes=[], simulated=True, policy=PoolPolicy("pack"), now=now())
    )
    async with harness.database.read() as connection:
        assert added.id in await rules.pools(connection, {added.id})


async def test_a_workload_that_leaves_the_queue_admits_another(harness: Harness):
    await give_policy(harness, "user", {"max_pending": 1})
    await harness.node("n1")
    submissions = SubmissionService(harness.database)
    assert await outcomes(submissions, harness.principal, request("a")) == ["a"]
    assert await outcomes(submissions, harness.principal, request("b")) == ["admission-refused"]
    await harness.place()
    assert await outcomes(submissions, harness.principal, request("b")) == ["b"]


async def test_other_workloads_of_a_batch_are_accepted(harness: Harness):
    await give_policy(harness, "project", {"max_pending_slots": {"cpu": "4"}})
    sent = [{"name": name, **asking(cpu)} for name, cpu in (("a", "3"), ("b", "2"), ("c", "1"))]
    answer = await SubmissionService(harness.database).submit_batch(harness.principal, sent)
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


async def test_two_servers_admit_no_more_than_one_would(harness: Harness, migrated_url: str):
    await give_policy(harness, "keypair", {"max_pending": 5})
    other = Database(migrated_url)
    servers = [SubmissionService(harness.database), SubmissionService(other)]
    found = await asyncio.gather(
        *(outcomes(servers[number % 2], harness.principal, request(f"w{number}")) for number in range(12))
    )
    await other.close()
    assert sum(one != ["admission-refused"] for one in found) == 5
    assert await count(harness) == 5


class AtOnce(UserResourceLimit):
    """As a pool has it that refuses at submission what its user may not use now."""

    moments = frozenset({Moment.ENQUEUE})


@on_sqlite
async def test_a_quota_can_refuse_at_submission(harness: Harness):
    await limit(harness, Tenant(Scope.USER, str(harness.principal.user_id)), {"cpu": 2000})
    submissions = SubmissionService(harness.database, validators=[AtOnce()])
    small, large = request("small", **asking("2")), request("large", **asking("3"))
    assert await outcomes(submissions, harness.principal, small, large) == ["small", "admission-refused"]


class Quiet:
    """A validator of an installed package."""

    name = "quiet"
    moments = frozenset({Moment.ENQUEUE})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        if workload.name == "noise":
            raise AdmissionError("too loud", code="too-loud", cure="never")


@on_sqlite
async def test_a_validator_of_a_package_is_asked_at_submission(harness: Harness):
    submissions = SubmissionService(harness.database, Hooks(), [*BUILT_IN_VALIDATORS, Quiet()])
    assert await outcomes(submissions, harness.principal, request("noise"), request("ok")) == [
        "admission-refused",
        "ok",
    ]
