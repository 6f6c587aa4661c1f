"""Reclaiming: who takes back what it is guaranteed, and of whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from mooring.model.decisions import Decision, Outcome
from mooring.model.policy.preemption import Preemption, RunningTask, VictimScope
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.admission import Admission, AdmissionContext
from mooring.scheduling.tenant_usage import Usage
from tests.scheduling.builders import NOW, id_of, node, workload

GUARANTEED = {"default": {id_of("lender"): {"cpu": 4000}, id_of("borrower"): {"cpu": 4000}}}


def running(name: str, project: str, cpu: int = 2, *, minutes: int = 60, preemptible: bool = True) -> RunningTask:
    started = NOW - timedelta(minutes=minutes)
    task = RunningTask(id_of(name), id_of(name), id_of("n"), 10, {"cpu": cpu * 1000}, project_id=id_of(project))
    return replace(task, started_at=started, preemptible=preemptible)


def of_project(name: str, project: str, cpu: int, priority: int = 10) -> Workload:
    return replace(workload(name).cpu(cpu).priority(priority).workload, project_id=id_of(project))


def scheduler(
    running_tasks: Sequence[RunningTask], *, min_runtime_seconds: int = 0, compiled: bool = False
) -> Scheduler:
    """A node of 8 cores that is full of running tasks, half of it guaranteed to either project."""
    used = sum(running_task.request["cpu"] for running_task in running_tasks)
    rules = Preemption(scope=VictimScope.RECLAIM, min_runtime_seconds=min_runtime_seconds)
    machine = node("n").cpu(8).used(cpu=used // 1000).tasks(len(running_tasks)).node
    made = Scheduler([machine], preemption=rules, running_tasks=running_tasks, compiled=compiled)
    assert made.preemptor is not None
    made.preemptor.guarantees = GUARANTEED
    return made


def victims(decision: Decision) -> list[str]:
    names = {id_of(f"b{number}"): f"b{number}" for number in range(9)}
    return sorted(names[victim.task_id] for victim in decision.victims)


BORROWED = [running(f"b{number}", "borrower", minutes=60 - number) for number in range(4)]
"""All 8 cores, so that 4 are borrowed; b3 came last."""


@pytest.mark.parametrize("compiled", [False, True])
def test_a_lender_reclaims_its_guarantee_from_the_newest_tasks_first(compiled: bool):
    decision = scheduler(BORROWED, compiled=compiled).decide(of_project("mine", "lender", 2), NOW)
    assert (decision.outcome, victims(decision)) == (Outcome.RESERVED, ["b3"])
    decision = scheduler(BORROWED, compiled=compiled).decide(of_project("mine", "lender", 4), NOW)
    assert victims(decision) == ["b2", "b3"]


def test_a_higher_priority_does_not_protect_borrowed_capacity():
    important = [replace(running_task, priority=90) for running_task in BORROWED]
    assert victims(scheduler(important).decide(of_project("mine", "lender", 2, priority=0), NOW)) == ["b3"]


def test_work_that_would_exceed_its_guarantee_reclaims_nothing():
    too_much = scheduler(BORROWED).decide(of_project("mine", "lender", 5), NOW)
    assert too_much.outcome is Outcome.WAITING
    stranger = scheduler(BORROWED).decide(of_project("theirs", "nobody", 1, priority=99), NOW)
    assert stranger.outcome is Outcome.WAITING


def test_no_project_falls_below_its_guarantee():
    within = [running("b0", "borrower", 4), running("x", "stranger", 4, preemptible=False)]
    assert scheduler(within).decide(of_project("mine", "lender", 2), NOW).outcome is Outcome.WAITING
    # 3 of its 7 cores are borrowed: one task of 2 may go, not two.
    partly = [*BORROWED[:3], running("b8", "borrower", 1, minutes=90), running("x", "stranger", 1, preemptible=False)]
    assert victims(scheduler(partly).decide(of_project("mine", "lender", 2), NOW)) == ["b2"]
    assert scheduler(partly).decide(of_project("mine", "lender", 4), NOW).outcome is Outcome.WAITING


def test_tasks_that_have_run_for_too_short_a_time_are_not_preempted():
    young = scheduler(BORROWED, min_runtime_seconds=58 * 60 + 30)
    assert victims(young.decide(of_project("mine", "lender", 2), NOW)) == ["b1"]


def test_reclaimed_capacity_is_not_reclaimed_twice():
    given = scheduler(BORROWED)
    first = given.decide(of_project("first", "lender", 2), NOW)
    second = given.decide(of_project("second", "lender", 2), NOW)
    third = given.decide(of_project("third", "lender", 2), NOW)
    assert [victims(first), victims(second), victims(third)] == [["b3"], ["b2"], []]


def test_charges_of_a_pass_count_as_used():
    given, usage = scheduler(BORROWED), Usage()
    admission = Admission(AdmissionContext(NOW, usage))
    waiting = [of_project(f"w{number}", "lender", 2) for number in range(3)]
    usage.set_used_in_pools(id_of("lender"), {"default": {"cpu": 2000}})
    result = given.place(waiting, NOW, admission=admission)
    assert [decision.outcome for decision in result.decisions].count(Outcome.RESERVED) == 1
    assert usage.used_in("default", id_of("lender")) == {"cpu": 4000}
