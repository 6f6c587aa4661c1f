"""Admission in a pass and at submission: all that stands in the way comes together, and what is let in is counted."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mooring.model.lifecycle import WorkloadStatus
from mooring.model.policy.pools import Moment, PoolPolicy
from mooring.model.tenancy.admission import Awaits
from mooring.model.tenancy.quotas import Scope, Violation
from mooring.model.workloads.dependencies import Condition, Dependency
from mooring.model.workloads.workload import Task, Workload, new_tasks
from mooring.scheduling.admission import (
    BUILT_IN_VALIDATORS,
    Admission,
    AdmissionContext,
    AdmissionRefused,
    Rejection,
)
from mooring.scheduling.tenant_usage import Usage, tenants_of
from tests.scheduling.builders import NOW, id_of

SCHEDULED = (
    "reserved_batch_session",
    "dependencies",
    "concurrency",
    "keypair_resource_limit",
    "user_resource_limit",
    "group_resource_limit",
    "domain_resource_limit",
)


def work(name: str = "work", tasks: int = 1, **more: object) -> Workload:
    own = Workload(
        name=name,
        user_id=id_of("ann"),
        project_id=id_of("vision"),
        domain_id=id_of("lab"),
        access_key="MK1",
        request={"cpu": 4000},
        tasks=new_tasks(name, tasks),
    )
    return replace(own, **more)  # type: ignore[arg-type]


KEYPAIR, USER, PROJECT, DOMAIN = tenants_of(work())


def rejected(answer: Workload | Rejection) -> Rejection:
    assert isinstance(answer, Rejection)
    return answer


def admitted(answer: Workload | Rejection) -> Workload:
    assert isinstance(answer, Workload)
    return answer


def test_pending_limits_are_asked_at_submission_and_all_others_in_a_pass_unless_the_pool_says_otherwise():
    moments = {each.name: set(each.moments) for each in BUILT_IN_VALIDATORS}
    pending = {"pending_session_count_limit", "pending_session_resource_limit"}
    assert {name for name, asked in moments.items() if asked == {Moment.ENQUEUE}} == pending
    assert {name for name, asked in moments.items() if asked == {Moment.SCHEDULING}} == set(SCHEDULED)

    policy = PoolPolicy("locality", validators=(("dependencies", (Moment.ENQUEUE,)),))
    admission = Admission(AdmissionContext(NOW), policies={"default": policy})
    assert admission.passed(work()).passed == tuple(name for name in SCHEDULED if name != "dependencies")


def test_violations_of_all_levels_are_returned_at_once_with_names_and_amounts():
    usage = Usage()
    usage.update(USER, limits={"cpu": 8000}, used={"cpu": 6000}, name="ann")
    usage.update(PROJECT, limits={"cpu": 9000, "sessions": 2}, used={"cpu": 6000, "sessions": 2}, name="vision")
    usage.update(DOMAIN, name="lab")
    answer = rejected(Admission(AdmissionContext(NOW, usage)).admit(work()))
    assert answer.reason.message == (
        "project 'vision' cannot run more than 2 sessions at the same time; 2 run; "
        "user 'ann' may use 8 cpu; 6 are in use and this asks for 4 (2 too many); "
        "project 'vision' may use 9 cpu; 6 are in use and this asks for 4 (1 too many)"
    )
    assert [(v["name"], v["slot"], v["excess"]) for v in answer.reason.details["violations"]] == [
        ("vision", "sessions", 1),
        ("ann", "cpu", 2000),
        ("vision", "cpu", 1000),
    ]
    assert (answer.reason.details["project"], answer.reason.details["domain"]) == ("vision", "lab")
    assert answer.reason.details["violations"][2]["tenant"] == str(id_of("vision"))
    assert answer.reason.cure == "release"
    assert answer.awaits == Awaits(tenants=frozenset({USER, PROJECT}))


def test_a_request_above_equal_limits_of_two_levels_is_listed_once_and_needs_a_change():
    usage = Usage()
    usage.update(USER, limits={"cpu": 3000}, used={}, name="ann")
    usage.update(PROJECT, limits={"cpu": 3000}, used={}, name="vision")
    answer = rejected(Admission(AdmissionContext(NOW, usage)).admit(work()))
    assert answer.reason.message == "needs 4 cpu, limit 3 (user 'ann', project 'vision')"
    assert answer.reason.cure == "change"
    assert answer.awaits == Awaits(tenants=frozenset({USER, PROJECT}))


def test_an_admission_check_records_its_time_and_the_validators_that_passed_or_failed():
    admission = Admission(AdmissionContext(NOW))
    due = NOW + timedelta(hours=1)
    answer = rejected(admission.admit(work(starts_at=due)))
    record = answer.checked.as_dict()
    assert record["at"] == NOW.isoformat()
    assert record["passed"] == list(SCHEDULED[1:])
    assert [(failed["by"], failed["code"]) for failed in record["failed"]] == [
        ("reserved_batch_session", "not-due-yet")
    ]
    assert answer.awaits == Awaits(until=due)
    assert admission.passed(work()).as_dict() == {"at": NOW.isoformat(), "passed": list(SCHEDULED), "failed": []}


def test_limits_are_compared_once_for_a_workload_of_which_all_tasks_are_within_them(monkeypatch: pytest.MonkeyPatch):
    compared: list[Scope] = []
    within = Usage.amount_violations

    def counted(usage: Usage, workload: Workload, tasks: int, scope: Scope) -> list[Violation]:
        compared.append(scope)
        return within(usage, workload, tasks, scope)

    monkeypatch.setattr(Usage, "amount_violations", counted)
    usage = Usage()
    usage.update(USER, limits={"cpu": 10_000})
    usage.update(PROJECT, limits={"cpu": 10_000})
    admission = Admission(AdmissionContext(NOW, usage))
    admitted(admission.admit(work("first", tasks=2, gang=True)))
    assert not compared
    assert rejected(admission.admit(work("second"))).reason.details["failed"][0]["by"] == "user_resource_limit"
    assert set(compared) == {Scope.USER, Scope.PROJECT}


def test_admitted_work_counts_against_the_next_until_it_is_refunded():
    usage = Usage()
    usage.update(USER, limits={"sessions": 1})
    admission = Admission(AdmissionContext(NOW, usage))
    first = admitted(admission.admit(work("first")))
    assert rejected(admission.admit(work("second"))).reason.code == "too-many-sessions"
    admission.refund(first)
    admitted(admission.admit(work("second")))


def test_independent_tasks_are_cut_to_the_remaining_limit_and_gangs_are_not():
    usage = Usage()
    usage.update(PROJECT, limits={"cpu": 10_000}, name="vision")
    admission = Admission(AdmissionContext(NOW, usage))
    gang = rejected(admission.admit(work(tasks=3, gang=True)))
    assert gang.reason.details["violations"][0]["requested"] == 12_000
    assert len(admitted(admission.admit(work(tasks=3))).tasks) == 2
    assert usage.used_by(PROJECT)["cpu"] == 8000
    assert rejected(admission.admit(work("other", tasks=3))).reason.details["violations"][0]["requested"] == 4000


def test_the_gang_size_has_to_be_within_the_limits():
    usage = Usage()
    usage.update(PROJECT, limits={"cpu": 10_000})
    admission = Admission(AdmissionContext(NOW, usage))
    assert rejected(admission.admit(work(tasks=5, min_tasks=3))).reason.code == "project-quota-exceeded"
    assert len(admitted(admission.admit(work(tasks=5, min_tasks=2))).tasks) == 2


def test_an_array_has_no_more_tasks_on_nodes_than_it_wishes():
    admission = Admission(AdmissionContext(NOW))
    assert len(admitted(admission.admit(work(tasks=5, parallel=2))).tasks) == 2
    full = work(tasks=5, parallel=2, occupied={id_of("n1"): 2})
    answer = rejected(admission.admit(full))
    assert answer.reason.code == "parallel-limit"
    assert answer.awaits == Awaits(workloads=frozenset({full.id}))


def test_of_cut_tasks_those_that_need_not_wait_come_first():
    later = Task(id_of("a"), 0, not_before=NOW + timedelta(seconds=5))
    now = Task(id_of("b"), 1, not_before=NOW)
    admission = Admission(AdmissionContext(NOW))
    array = replace(work(parallel=1), tasks=(later, now))
    assert admitted(admission.admit(array)).tasks == (now,)


def test_limits_hold_in_a_pass_even_where_they_are_only_asked_at_submission():
    """A pass does not try workloads that the commit would refuse."""
    usage = Usage()
    usage.update(USER, limits={"cpu": 1000}, name="ann")
    policy = PoolPolicy("locality", validators=(("user_resource_limit", (Moment.ENQUEUE,)),))
    answer = rejected(Admission(AdmissionContext(NOW, usage), policies={"default": policy}).admit(work()))
    assert (answer.reason.code, answer.reason.by) == ("quota-exceeded", "quota")


def test_a_dependency_names_unmet_conditions_and_earlier_singletons():
    open_one = Dependency(id_of("prepare"), "prepare", Condition.AFTER_OK, WorkloadStatus.RUNNING)
    broken = Dependency(id_of("train"), "train", Condition.AFTER_OK, WorkloadStatus.FAILED)
    met = Dependency(id_of("fetch"), "fetch", Condition.AFTER_FAIL, WorkloadStatus.EXPIRED)
    admission = Admission(AdmissionContext(NOW))
    answer = rejected(admission.admit(work(dependencies=(met, open_one))))
    assert answer.reason.message == "waiting for 'prepare' to succeed"
    assert (answer.reason.cure, answer.awaits.workloads) == ("change", frozenset({id_of("prepare")}))
    answer = rejected(admission.admit(work(dependencies=(broken,), behind=(id_of("older"),))))
    assert answer.reason.message == (
        "it was waiting for 'train' to succeed, which is failed; waiting for 1 that must run before it"
    )
    assert (answer.reason.cure, answer.awaits.workloads) == ("never", frozenset({id_of("train"), id_of("older")}))


def test_if_time_and_a_release_are_both_needed_the_reason_names_the_certain_one():
    usage = Usage()
    usage.update(USER, limits={"cpu": 1000})
    due = NOW + timedelta(hours=1)
    answer = rejected(Admission(AdmissionContext(NOW, usage)).admit(work(starts_at=due)))
    assert (answer.reason.code, answer.reason.by, answer.reason.cure) == ("admission-refused", "admission", "change")
    assert answer.awaits == Awaits(tenants=frozenset({USER}), until=due)


class Broken:
    name = "moon_phase"
    moments = frozenset(Moment)

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        raise ZeroDivisionError("no moon")


@pytest.mark.parametrize("moment", list(Moment))
def test_a_validator_that_raises_is_named_and_rejects_all(moment: Moment):
    admission = Admission(AdmissionContext(NOW, moment=moment), [*BUILT_IN_VALIDATORS, Broken()])
    message = "the validator 'moon_phase' raised ZeroDivisionError: no moon"
    if moment is Moment.SCHEDULING:
        reason = rejected(admission.admit(work())).reason
        assert (reason.code, reason.by, reason.message) == ("constraint-evaluation-failed", "moon_phase", message)
    else:
        with pytest.raises(AdmissionRefused) as refused:
            admission.check(work())
        assert refused.value.message == message


def test_a_workload_like_a_rejected_one_is_rejected_alike_until_usage_changes():
    usage = Usage()
    usage.update(USER, limits={"cpu": 6000}, name="ann")
    admission = Admission(AdmissionContext(NOW, usage))
    first = admitted(admission.admit(work("first")))
    second, third = rejected(admission.admit(work("second"))), rejected(admission.admit(work("third")))
    assert (third.workload.name, third.reason) == ("third", second.reason)
    assert rejected(admission.admit(work("later", starts_at=NOW + timedelta(hours=1)))).reason != second.reason
    admitted(admission.admit(work("small", request={"cpu": 2000})))
    message = "user 'ann' may use 6 cpu; 6 are in use and this asks for 4 (4 too many)"
    assert rejected(admission.admit(work("third"))).reason.message == message
    admission.refund(first)
    admitted(admission.admit(work("third")))
