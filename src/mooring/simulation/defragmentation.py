"""Defragmentation in a simulation: the moves that the planner of a server would make now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mooring.model.decisions import Decision
from mooring.model.policy.defragmentation import Move, PlacedTask
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission
from mooring.scheduling.autoscaling.scale_up import copy_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.defragmentation.planner import plan
from mooring.scheduling.defragmentation.wanted import devices_of
from mooring.scheduling.plugins.profiles import Profile
from mooring.simulation.jobs import Job
from mooring.simulation.scenario import Defragmentation


def planned_moves(
    cluster: Cluster,
    profile: Profile,
    rule: Defragmentation,
    running: Iterable[tuple[Decision, int, Job]],
    pending: Sequence[Workload],
    admission: Admission | None,
    now: int,
) -> Sequence[Move]:
    """Return the moves in order. `running`: the jobs of all pools with their starts; `pending`: in queue order."""
    placed = [task for decision, start, job in running for task in _placed_tasks(rule, decision, job, now - start)]
    if admission is not None:
        pending = admission.within_limits(pending)
    if rule.for_pending and not any(devices_of(workload) for workload in pending):
        return ()
    if not any(task.movable for task in placed):
        return ()
    found = plan(
        copy_of(cluster), profile, rule.pool, placed, pending, gain=rule.gain, most=rule.moves, with_bound=False
    )
    return found.moves


def _placed_tasks(rule: Defragmentation, decision: Decision, job: Job, ran_seconds: int) -> list[PlacedTask]:
    """Return the tasks of a job. As on a server, preemptible jobs of one task move, outside of bookings."""
    workload = decision.workload
    if workload.pool != rule.pool:
        return []
    # An earlier move made the job prefer a node; the next one is free to choose.
    moving = replace(workload, constraints=job.constraints)
    may_move = job.preemptible and job.tasks == 1 and not job.booking and ran_seconds <= rule.max_lost_seconds
    return [
        PlacedTask(
            each.task_id, each.node_id, moving, workload.constraints, each.devices, may_move, lost_seconds=ran_seconds
        )
        for each in decision.placements
    ]
