"""The state of the server as the scenario that a simulation continues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from uuid import UUID

from mooring.mirror.mirror import Mirror
from mooring.model.decisions import Placement
from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import Expectation
from mooring.model.policy.preemption import Budgets
from mooring.model.resources.devices import Device
from mooring.model.resources.slots import Amounts, total
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.simulation.jobs import Job
from mooring.simulation.live_state import Live, Reservation, RunningPart, Tenancy
from mooring.simulation.scenario import Scenario
from mooring.store.core.engine import Connection
from mooring.store.nodes import running_tasks
from mooring.store.views import running_work
from mooring.store.views.running_work import RunningWork, TaskOnNode
from mooring.store.workloads import run_times
from mooring.store.workloads.run_times import History, Kind

MOST_WORKLOADS = 50_000
MOST_NODES = 20_000
MOST_TASKS = 500_000
"""Workloads that are pending or on nodes."""
_NO_HISTORY: History = {}


@dataclass(frozen=True, slots=True)
class _RunTimes:
    """The run times that work is expected to have, by pool."""

    by_pool: Mapping[str, History]

    def of(self, workload: Workload, elapsed: timedelta = timedelta()) -> int | None:
        """Return the expected seconds of a task in all: predicted, usual, or its time limit; None if unknown."""
        limit = workload.time_limit_seconds
        if workload.predicted_seconds is not None and timedelta(seconds=workload.predicted_seconds) > elapsed:
            return workload.predicted_seconds
        times = self.by_pool.get(workload.pool, _NO_HISTORY).get(Kind.of(workload.user_id, workload.type, limit))
        usual = None if times is None else run_times.expected(times, elapsed)
        if usual is None:
            return limit
        seconds = max(ceil(usual.total_seconds()), 1)
        return seconds if limit is None else min(seconds, limit)


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of the store that the scenario needs in addition to the mirror."""

    at: datetime
    running: Sequence[RunningWork]
    times: _RunTimes
    budgets: Budgets


async def read_state(connection: Connection, mirror: Mirror, at: datetime) -> Found:
    """Read the state of the server at this time. Raise InvalidInput if it is too large for a what-if question."""
    nodes = sum(node is not None for node in mirror.cluster.nodes)
    on_nodes = await running_work.tasks_by_workload(connection)
    pending = sum(len(each.tasks) for each in mirror.queue.values())
    _check_size(nodes, len(mirror.queue.keys() | on_nodes.keys()), pending + sum(on_nodes.values()))
    running = await running_work.read(connection, list(on_nodes))
    await mirror.tenancy.read_new_tenants(connection, [each.workload for each in running], at)
    times = {name: await run_times.last_runs(connection, pool.id, at) for name, pool in mirror.pools.items()}
    return Found(at, running, _RunTimes(times), await running_tasks.budgets(connection))


def scenario_of(found: Found, mirror: Mirror) -> Scenario:
    """Return the state as a scenario. Its time grows with the cluster, so run it in a thread."""
    at, times = found.at, found.times
    nodes = [node for node in mirror.cluster.nodes if node is not None]
    now = seconds_of(at)
    waiting = dict(mirror.queue)
    jobs: list[Job] = []
    parts: list[RunningPart] = []
    names = {node.id: node.name for node in nodes}
    histories = {name for name, p in mirror.pools.items() if p.policy.backfill.expectation is Expectation.HISTORY}
    for each in found.running:
        workload = waiting.pop(each.workload.id, None) or mirror.predicted(each.workload)
        jobs.append(_job(len(jobs), workload, len(each.tasks), times, each.preemptible))
        for tasks in _parts(each):
            guesses = workload.predicted_seconds is not None or workload.pool in histories
            parts.append(_part(jobs[-1], each, tasks, names, times, at, guesses=guesses))
    jobs += [_job(len(jobs) + at_, each, 0, times, preemptible=True) for at_, each in enumerate(waiting.values())]
    tenancy = mirror.tenancy
    return Scenario(
        nodes=without_parts(nodes, parts),
        jobs=jobs,
        pools={name: pool.policy for name, pool in mirror.pools.items()},
        live=Live(
            at=now,
            running=parts,
            reservations=[Reservation(id, *each) for id, each in mirror.calendar.promised().items()],
            tenancy=Tenancy(tenancy.usage, *tenancy.rules()),
            factors=dict(mirror.factors),
            guarantees=mirror.guarantees,
            budgets=found.budgets,
            typical={name: tuple(each) for name, each in mirror.cluster.devices.typical.items()},
        ),
    )


