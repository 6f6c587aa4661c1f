"""Preemption, quotas, timeouts, faults, bookings and GPUs in the simulation, by small cases with known starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mooring.model.calendar.timeslots import BookingRules, OpenEnded
from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import HeadOfLine, PoolPolicy
from mooring.model.policy.preemption import Preemption, PreemptionMode, VictimScope
from mooring.model.resources.devices import Device, DeviceDemand
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import OnInsufficient
from mooring.simulation.engine import replay
from mooring.simulation.estimates import ActualRunTimes
from mooring.simulation.jobs import Job
from mooring.simulation.metrics import figures_of
from mooring.simulation.outcomes import Cause, JobOutcome, Status
from mooring.simulation.scenario import Booking, Fault, Scenario, TenantRules

POLICY = PoolPolicy("balanced", sequencer="fifo", head_of_line=HeadOfLine.SKIP)
NODE = Node(name="node", allocatable={"cpu": 4000})


def job(number: int, submitted: int, run: int | None, cores: int, **rest: Any) -> Job:
    return Job(number, f"job-{number}", submitted, run, rest.pop("limit", run), {"cpu": cores * 1000}, **rest)


def outcomes(
    *jobs: Job, policy: PoolPolicy = POLICY, nodes: Sequence[Node] = (NODE,), **rest: Any
) -> Sequence[JobOutcome]:
    return replay(Scenario(nodes, jobs, {"default": policy}, **rest)).outcomes


def starts(*jobs: Job, **rest: Any) -> list[int | None]:
    return [each.start for each in outcomes(*jobs, **rest)]


def test_more_important_job_preempts_and_the_victim_starts_again():
    policy = replace(POLICY, preemption=Preemption())
    victim, preemptor = outcomes(job(0, 0, 100, 4, priority=1), job(1, 30, 50, 4, priority=20), policy=policy)
    assert [(each.start, each.end, each.cause) for each in victim.attempts] == [
        (0, 30, Cause.PREEMPTED),
        (80, 180, Cause.ENDED),
    ]
    assert (preemptor.start, preemptor.end, victim.wait_seconds) == (30, 80, 0)


def test_terminated_victim_does_not_return():
    policy = replace(POLICY, preemption=Preemption(mode=PreemptionMode.TERMINATE))
    victim, preemptor = outcomes(job(0, 0, 100, 4, priority=1), job(1, 30, 50, 4, priority=20), policy=policy)
    assert (victim.status, victim.preemptions, preemptor.start) == (Status.PREEMPTED, 1, 30)


def test_job_that_is_not_preemptible_stays():
    policy = replace(POLICY, preemption=Preemption())
    first = job(0, 0, 100, 4, priority=1, preemptible=False)
    assert starts(first, job(1, 30, 50, 4, priority=20), policy=policy) == [0, 100]


def test_victim_runs_for_the_minimum_time_first():
    policy = replace(POLICY, preemption=Preemption(min_runtime_seconds=60))
    # Job 1 is tried again 60 s after its submission.
    assert starts(job(0, 0, 100, 4, priority=1), job(1, 30, 50, 4, priority=20), policy=policy) == [140, 90]


def test_simulation_ends_although_work_waits_for_victims_that_never_come():
    policy = replace(POLICY, preemption=Preemption(min_runtime_seconds=60))
    jobs = [job(0, 0, None, 4, priority=30), job(1, 30, 50, 4, priority=20)]
    assert [each.status for each in outcomes(*jobs, policy=policy)] == [Status.RUNNING, Status.WAITING]


def test_whole_gang_is_preempted_on_all_nodes():
    policy = replace(POLICY, preemption=Preemption())
    nodes = [Node(name=name, allocatable={"cpu": 1000}) for name in ("a", "b")]
    gang, other = outcomes(
        job(0, 0, 100, 1, tasks=2, priority=1), job(1, 10, 20, 1, priority=20), policy=policy, nodes=nodes
    )
    assert [attempt.cause for attempt in gang.attempts] == [Cause.PREEMPTED, Cause.ENDED]
    assert (gang.start, other.start) == (30, 10)


def test_project_reclaims_its_guarantee():
    policy = replace(POLICY, preemption=Preemption(scope=VictimScope.RECLAIM))
    rules = [TenantRules(Scope.PROJECT, name, guaranteed={"cpu": 2000}) for name in ("a", "b")]
    jobs = [job(0, 0, 100, 2, project="a"), job(1, 1, 100, 2, project="a"), job(2, 10, 50, 2, project="b")]
    # Project a has borrowed 2 cores; the job that started last gives them back.
    assert starts(*jobs, policy=policy, tenants=rules) == [0, 60, 10]


def test_quota_of_a_user_limits_its_running_jobs():
    rules = [TenantRules(Scope.USER, "ada", limits={"cpu": 2000})]
    jobs = [job(0, 0, 50, 2, user="ada"), job(1, 1, 50, 2, user="ada"), job(2, 2, 50, 2, user="bob")]
    assert starts(*jobs, tenants=rules) == [0, 50, 2]


def test_drf_lets_the_tenant_with_less_start_first():
    # Job 1 of ada still runs when job 0 ends.
    jobs = [job(0, 0, 100, 3, user="ada"), job(1, 0, 500, 1, user="ada")]
    jobs += [job(2, 1, 50, 3, user="ada"), job(3, 2, 50, 3, user="bob")]
    assert starts(*jobs) == [0, 0, 100, 150]
    assert starts(*jobs, policy=replace(POLICY, sequencer="drf")) == [0, 0, 150, 100]


def test_fair_share_prefers_the_user_without_past_use():
    policy = replace(POLICY, sequencer="fair_share", head_of_line=HeadOfLine.STRICT)
    jobs = [
        job(0, 0, 40_000, 4, user="ada"),
        job(1, 10, 100, 4, user="ada"),
        job(2, 20, 100, 4, user="bob"),
    ]
    assert starts(*jobs, policy=policy) == [0, 40_100, 40_000]


def test_pending_job_expires_after_the_timeout_of_its_pool():
    policy = replace(POLICY, pending_timeout_seconds=60)
    _, late = outcomes(job(0, 0, 100, 4), job(1, 10, 10, 4), policy=policy)
    assert (late.status, late.start) == (Status.EXPIRED, None)


def test_job_fails_at_once_where_the_pool_says_so():
    policy = replace(POLICY, on_insufficient=OnInsufficient.FAIL)
    _, second = outcomes(job(0, 0, 100, 4), job(1, 10, 10, 4), policy=policy)
    assert second.status is Status.IMPOSSIBLE


def test_time_limits_of_the_pool_apply():
    policy = replace(POLICY, max_time_seconds=50, default_time_seconds=20)
    refused, cut = outcomes(job(0, 0, 100, 4), job(1, 0, 100, 4, limit=None), policy=policy)
    assert (refused.status, cut.end) == (Status.REFUSED, 20)


def test_pool_limits_the_tasks_of_a_node():
    assert starts(job(0, 0, 50, 1), job(1, 0, 50, 1), policy=replace(POLICY, max_tasks_per_node=1)) == [0, 50]


def test_jobs_of_a_lost_node_start_again_elsewhere_or_when_it_returns():
    lost = Fault(("node",), 40, 60)
    (only,) = outcomes(job(0, 0, 100, 4), faults=[lost])
    assert [(each.start, each.end) for each in only.attempts] == [(0, 40), (60, 160)]
    other = Node(name="other", allocatable={"cpu": 4000})
    (moved,) = outcomes(job(0, 0, 100, 4), faults=[replace(lost, nodes=("node",))], nodes=[NODE, other])
    assert {each.nodes for each in moved.attempts} == {("node",), ("other",)}


def test_capacity_of_a_lost_node_is_not_offered():
    scenario = Scenario(
        [NODE], [job(0, 0, 50, 4), job(1, 0, 50, 4)], {"default": POLICY}, faults=[Fault(("node",), 50, 100)]
    )
    assert figures_of(replay(scenario), scenario).utilisation == {"cpu": 1.0}


def test_booked_capacity_stays_free_for_its_own_job():
    policy = replace(POLICY, head_of_line=HeadOfLine.BACKFILL)
    booking = Booking("lab", "default", 100, 200, {"cpu": 3000})
    jobs = [
        job(0, 0, 150, 4),
        job(1, 1, 90, 4),
        job(2, 2, 500, 1),
        job(3, 3, 60, 3, booking="lab"),
        job(4, 4, 90, 3, booking="lab", limit=None),
    ]
    result = replay(Scenario([NODE], jobs, {"default": policy}, bookings=[booking]))
    found = {each.job.number: each for each in result.outcomes}
    assert result.bookings[0].confirmed
    assert found[3].start == 100
    assert found[4].attempts[0][:2] == (160, 200)
    assert (found[4].status, found[4].attempts[0].cause) == (Status.PREEMPTED, Cause.BOOKING_OVER)
    assert (found[0].start or 0) >= 200


def test_booking_without_capacity_is_refused_and_its_jobs_expire():
    result = replay(
        Scenario(
            [NODE],
            [job(0, 0, 10, 1, booking="lab")],
            {"default": POLICY},
            bookings=[Booking("lab", "default", 100, 200, {"cpu": 8000})],
        )
    )
    assert (result.bookings[0].confirmed, result.outcomes[0].status) == (False, Status.EXPIRED)


def test_open_ended_work_beside_bookings_is_refused_unless_the_pool_refuses_it():
    booking = [Booking("lab", "default", 100, 200, {"cpu": 4000})]
    with pytest.raises(InvalidInput, match="moving work without a time limit"):
        outcomes(job(0, 0, None, 4), bookings=booking)
    policy = replace(POLICY, bookings=BookingRules(open_ended=OpenEnded.REFUSE))
    assert starts(job(0, 0, None, 4), policy=policy, bookings=booking) == [200]


def test_job_without_an_end_runs_until_the_simulation_ends():
    scenario = Scenario([NODE], [job(0, 0, None, 2), job(1, 5, 10, 4)], {"default": POLICY}, until=100)
    result = replay(scenario)
    assert [each.status for each in result.outcomes] == [Status.RUNNING, Status.WAITING]
    assert figures_of(result, scenario).utilisation == {"cpu": 0.5}


def gpu_node(name: str, gpus: int, model: str) -> Node:
    devices = {"gpu": tuple(Device(index, model=model) for index in range(gpus))}
    return Node(name=name, allocatable={"cpu": 64_000, "gpu": gpus * 1000}, devices=devices)


def gpu_job(number: int, submitted: int, amount: int, *, model: str = "", run: int | None = 100) -> Job:
    constraints = Constraints(devices=(DeviceDemand("gpu", frozenset({model})),)) if model else Constraints()
    request = {"cpu": 1000, "gpu": amount}
    return Job(number, f"job-{number}", submitted, run, run, request, constraints=constraints)


def test_gpu_jobs_get_the_model_that_they_ask_for_and_share_devices():
    nodes = [gpu_node("a", 1, "A100"), gpu_node("t", 1, "T4")]
    jobs = [gpu_job(0, 0, 500, model="T4"), gpu_job(1, 1, 500, model="T4"), gpu_job(2, 2, 100, model="T4")]
    found = outcomes(*jobs, gpu_job(3, 3, 1000, model="A100"), nodes=nodes)
    assert [each.start for each in found] == [0, 1, 100, 3]
    assert [each.attempts[0].nodes for each in found] == [("t",), ("t",), ("t",), ("a",)]


def test_share_that_fits_on_no_single_device_counts_as_fragmented():
    # Both devices have 400 of 1000 left; the requests of 600 cannot use them.
    jobs = [gpu_job(0, 0, 600, run=None), gpu_job(1, 0, 600, run=None), gpu_job(2, 10, 600, run=None)]
    scenario = Scenario([gpu_node("a", 2, "A100")], jobs, {"default": POLICY}, until=20)
    figures = figures_of(replay(scenario), scenario).gpu
    assert figures is not None
    assert (figures.unallocated_percent, figures.fragmented_percent) == (40, 40)


def test_estimates_replace_the_time_limits_in_plans():
    # By its limit job 0 ends at 100, so job 2 (limit 60) passes job 1; in fact job 0 ends at 10, and 60 is too long.
    jobs = [job(0, 0, 10, 3, limit=100), job(1, 1, 10, 4, limit=100), job(2, 2, 60, 1, limit=60)]
    policy = replace(POLICY, head_of_line=HeadOfLine.BACKFILL)
    assert starts(*jobs, policy=policy) == [0, 62, 2]
    assert starts(*jobs, policy=policy, estimates=ActualRunTimes()) == [0, 10, 20]


def test_error_of_the_first_planned_start_is_measured():
    jobs = [job(0, 0, 40, 4, limit=100), job(1, 0, 10, 4)]
    scenario = Scenario([NODE], jobs, {"default": replace(POLICY, head_of_line=HeadOfLine.BACKFILL)})
    starts = figures_of(replay(scenario), scenario).starts
    assert starts is not None
    assert (starts.planned, starts.mean_error_seconds, starts.late) == (1, 60, 0)


def test_deadlines_that_are_met_are_counted():
    scenario = Scenario([NODE], [job(0, 0, 50, 4, deadline=50), job(1, 0, 50, 4, deadline=99)], {"default": POLICY})
    figures = figures_of(replay(scenario), scenario)
    assert (figures.deadlines, figures.deadline_hits) == (2, 1)


def test_share_of_a_tenant_is_compared_with_its_weight():
    rules = [TenantRules(Scope.PROJECT, "a", weight=300)]
    jobs = [job(0, 0, 50, 3, project="a"), job(1, 0, 50, 1, project="b")]
    scenario = Scenario([NODE], jobs, {"default": POLICY}, tenants=rules)
    figures = figures_of(replay(scenario), scenario)
    assert [(each.name, each.share, each.share_over_entitlement) for each in figures.tenants] == [
        ("a", 0.75, 1.0),
        ("b", 0.25, 1.0),
    ]
    assert figures.fairness == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"faults": [Fault(("other",), 1)]}, "node 'other'"),
        ({"nodes": [NODE, NODE]}, "two nodes have the same name"),
        ({"jobs": [job(0, 0, 1, 1, pool="other")]}, "no pool 'other'"),
        ({"jobs": [job(0, 0, 1, 1, booking="other")]}, "no booking 'other'"),
        ({"jobs": [job(0, 0, 1, 1), job(0, 0, 1, 1)]}, "the same number"),
    ],
)
def test_unknown_and_repeated_names_are_refused(change: dict[str, Any], message: str):
    scenario = Scenario([NODE], [job(0, 0, 1, 1)], {"default": POLICY})
    with pytest.raises(InvalidInput, match=message):
        replay(replace(scenario, **change))
