"""Rules of policy and pool that waiting cannot cure."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mooring.model.errors import InvalidInput, MooringError, NotAllowed
from mooring.model.policy.pools import PoolPolicy
from mooring.model.tenancy.policies import NO_POLICY, Policy, Right
from mooring.model.tenancy.tenants import Principal, Role
from mooring.services.submission.rules import default_time, max_run_seconds
from mooring.services.submission.submission_context import SubmissionContext
from mooring.services.submission.translation import translate
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.wire.workloads.workloads import WorkloadRequest

POOL_ID = UUID(int=9)
WHO = Principal(UUID(int=1), "ada", Role.USER, UUID(int=2), UUID(int=3), "AK")
ADMIN = replace(WHO, role=Role.ADMIN)
STRICT = {"nodes": ["n1"], "nodes_strictly": True}


def translated(
    policy: Policy = NO_POLICY,
    *,
    pool: PoolPolicy | None = None,
    who: Principal = WHO,
    served: frozenset[str] | None = None,
    **request: Any,
) -> NewWorkload:
    there = Pool(POOL_ID, "lab", pool or PoolPolicy("locality"), frozenset({"process"}), False)
    context = SubmissionContext(who, [there], policy, {} if served is None else {POOL_ID: served})
    body = {"containers": [{"command": ["true"], "resources": request.pop("resources", {})}], **request}
    return translate(WorkloadRequest.model_validate(body), context)[0]


@pytest.mark.parametrize(
    ("policy", "pool", "request_body", "code", "kind"),
    [
        pytest.param(Policy(max_priority=50), {}, {"priority": 51}, "priority-too-high", NotAllowed, id="priority"),
        pytest.param(NO_POLICY, {}, {"private": True}, "right-missing", NotAllowed, id="private"),
        pytest.param(NO_POLICY, {}, {"type": "system"}, "right-missing", NotAllowed, id="system"),
        pytest.param(NO_POLICY, {}, {"placement": STRICT}, "right-missing", NotAllowed, id="designated"),
        pytest.param(Policy(max_time_seconds=60), {}, {"time": 61}, "time-limit-too-long", InvalidInput, id="time"),
        pytest.param(
            Policy(max_time_seconds=90),
            {"max_time_seconds": 60},
            {"time": "61s"},
            "time-limit-too-long",
            InvalidInput,
            id="time in the pool",
        ),
    ],
)
def test_a_user_is_refused_and_an_admin_is_not(
    policy: Policy, pool: dict[str, Any], request_body: dict[str, Any], code: str, kind: type[MooringError]
):
    with pytest.raises(kind) as refused:
        translated(policy, pool=PoolPolicy("locality", **pool), **request_body)
    assert refused.value.code == code
    assert translated(policy, pool=PoolPolicy("locality", **pool), who=ADMIN, **request_body).name


@pytest.mark.parametrize(
    ("right", "request_body"),
    [(Right.PRIVATE, {"private": True}), (Right.SYSTEM, {"type": "system"}), (Right.DESIGNATE, {"placement": STRICT})],
)
def test_a_right_allows_only_its_own_requests(right: Right, request_body: dict[str, Any]):
    assert translated(Policy(rights=frozenset({right})), **request_body).name
    with pytest.raises(NotAllowed):
        translated(Policy(rights=frozenset(Right) - {right}), **request_body)


@pytest.mark.parametrize(
    ("policy", "pool", "request_body", "code"),
    [
        pytest.param(Policy(max_tasks=2), {}, {"replicas": 3}, "too-many-tasks", id="tasks"),
        pytest.param(Policy(max_array_size=2), {}, {"array": "0-2"}, "array-too-large", id="array"),
        pytest.param(NO_POLICY, {}, {"array": "0-10000"}, "array-too-large", id="the usual size of arrays"),
        pytest.param(NO_POLICY, {"allowed_types": ("batch",)}, {"type": "interactive"}, "type-not-allowed", id="type"),
        pytest.param(
            NO_POLICY,
            {"allowed_types": ("batch",)},
            {"kind": "deployment", "type": "storage"},
            "type-not-allowed",
            id="deployment",
        ),
        pytest.param(NO_POLICY, {}, {"signal": "USR1@60"}, "invalid-signal", id="a signal before no end"),
        pytest.param(NO_POLICY, {}, {"time": 60, "signal": "USR1@60"}, "invalid-signal", id="a signal at the start"),
    ],
)
def test_rules_that_hold_for_every_user(policy: Policy, pool: dict[str, Any], request_body: dict[str, Any], code: str):
    for who in (WHO, ADMIN):
        with pytest.raises(InvalidInput) as refused:
            translated(policy, pool=PoolPolicy("locality", **pool), who=who, **request_body)
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("policy", "request_body"),
    [
        (Policy(max_priority=50, max_tasks=3, max_time_seconds=60), {"priority": 50, "replicas": 3, "time": 60}),
        (Policy(max_tasks=1, max_array_size=5), {"array": "1-9:2"}),
        (Policy(max_priority=0, max_tasks=0, max_array_size=0, max_time_seconds=0), {"priority": 100, "time": "9d"}),
        (NO_POLICY, {"array": "1-10000", "time": "1h", "signal": "USR1@3599"}),
    ],
)
def test_a_limit_itself_is_allowed_and_none_or_zero_is_no_limit(policy: Policy, request_body: dict[str, Any]):
    assert translated(policy, **request_body).name


def test_a_slot_that_no_node_of_the_pool_has_is_refused_with_those_that_they_have():
    with pytest.raises(InvalidInput, match="has gpu; its nodes have cpu, memory") as refused:
        translated(served=frozenset({"memory", "cpu"}), resources={"cpu": 1, "gpu": 1, "storage": 0})
    assert refused.value.details == {"pool": "lab", "missing": ["gpu"], "served": ["cpu", "memory"]}
    assert translated(served=None, resources={"gpu": 1}).name


def test_all_problems_are_reported_at_once():
    with pytest.raises(NotAllowed) as refused:
        translated(Policy(max_priority=5, max_time_seconds=60), private=True, time="2m")
    assert refused.value.code == "rules-broken"
    problems = refused.value.details["problems"]
    assert [p["code"] for p in problems] == ["priority-too-high", "right-missing", "time-limit-too-long"]
    assert problems[2]["limit_seconds"] == 60


def test_interactive_sessions_that_name_no_idle_timeout_get_the_pool_s():
    pool = PoolPolicy("locality", idle_timeout_seconds=600)

    def idle_timeout(**more: Any) -> int | None:
        return translated(pool=pool, **more).schedule.idle_timeout_seconds

    assert idle_timeout(type="interactive") == 600
    assert idle_timeout(type="interactive", idle_timeout="2h") == 7200
    assert idle_timeout(type="batch") is idle_timeout(kind="deployment") is None


@pytest.mark.parametrize(
    ("pool", "policy", "usual", "longest"),
    [
        ({}, {}, None, None),
        ({"default_time_seconds": 10}, {"default_time_seconds": 20}, 10, None),
        ({}, {"default_time_seconds": 20}, 20, None),
        ({"max_time_seconds": 30}, {}, 30, 30),
        ({"max_time_seconds": 30}, {"max_time_seconds": 15, "default_time_seconds": 20}, 15, 15),
        ({"max_time_seconds": 0, "default_time_seconds": 0}, {}, None, None),
    ],
)
def test_a_session_without_a_time_limit_gets_the_default(
    pool: dict[str, int], policy: dict[str, int], usual: int | None, longest: int | None
):
    rules = PoolPolicy("locality", **pool), Policy(**policy)  # type: ignore[arg-type]
    assert (default_time(*rules), max_run_seconds(*rules)) == (usual, longest)
    assert translated(rules[1], pool=rules[0]).schedule.time_limit_seconds == usual
    assert translated(rules[1], pool=rules[0], kind="deployment").schedule.time_limit_seconds is None