def _check_size(nodes: int, workloads: int, tasks: int) -> None:
    sizes = ((nodes, MOST_NODES, "nodes"), (workloads, MOST_WORKLOADS, "workloads"), (tasks, MOST_TASKS, "tasks"))
    for number, most, what in sizes:
        if number > most:
            raise InvalidInput(
                f"the cluster has {number:,} {what}; what-if questions are answered up to {most:,}; "
                "use mooring simulate --from-server instead",
                code="what-if-too-large",
                details={what: number, "limit": most},
            )


def _job(number: int, workload: Workload, running: int, times: _RunTimes, preemptible: bool) -> Job:
    return Job(
        number,
        workload.name,
        seconds_of(workload.created_at),
        times.of(workload),
        workload.time_limit_seconds,
        workload.request,
        max(len(workload.tasks) + running, 1),
        pool=workload.pool,
        priority=workload.priority,
        preemptible=preemptible,
        constraints=workload.constraints,
        workload=workload,
    )


def _parts(work: RunningWork) -> list[tuple[TaskOnNode, ...]]:
    """Return the tasks that end together: those of a gang, otherwise each task alone."""
    ends_as_one = work.workload.gang and len({str(sorted(task.request.items())) for task in work.tasks}) == 1
    return [work.tasks] if ends_as_one else [(task,) for task in work.tasks]


def _part(
    job: Job,
    work: RunningWork,
    tasks: Sequence[TaskOnNode],
    names: Mapping[UUID, str],
    times: _RunTimes,
    at: datetime,
    *,
    guesses: bool,
) -> RunningPart:
    assert job.workload is not None
    now, grace = seconds_of(at), work.workload.stop_grace_seconds
    workload = replace(job.workload, request=tasks[0].request, tasks=tuple(each.task for each in tasks), occupied={})
    started = min((each.started_at for each in tasks if each.started_at is not None), default=at)
    start = min(seconds_of(started), now)
    expected = times.of(job.workload, at - started)
    end = None if expected is None else max(start + expected, now + 1)
    latest = _latest_end(work, tasks, at)
    if any(each.leaving for each in tasks):
        end = now + max(grace, 1)
    if latest is not None:
        end = latest if end is None else min(end, latest)
    placements = tuple(
        Placement(each.task.id, each.node_id, names.get(each.node_id, ""), 0, 0, each.ports, each.devices)
        for each in tasks
        if each.node_id in names
    )
    return RunningPart(
        job.number,
        workload,
        placements,
        start,
        end,
        latest_end=latest,
        guessed_end=end if guesses and end != latest else None,
        preemptible=work.preemptible,
        whole=work.whole,
    )


def _latest_end(work: RunningWork, tasks: Sequence[TaskOnNode], at: datetime) -> int | None:
    """Return the latest end as the scheduler knows it: the end of the booking, or the time limit with its grace."""
    if work.timeslot_ends_at is not None:
        return max(seconds_of(work.timeslot_ends_at), seconds_of(at) + 1)
    limit = work.workload.time_limit_seconds
    grace = timedelta(seconds=work.workload.stop_grace_seconds)
    if any(each.leaving for each in tasks):
        return seconds_of(at + grace) + 1
    if limit is None:
        return None
    ends = [(each.deadline_at or (each.started_at or at) + timedelta(seconds=limit)) + grace for each in tasks]
    return max(ceil(max(ends).timestamp()), seconds_of(at) + 1)


def without_parts(nodes: Sequence[Node], parts: Sequence[RunningPart]) -> list[Node]:
    """Return the nodes without the amounts, devices and numbers of tasks that these parts occupy.

    The rest is occupied by tasks that the simulation does not continue, such as lost ones.
    """
    taken: defaultdict[UUID, list[Amounts]] = defaultdict(list)
    shares: defaultdict[tuple[UUID, str, int], int] = defaultdict(int)
    for part in parts:
        for each in part.placements:
            taken[each.node_id].append(part.workload.request)
            for share in each.devices:
                shares[each.node_id, share.slot, share.device] += share.amount
    return [_without(node, taken[node.id], shares) if node.id in taken else node for node in nodes]


def _without(node: Node, taken: Sequence[Amounts], shares: Mapping[tuple[UUID, str, int], int]) -> Node:
    own, counted = total(taken), total((node.held, node.reserved, node.used))
    left = {slot: amount for slot, all_of in counted.items() if (amount := all_of - own.get(slot, 0)) > 0}
    return replace(
        node,
        held={},
        reserved={},
        used=left,
        tasks=max(node.tasks - len(taken), 0),
        uncounted={},
        devices={
            slot: tuple(_device(device, shares.get((node.id, slot, device.index), 0)) for device in devices)
            for slot, devices in node.devices.items()
        },
    )


def _device(device: Device, taken: int) -> Device:
    return replace(device, taken=max(device.taken - taken, 0))
