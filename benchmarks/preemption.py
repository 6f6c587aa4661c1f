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

from mooring.model.constraints import Constraints, Spread
from mooring.model.decisions import Decision, Outcome
from mooring.model.devices import WHOLE, Device, DeviceShare
from mooring.model.labels import equal_to
from mooring.model.nodes import Node
from mooring.model.preemption import Budgets, Preemption, Resident
from mooring.model.workloads import NO_CONSTRAINTS, NOBODY, Task, Workload
from mooring.scheduling import Cluster, Registry, Scheduler
from mooring.scheduling.compiled_preemption import CompiledPreemptor
from mooring.scheduling.engine import Engine
from mooring.scheduling.preemption import Preemptor
from mooring.scheduling.residents import told_residents

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ZONE = "topology.kubernetes.io/zone"
PREEMPTORS = 10_000
COMPARED = 10


@dataclass(frozen=True)
class Full:
    """Nodes without room, and who is on them."""

    nodes: Sequence[Node]
    residents: Sequence[Resident]


def measure(nodes: Sequence[Node]) -> dict[str, float]:
    """Preemptors per second: resources and static filters through the kernels, the rest through the definition."""
    full = filled(nodes)
    figures = compiled(full)
    figures |= by_definition("definition", full)
    budgets = Budgets({resident.workload_id: 0 for resident in full.residents[::3]})
    figures |= by_definition("budgets", full, budgets)
    figures |= by_definition("whole_gangs", _in_gangs(full))
    figures |= by_definition("devices", _with_devices(len(nodes)), changed=_half_a_device)
    figures |= by_definition("topology", full, changed=_spread, plans=3)
    return figures | as_kubernetes(len(nodes))


def compiled(full: Full, rounds: int = 5) -> dict[str, float]:
    best, planned, victims = float("inf"), 0, 0
    workloads = preemptors(PREEMPTORS)
    for _ in range(rounds):
        preemptor = _preemptor(full, Budgets())
        kernels = CompiledPreemptor(Engine(preemptor.cluster, preemptor.profile), preemptor)
        kernels.sync()
        asked = kernels.queue([(each, _code(kernels, each)) for each in workloads])
        gc.collect()
        started = time.thread_time()
        kernels.run(asked, NOW)
        best = min(best, time.thread_time() - started)
        planned, victims = int((asked.row >= 0).sum()), int(asked.start[-1])
    _compare(full, workloads[:COMPARED])
    return {"preemption": len(workloads) / best, "preemption_planned": planned, "preemption_victims": victims}


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
    residents = [_resident(number, nodes[number // 4], request, 0, NOW) for number in range(4 * count)]
    full = Full([_using(node, residents[4 * at : 4 * at + 4]) for at, node in enumerate(nodes)], residents)
    high = [_workload(number, 3000, 500 << 20) for number in range(count)]
    best, planned = float("inf"), 0
    for _ in range(3):
        scheduler = Scheduler(full.nodes, preemption=Preemption(), residents=full.residents, compiled=True)
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
    residents: list[Resident] = []
    full: list[Node] = []
    for node in nodes:
        here: list[Resident] = []
        taken: Counter[str] = Counter()
        while True:
            request = chance.choice(forms)
            if any(taken[slot] + amount > node.allocatable[slot] for slot, amount in request.items()):
                break
            taken.update(request)
            started = NOW - timedelta(seconds=chance.randrange(100_000))
            priority = chance.choice((1, 2, 3, 5))
            here.append(_resident(len(residents) + len(here), node, request, priority, started))
        residents.extend(here)
        full.append(_using(node, here))
    return Full(full, residents)


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


def _resident(number: int, node: Node, request: dict[str, int], priority: int, started: datetime) -> Resident:
    return Resident(
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


def _using(node: Node, here: Sequence[Resident]) -> Node:
    used: Counter[str] = Counter()
    for resident in here:
        used.update(resident.request)
    return replace(node, used=dict(used), tasks=len(here))


def _in_gangs(full: Full) -> Full:
    """The same tasks, ten of one priority at a time being one workload that lives or dies as a whole."""
    ordered = sorted(full.residents, key=lambda resident: resident.priority)
    gangs = [
        replace(
            resident, workload_id=UUID(int=(1 << 90) + at // 10), priority=ordered[at - at % 10].priority, whole=True
        )
        for at, resident in enumerate(ordered)
    ]
    return Full(full.nodes, gangs)


def _with_devices(count: int) -> Full:
    """Nodes of four devices, each with two tasks that share it."""
    chance = random.Random(5)
    nodes: list[Node] = []
    residents: list[Resident] = []
    for number in range(count):
        devices = tuple(Device(index, taken=WHOLE) for index in range(4))
        offered = {"cpu": 64_000, "memory": 256 << 30, "gpu": 4 * WHOLE}
        node = Node(name=f"node-{number:06}", allocatable=offered, devices={"gpu": devices})
        here = [
            replace(
                _resident(len(residents) + at, node, {"cpu": 1000, "gpu": WHOLE // 2}, chance.choice((1, 2, 3)), NOW),
                devices=(DeviceShare("gpu", at // 2, WHOLE // 2),),
            )
            for at in range(8)
        ]
        residents += here
        nodes.append(_using(node, here))
    return Full(nodes, residents)


def _half_a_device(workload: Workload) -> Workload:
    return replace(workload, request={"cpu": 1000, "gpu": WHOLE // 2})


def _spread(workload: Workload) -> Workload:
    labels = (("app", "preemptor"),)
    return replace(workload, constraints=Constraints(labels=labels, spread=(Spread(ZONE, 1, equal_to(dict(labels))),)))


def _preemptor(full: Full, budgets: Budgets) -> Preemptor:
    cluster = Cluster(full.nodes)
    residents = told_residents(cluster, full.residents)
    return Preemptor(cluster, Registry().profile("locality"), residents, Preemption(), budgets)


def _code(kernels: CompiledPreemptor, workload: Workload) -> int:
    code = kernels.code_of(workload)
    if code is None:
        raise RuntimeError(f"{workload.name} is not for the kernels")
    return code


def _compare(full: Full, workloads: Sequence[Workload]) -> None:
    """The kernels must plan as the definition does."""
    preemptor = _preemptor(full, Budgets())
    expected = [preemptor.plan(each, each.tasks, NOW) for each in workloads]
    preemptor = _preemptor(full, Budgets())
    kernels = CompiledPreemptor(Engine(preemptor.cluster, preemptor.profile), preemptor)
    kernels.sync()
    found: list[Decision | None] = kernels.plan([(each, _code(kernels, each)) for each in workloads], NOW)
    if found != expected:
        raise RuntimeError("preemption: the kernels plan otherwise than the definition")
