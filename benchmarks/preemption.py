"""Preemption alone: plans per second of processor time on a full cluster; a part of the benchmark `placement`."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mooring.model.decisions import Decision, Outcome
from mooring.model.labels import equal_to
from mooring.model.nodes.node import Node
from mooring.model.policy.preemption import Budgets, Preemption, RunningTask
from mooring.model.resources.devices import WHOLE, Device, DeviceShare
from mooring.model.workloads.constraints import Constraints, Spread
from mooring.model.workloads.workload import (
    NO_CONSTRAINTS,
    NOBODY,
    Task,
    Workload,
)
from mooring.scheduling import Cluster, Registry, Scheduler
from mooring.scheduling.compiled.engine import CompiledEngine
from mooring.scheduling.compiled.preemption import CompiledPreemptor
from mooring.scheduling.preemption.preemption import Preemptor
from mooring.scheduling.preemption.running_tasks import register_running_tasks

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ZONE = "topology.kubernetes.io/zone"
PREEMPTORS = 10_000
COMPARED = 10


@dataclass(frozen=True)
class Full:
    """Full nodes, and the tasks on them."""

    nodes: Sequence[Node]
    running_tasks: Sequence[RunningTask]


def measure(nodes: Sequence[Node]) -> dict[str, float]:
    """Preemptors per second through the kernels, and through the definition."""
    full = filled(nodes)
    budgets = Budgets({task.workload_id: 0 for task in full.running_tasks[::3]})
    figures = compiled("preemption", full)
    figures |= compiled("preemption_budgets", full, budgets)
    figures |= compiled("preemption_whole_gangs", _in_gangs(full), count=2000)
    figures |= compiled("preemption_devices", _with_devices(len(nodes)), changed=_half_a_device)
    figures |= compiled("preemption_topology", full, changed=_spread)
    figures |= by_definition("definition", full)
    figures |= by_definition("topology_definition", full, changed=_spread)
    return figures | as_kubernetes(len(nodes))


def compiled(
    name: str,
    full: Full,
    budgets: Budgets | None = None,
    *,
    changed: Callable[[Workload], Workload] = lambda each: each,
    count: int = PREEMPTORS,
    rounds: int = 5,
) -> dict[str, float]:
    """The kernels alone, and from workload objects to decision objects."""
    best, best_decided, planned, victims = float("inf"), float("inf"), 0, 0
    workloads = [changed(each) for each in preemptors(count)]
    for _ in range(rounds):
        kernels = _kernels(full, budgets)
        asked = kernels.queue([(each, _code(kernels, each)) for each in workloads])
        gc.collect()
        started = time.thread_time()
        decided = kernels.run(asked, NOW)
        best = min(best, time.thread_time() - started)
        if decided != count:
            raise RuntimeError(f"{name}: the kernels decided on {decided} of {count} preemptors")
        planned, victims = int((asked.row >= 0).sum()), int(asked.start[-1])
        kernels = _kernels(full, budgets)
        coded = [(each, _code(kernels, each)) for each in workloads]
        gc.collect()
        started = time.thread_time()
        kernels.plan(coded, NOW)
        best_decided = min(best_decided, time.thread_time() - started)
    _compare(full, budgets, workloads[:COMPARED])
    return {
        name: count / best,
        f"{name}_decisions": count / best_decided,
        f"{name}_planned": planned,
        f"{name}_victims": victims,
    }


def by_definition(
    name: str,
    full: Full,
    budgets: Budgets | None = None,
    *,
    changed: Callable[[Workload], Workload] = lambda each: each,
    plans: int = 20,
) -> dict[str, float]:
    """Preemptors of one kind: how long the first takes, for which all nodes are looked at, and the rate of the next."""
    preemptor = _preemptor(full, budgets or Budgets())
    spent: list[float] = []
    for number in range(plans + 1):
        each = changed(_workload(number, 4000, 16 << 30))
        started = time.thread_time()
        if preemptor.plan(each, each.tasks, NOW) is None:
            raise RuntimeError(f"nobody leaves for {each.name}")
        spent.append(time.thread_time() - started)
    return {f"preemption_{name}": plans / sum(spent[1:]), f"preemption_{name}_first_seconds": spent[0]}


def as_kubernetes(count: int) -> dict[str, float]:
    """Four tasks of low priority on each node, one preemptor for each node: whole passes, from objects to decisions."""
    nodes = [Node(name=f"node-{number:06}", allocatable={"cpu": 4000, "memory": 32 << 30}) for number in range(count)]
    request = {"cpu": 900, "memory": 500 << 20}
    running_tasks = [_running_task(number, nodes[number // 4], request, 0, NOW) for number in range(4 * count)]
    full = Full([_using(node, running_tasks[4 * at : 4 * at + 4]) for at, node in enumerate(nodes)], running_tasks)
    high = [_workload(number, 3000, 500 << 20) for number in range(count)]
    best, planned = float("inf"), 0
    for _ in range(3):
        scheduler = Scheduler(full.nodes, preemption=Preemption(), running_tasks=full.running_tasks, compiled=True)
        gc.collect()
        started = time.thread_time()
        result = scheduler.run(high, NOW)
        best = min(best, time.thread_time() - started)
        planned = result.outcomes[Outcome.RESERVED]
    return {"preemption_20000_tasks_5000_preemptors": count / best, "preemption_5000_preemptors_planned": planned}


def filled(nodes: Sequence[Node]) -> Full:
    """Tasks of four low priorities on every node until the next does not fit."""
    chance = random.Random(3)
    forms = [
        {"cpu": chance.choice((1000, 1500, 2000, 3000)) + n, "memory": chance.choice((4, 8, 12)) << 30}
        for n in range(20)
    ]
    running_tasks: list[RunningTask] = []
    full: list[Node] = []
    for node in nodes:
        here: list[RunningTask] = []
        taken: Counter[str] = Counter()
        while True:
            request = chance.choice(forms)
            if any(taken[slot] + amount > node.allocatable[slot] for slot, amount in request.items()):
                break
            taken.update(request)
            started = NOW - timedelta(seconds=chance.randrange(100_000))
            priority = chance.choice((1, 2, 3, 5))
            here.append(_running_task(len(running_tasks) + len(here), node, request, priority, started))
        running_tasks.extend(here)
        full.append(_using(node, here))
    return Full(full, running_tasks)


def preemptors(count: int) -> list[Workload]:
    chance = random.Random(4)
    forms = [(4000 + 500 * number, (16 << 30) + (number << 30)) for number in range(5)]
    return [_workload(number, *chance.choice(forms)) for number in range(count)]


def _workload(number: int, cpu: int, memory: int) -> Workload:
    return Workload(
        id=UUID(int=number + 1),
        name=f"preemptor-{number}",
        request={"cpu": cpu, "memory": memory},
        tasks=(Task(UUID(int=(1 << 64) + number), 0),),
        created_at=NOW,
        priority=100,
    )


def _running_task(number: int, node: Node, request: dict[str, int], priority: int, started: datetime) -> RunningTask:
    return RunningTask(
        task_id=UUID(int=number + 1),
        workload_id=UUID(int=(1 << 80) + number),
        node_id=node.id,
        priority=priority,
        request=request,
        constraints=NO_CONSTRAINTS,
        user_id=NOBODY,
        project_id=NOBODY,
        domain_id=NOBODY,
        started_at=started,
    )


def _using(node: Node, here: Sequence[RunningTask]) -> Node:
    used: Counter[str] = Counter()
    for task in here:
        used.update(task.request)
    return replace(node, used=dict(used), tasks=len(here))


def _in_gangs(full: Full) -> Full:
    """The same tasks, as workloads of ten tasks of one priority that are preempted as a whole."""
    ordered = sorted(full.running_tasks, key=lambda task: task.priority)
    gangs = [
        replace(
            task,
            workload_id=UUID(int=(1 << 90) + at // 10),
            priority=ordered[at - at % 10].priority,
            whole=True,
        )
        for at, task in enumerate(ordered)
    ]
    return Full(full.nodes, gangs)


def _with_devices(count: int) -> Full:
    """Nodes of four devices, each with two tasks that share it."""
    chance = random.Random(5)
    nodes: list[Node] = []
    running_tasks: list[RunningTask] = []
    for number in range(count):
        devices = tuple(Device(index, taken=WHOLE) for index in range(4))
        offered = {"cpu": 64_000, "memory": 256 << 30, "gpu": 4 * WHOLE}
        node = Node(name=f"node-{number:06}", allocatable=offered, devices={"gpu": devices})
        here = [
            replace(
                _running_task(
                    len(running_tasks) + at, node, {"cpu": 1000, "gpu": WHOLE // 2}, chance.choice((1, 2, 3)), NOW
                ),
                devices=(DeviceShare("gpu", at // 2, WHOLE // 2),),
            )
            for at in range(8)
        ]
        running_tasks += here
        nodes.append(_using(node, here))
    return Full(nodes, running_tasks)


def _half_a_device(workload: Workload) -> Workload:
    return replace(workload, request={"cpu": 1000, "gpu": WHOLE // 2})


def _spread(workload: Workload) -> Workload:
    labels = (("app", "preemptor"),)
    return replace(workload, constraints=Constraints(labels=labels, spread=(Spread(ZONE, 1, equal_to(dict(labels))),)))


def _preemptor(full: Full, budgets: Budgets) -> Preemptor:
    cluster = Cluster(full.nodes)
    running_tasks = register_running_tasks(cluster, full.running_tasks)
    return Preemptor(cluster, Registry().profile("locality"), running_tasks, Preemption(), budgets)


def _kernels(full: Full, budgets: Budgets | None) -> CompiledPreemptor:
    preemptor = _preemptor(full, budgets or Budgets())
    kernels = CompiledPreemptor(CompiledEngine(preemptor.cluster, preemptor.profile), preemptor)
    kernels.sync()
    return kernels


def _code(kernels: CompiledPreemptor, workload: Workload) -> int:
    code = kernels.code_of(workload)
    if code is None:
        raise RuntimeError(f"{workload.name} is not for the kernels")
    return code


def _compare(full: Full, budgets: Budgets | None, workloads: Sequence[Workload]) -> None:
    """The kernels must plan as the definition does."""
    preemptor = _preemptor(full, budgets or Budgets())
    expected = [preemptor.plan(each, each.tasks, NOW) for each in workloads]
    kernels = _kernels(full, budgets)
    found: list[Decision | None] = kernels.plan([(each, _code(kernels, each)) for each in workloads], NOW)
    if found != expected:
        raise RuntimeError("preemption: the kernels plan otherwise than NumPy")
