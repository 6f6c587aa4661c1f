"""All nine validators below, at and above their limit, at submission and in a pass, for normal and private work."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mooring.model.lifecycle import WorkloadStatus
from mooring.model.policy.pools import Moment, PoolPolicy
from mooring.model.tenancy.policies import Policy
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.dependencies import Condition, Dependency
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import (
    BUILT_IN_VALIDATORS,
    Admission,
    AdmissionContext,
    AdmissionError,
    Pending,
    Rejection,
)
from mooring.scheduling.tenant_usage import Usage, tenants_of
from tests.scheduling.builders import NOW, id_of

TABLE = """
                                  normal               private
validator                         below  at   above    below  at   above

reserved_batch_session            in     in   out      in     in   out
dependencies                      in     in   out      in     in   out
concurrency                       in     in   out      in     in   out
keypair_resource_limit            in     in   out      in     in   in
user_resource_limit               in     in   out      in     in   in
group_resource_limit              in     in   out      in     in   in
domain_resource_limit             in     in   out      in     in   in
pending_session_count_limit       in     in   out      in     in   in
pending_session_resource_limit    in     in   out      in     in   in
"""
LEVELS = {"below": -1, "at": 0, "above": 1}
SCOPES = {
    "keypair_resource_limit": Scope.KEYPAIR,
    "user_resource_limit": Scope.USER,
    "group_resource_limit": Scope.PROJECT,
    "domain_resource_limit": Scope.DOMAIN,
}
ASKED = 4000
"""Thousandths of a core that the workload asks for; limits of amounts are at 8000, of numbers at 3."""


def rows() -> Iterator[Any]:
    for line in TABLE.strip().splitlines()[3:]:
        name, *expected = line.split()
        for number, outcome in enumerate(expected):
            private, level = number >= 3, list(LEVELS)[number % 3]
            for moment in Moment:
                kind = "private" if private else "normal"
                yield pytest.param(name, level, moment, private, outcome, id=f"{name}-{kind}-{level}-{moment}")


@pytest.mark.parametrize(("name", "level", "moment", "private", "expected"), list(rows()))
def test_a_validator_admits_up_to_its_limit(name: str, level: str, moment: Moment, private: bool, expected: str):
    workload, context = case_of(name, LEVELS[level], private, moment)
    validator = next(each for each in BUILT_IN_VALIDATORS if each.name == name)
    policy = PoolPolicy("locality", validators=((name, (moment,)),))
    admission = Admission(context, [validator], {"default": policy})
    if moment is Moment.ENQUEUE:
        assert submitted(admission, workload, by=name) == expected
    else:
        assert tried(admission, workload, by=name) == expected


def submitted(admission: Admission, workload: Workload, by: str) -> str:
    try:
        admission.check(workload)
    except AdmissionError as error:
        return "out" if [failed["by"] for failed in error.details["failed"]] == [by] else f"out by {error}"
    return "in"


def tried(admission: Admission, workload: Workload, by: str) -> str:
    answer = admission.admit(workload)
    if isinstance(answer, Rejection):
        assert answer.reason.by == by
        assert [reason.by for reason in answer.checked.failed] == [by]
        return "out"
    assert answer == workload
    return "in"


def case_of(name: str, over: int, private: bool, moment: Moment) -> tuple[Workload, AdmissionContext]:
    """A workload that is so much over what the validator looks at, everything else being free."""
    workload = Workload(
        name="work",
        user_id=id_of("ann"),
        project_id=id_of("vision"),
        domain_id=id_of("lab"),
        access_key="MK1",
        request={"cpu": ASKED},
        private=private,
    )
    context = AdmissionContext(NOW, Usage(), moment)
    if name == "reserved_batch_session":
        return replace(workload, starts_at=NOW + timedelta(seconds=over)), context
    if name == "dependencies":
        return replace(workload, dependencies=(needed(over),)), context
    if name == "concurrency":
        counter = "private-sessions" if private else "sessions"
        for tenant in tenants_of(workload):
            context.usage.update(tenant, limits={counter: 3}, used={counter: 2 + over})
        return workload, context
    if name in SCOPES:
        tenant = next(each for each in tenants_of(workload) if each.scope is SCOPES[name])
        context.usage.update(tenant, limits={"cpu": 8000}, used={"cpu": 8000 - ASKED + over})
        return workload, context
    policy = Policy(max_pending=3) if name == "pending_session_count_limit" else Policy(max_pending_slots={"cpu": 8000})
    pending = Pending(2 + over, {"cpu": 8000 - ASKED + over})
    if moment is Moment.SCHEDULING:
        # Itself and those behind it are no reason for it to wait.
        everything = pending.plus(workload).plus(workload)
        return workload, replace(
            context, policies={"MK1": policy}, pending={"MK1": everything}, ahead={workload.id: pending}
        )
    return workload, replace(context, policies={"MK1": policy}, pending={"MK1": pending})


def needed(over: int) -> Dependency:
    """Met as it was asked for, met by any end, or still open."""
    condition, status = {
        -1: (Condition.AFTER_OK, WorkloadStatus.SUCCEEDED),
        0: (Condition.AFTER_ANY, WorkloadStatus.FAILED),
        1: (Condition.AFTER_OK, WorkloadStatus.RUNNING),
    }[over]
    return Dependency(id_of("before"), "before", condition, status)


def test_the_table_has_all_validators():
    named = {line.split()[0] for line in TABLE.strip().splitlines()[3:]}
    assert named == {each.name for each in BUILT_IN_VALIDATORS}
