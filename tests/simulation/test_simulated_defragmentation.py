"""Defragmentation as a policy in the simulation, by small cases with known starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.defragmentation import DefragmentationRules
from mooring.model.policy.pools import HeadOfLine, PoolPolicy
from mooring.model.resources.devices import Device
from mooring.model.tenancy.quotas import Scope
from mooring.simulation.engine import replay
from mooring.simulation.jobs import Job
from mooring.simulation.outcomes import Cause, JobOutcome
from mooring.simulation.scenario import Defragmentation, Scenario, TenantRules

SPREADING = PoolPolicy("spread", sequencer="fifo", head_of_line=HeadOfLine.SKIP)


def gpu_node(name: str) -> Node:
    devices = tuple(Device(index) for index in range(4))
    return Node(name=name, allocatable={"cpu": 16_000, "gpu": 4000}, devices={"gpu": devices})


def gpu_job(number: int, submitted: int, run: int | None, gpus: int, **rest: Any) -> Job:
    return Job(number, f"job-{number}", submitted, run, run, {"cpu": 1000, "gpu": gpus * 1000}, **rest)


def outcomes(*jobs: Job, nodes: Sequence[Node], rule: Defragmentation | None) -> Sequence[JobOutcome]:
    rules = [] if rule is None else [rule]
    return replay(Scenario(nodes, jobs, {"default": SPREADING}, defragmentation=rules)).outcomes


FRAGMENTED = (gpu_job(0, 0, 1000, 1), gpu_job(1, 0, 1000, 2), gpu_job(2, 10, 100, 4))
"""The first two jobs run on different nodes, so that the third waits."""


def test_defragmentation_moves_a_job_that_starts_again_for_one_that_needs_a_whole_node():
    nodes = [gpu_node("a"), gpu_node("b")]
    rule = Defragmentation("default", every_seconds=60, moves=5)
    small, large, whole = outcomes(*FRAGMENTED, nodes=nodes, rule=rule)
    ((before, lost), again) = (small.attempts[0][:2], small.attempts[1])
    assert (before, lost, small.attempts[0].cause) == (0, 60, Cause.MOVED)
    assert (again.start, again.end, again.nodes) == (60, 1060, large.attempts[0].nodes)
    assert (whole.start, whole.attempts[0].nodes) == (60, small.attempts[0].nodes)
    assert (small.moves, large.moves, small.preemptions) == (1, 0, 0)


@pytest.mark.parametrize(
    "rule",
    [
        None,
        Defragmentation("default", every_seconds=60, moves=5, max_lost_seconds=59),
    ],
)
def test_whole_node_is_free_at_the_end_of_the_others_without_moves(rule: Defragmentation | None):
    nodes = [gpu_node("a"), gpu_node("b")]
    assert outcomes(*FRAGMENTED, nodes=nodes, rule=rule)[2].start == 1000


def test_gangs_and_jobs_that_are_not_preemptible_stay_where_they_are():
    rule = Defragmentation("default", every_seconds=60, moves=5)
    nodes = [gpu_node("a"), gpu_node("b"), gpu_node("c")]
    jobs = gpu_job(0, 0, 1000, 1, tasks=2), gpu_job(1, 0, 1000, 1, preemptible=False), gpu_job(2, 10, 100, 4)
    assert outcomes(*jobs, nodes=nodes, rule=rule)[2].start == 1000


def test_simulation_with_defragmentation_ends_with_jobs_that_never_end():
    rule = Defragmentation("default", every_seconds=60, moves=5)
    nodes = [gpu_node("a"), gpu_node("b")]
    jobs = gpu_job(0, 0, None, 1), gpu_job(1, 0, None, 2), gpu_job(2, 70, None, 4), gpu_job(3, 70, None, 4)
    assert [each.start for each in outcomes(*jobs, nodes=nodes, rule=rule)] == [120, 0, 120, None]


def test_defragmentation_of_an_unknown_pool_is_an_error():
    with pytest.raises(InvalidInput, match="no pool 'other'"):
        outcomes(*FRAGMENTED, nodes=[gpu_node("a")], rule=Defragmentation("other", every_seconds=60, moves=1))


def test_pool_with_automatic_moves_makes_them_every_hour_within_its_budget():
    nodes = [gpu_node("a"), gpu_node("b")]
    policy = replace(SPREADING, defragmentation=DefragmentationRules(moves_per_hour=1, max_lost_seconds=7200))
    jobs = gpu_job(0, 0, 9000, 1), gpu_job(1, 0, 9000, 2), gpu_job(2, 10, 100, 4)
    small, large, whole = replay(Scenario(nodes, jobs, {"default": policy})).outcomes
    assert (small.moves + large.moves, whole.start) == (1, 3600)
    idle = replay(Scenario(nodes, jobs[:2], {"default": policy})).outcomes
    assert sum(each.moves for each in idle) == 0


def test_work_over_its_quota_moves_nothing():
    nodes = [gpu_node("a"), gpu_node("b")]
    jobs = [replace(job, project="p") for job in FRAGMENTED]
    rule = Defragmentation("default", every_seconds=60, moves=5)
    tenants = [TenantRules(Scope.PROJECT, "p", limits={"gpu": 4000})]
    found = replay(Scenario(nodes, jobs, {"default": SPREADING}, tenants=tenants, defragmentation=[rule])).outcomes
    assert sum(each.moves for each in found) == 0
