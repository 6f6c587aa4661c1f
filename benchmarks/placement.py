"""Placement alone: decisions per second of processor time, without store, API or agents.

Every node is considered for every task. The rate of the NumPy path on the same work is beside each figure, so that
their ratio can be read on a busy machine; where both decided, the decisions are compared, and so are all ways in which
the kernels find the best node. The benchmark `scalability` shows how the rates change with the size.
"""

from __future__ import annotations

import gc
import random
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import truediv
from statistics import median
from uuid import UUID

import numpy as np

from benchmarks import preemption
from mooring.model.decisions import Decision, Outcome
from mooring.model.labels import Operator, Requirement, equal_to
from mooring.model.nodes.node import REGIONS, Node
from mooring.model.workloads.constraints import (
    Constraints,
    Effect,
    HostPort,
    NodeTerm,
    PreferredNodes,
    PreferredTasks,
    Spread,
    Taint,
    TaskTerm,
    Toleration,
)
from mooring.model.workloads.workload import Task, Workload
from mooring.scheduling import (
    Cluster,
    Profile,
    Registry,
    Scheduler,
)
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.compiled import compilation, layout, scorer_kernel
from mooring.scheduling.compiled.engine import CompiledEngine
from mooring.scheduling.compiled.placement_batch import Batch
from mooring.scheduling.gang_size import gang_size
from mooring.scheduling.plugins.protocols import DependsOn, Scorer
from mooring.scheduling.queue.pending_queue import PendingQueue
from mooring.server import interpreter

NODES = 5000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
IMPOSSIBLE = 1_000_000
MIN_GAIN = 30
"""The minimum speed-up of the kernels over NumPy, which reference counting in them would prevent."""


@dataclass(frozen=True)
class Form:
    """The request and constraints of equal tasks."""

    cpu: int
    memory_mib: int
    constraints: Constraints
    gpu: int = 0


@dataclass(frozen=True)
class Work:
    name: str
    workloads: list[Workload]
    compared: int = 1000
    """Number of workloads that the NumPy path decides as well."""
    profile: str = "locality"
    gpus: bool = False
    """Six nodes in ten have eight GPUs."""


def run() -> dict[str, float]:
    """Decisions per second by kind of work, on 5,000 nodes."""
    if not compilation.wait():
        raise RuntimeError(f"the kernels cannot be compiled here: {compilation.failure()}")
    interpreter.tune()
    figures: dict[str, float] = {}
    for work in (
        Work("basic", queue(basic_forms(20), 20_000)),
        Work("one_deployment", [deployment(100_000)]),
        Work("diverse", queue(diverse_forms(10_000), 10_000, shuffle=False)),
        Work("spread", queue(spread_forms(), 10_000)),
        Work("anti_affinity", queue(anti_affinity_forms(), 10_000)),
        Work("affinity", queue(affinity_forms(), 10_000)),
        Work("mixed", queue(mixed_forms(), 10_000, gangs=True)),
        Work("gangs", gangs(10_000), compared=40),
        Work("kubernetes_basic", queue(basic_forms(20), 20_000), profile="kubernetes"),
        Work("fractional_gpus", queue(gpu_forms(), 10_000), gpus=True),
        Work("fragmentation_aware", queue(gpu_forms(), 10_000), compared=100, profile="gpu", gpus=True),
    ):
        figures |= measure(work, NODES)
    if figures["basic"] < MIN_GAIN * figures["basic_numpy"]:
        raise RuntimeError("the kernels are hardly faster than NumPy: see the compiler options in `kernel_cache`")
    figures |= five_hundred_gangs()
    figures |= flood(NODES)
    figures |= waiting(NODES)
    figures |= from_objects(NODES)
    figures |= plugins(NODES)
    figures |= preemption.measure(make_nodes(NODES))
    figures["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def measure(
    work: Work, nodes: int, *, rounds: int = 5, compare: bool = True, mode: int = layout.AUTOMATIC
) -> dict[str, float]:
    """Return the rate of the kernels on the whole queue, and that of the NumPy path on its beginning."""
    tasks = sum(len(workload.tasks) for workload in work.workloads)
    best = float("inf")
    placed = 0
    for _ in range(rounds):
        engine = new_engine(nodes, work.profile, mode=mode, gpus=work.gpus)
        batch = batch_of(engine, work.workloads)
        asked = engine.queue(batch)
        gc.collect()
        started = time.thread_time()
        answers, _ = engine.run(asked)
        best = min(best, time.thread_time() - started)
        placed = int(answers.found[answers.found >= asked.min_tasks].sum())
    figures = {work.name: tasks / best, f"{work.name}_placed": placed}
    if compare:
        check_ways(work, nodes)
        figures[f"{work.name}_numpy"] = numpy_rate(work, nodes)
    return figures


def check_ways(work: Work, nodes: int) -> None:
    """Refreshing, rebuilding and scanning must choose the same nodes."""
    some = work.workloads[:1500]
    if len(some) == 1:
        some = [deployment(3000)]
    answers = []
    for mode in (layout.AUTOMATIC, layout.ALWAYS_REFRESH, layout.ALWAYS_REBUILD, layout.ALWAYS_SCAN):
        engine = new_engine(nodes, work.profile, mode=mode, gpus=work.gpus)
        answers.append(engine.place(batch_of(engine, some)))
    if any(other != answers[0] for other in answers[1:]):
        raise RuntimeError(f"{work.name}: the ways of picking differ")


def numpy_rate(work: Work, nodes: int) -> float:
    some = work.workloads[: work.compared]
    profile = Registry().profile(work.profile)
    if len(some) == 1:
        some = [deployment(work.compared)]
    machines = make_nodes(nodes, gpus=work.gpus)
    plain = Scheduler(machines, profile=profile, compiled=False)
    plain.run(some[:1], NOW)
    plain = Scheduler(machines, profile=profile, compiled=False)
    started = time.thread_time()
    expected = plain.run(some, NOW)
    spent = time.thread_time() - started
    if decisions(Scheduler(machines, profile=profile, compiled=True), some) != [
        (decision.outcome, decision.placements, decision.feasible_nodes) for decision in expected.decisions
    ]:
        raise RuntimeError(f"{work.name}: the kernels decide otherwise than the NumPy path")
    return sum(len(workload.tasks) for workload in some) / spent


def decisions(scheduler: Scheduler, workloads: list[Workload]) -> list[tuple[object, ...]]:
    passed = scheduler.run(workloads, NOW)
    return [(decision.outcome, decision.placements, decision.feasible_nodes) for decision in passed.decisions]


def five_hundred_gangs() -> dict[str, float]:
    """1,000 nodes, 500 gangs of 20: tasks per second from workloads to decisions, and the number of placed gangs."""
    form = Form(2500, 8192, Constraints())
    waiting = [workload(number, form, tasks=20) for number in range(500)]
    best, placed = 0.0, 0
    for _ in range(5):
        scheduler = Scheduler(make_nodes(1000), compiled=True)
        gc.collect()
        started = time.thread_time()
        passed = scheduler.place(waiting, NOW)
        best = max(best, 10_000 / (time.thread_time() - started))
        placed = passed.placements // 20
    return {"gangs_of_20": best, "gangs_of_20_placed": placed}


def flood(nodes: int) -> dict[str, float]:
    """The time that 5,000 tasks that fit nowhere add to 20,000 that do, in percent."""
    good = queue(basic_forms(20), 20_000)
    same, different = impossible_forms()
    chance = random.Random(3)

    def mixed_in(bad: Iterable[Form]) -> list[Workload]:
        """Return the workloads that fit in the same order, with those that do not fit anywhere between them."""
        others = [workload(20_000 + number, form) for number, form in enumerate(bad)]
        places = [
            *((number, each) for number, each in enumerate(good)),
            *((chance.random() * 20_000, each) for each in others),
        ]
        return [each for _, each in sorted(places, key=lambda entry: entry[0])]

    floods = {"alone": good, "one_shape": mixed_in(same), "different": mixed_in(different)}
    spent: dict[str, list[float]] = {name: [] for name in floods}
    for _ in range(25):
        for name, some in floods.items():
            engine = new_engine(nodes)
            asked = engine.queue(batch_of(engine, some))
            gc.collect()
            started = time.thread_time()
            engine.run(asked)
            spent[name].append(time.thread_time() - started)
    # Each is compared with its neighbour in time: on a shared machine the best of many runs may be luck of one side.
    return {
        f"flood_{name}_percent": 100 * (median(map(truediv, spent[name], spent["alone"])) - 1)
        for name in ("one_shape", "different")
    }


def waiting(nodes: int) -> dict[str, float]:
    """The time that 5,000 pending workloads that fit nowhere add to passes over 12,000 tasks that fit, in percent.

    Also the one-time cost of the different ones: the pass that finds no placement, and their reasons.
    """
    good = queue(basic_forms(20), 14_000)
    same, different = impossible_forms()
    unschedulable = {"alone": (), "one_shape": same, "different": different}
    spent: dict[str, list[float]] = {name: [] for name in unschedulable}
    figures: dict[str, float] = {}
    for _ in range(9):
        queues = {name: QueuePasses(nodes) for name in unschedulable}
        for name, passes in queues.items():
            come = [workload(20_000 + number, form) for number, form in enumerate(unschedulable[name])]
            first_seconds = passes.run(come)
            passes.run(good[:2000])
            if come:
                figures[f"waiting_{name}_first_seconds"] = first_seconds
        gc.collect()
        # The queues alternate pass by pass, and each of them is first equally often.
        order = list(queues)
        for first in range(2000, len(good), 2000):
            for name in order:
                spent[name].append(queues[name].run(good[first : first + 2000]))
            order.append(order.pop(0))
    for name in ("one_shape", "different"):
        figures[f"waiting_{name}_reasons_seconds"] = queues[name].say_reasons()
        figures[f"waiting_{name}_percent"] = 100 * (median(map(truediv, spent[name], spent["alone"])) - 1)
    return figures


class QueuePasses:
    """Passes with a pending queue, as the leader runs them, without the store."""

    def __init__(self, nodes: int) -> None:
        self.scheduler = Scheduler(make_nodes(nodes), compiled=True)
        self.pending_queue = PendingQueue(self.scheduler.cluster)

    def run(self, workloads: list[Workload]) -> float:
        """Run a pass with new work. Return its duration."""
        started = time.thread_time()
        for each in workloads:
            self.pending_queue.admit(each)
        self.pending_queue.add_unschedulable(
            self.scheduler.place(self.pending_queue.take(NOW), NOW), self.scheduler.profile, NOW
        )
        return time.thread_time() - started

    def say_reasons(self) -> float:
        started = time.thread_time()
        for group in self.pending_queue.unexplained(IMPOSSIBLE):
            decision = Decision(group.entry.workload, Outcome.WAITING)
            reason = self.scheduler.with_reason(decision, group.unplaced).reason
            if reason is None:
                raise RuntimeError("work waits without a reason")
            self.pending_queue.explained(group, reason)
        return time.thread_time() - started


def from_objects(nodes: int) -> dict[str, float]:
    """Decide through a whole scheduler, from workloads to decisions."""
    rates = [rate_of_passes(Scheduler(make_nodes(nodes), compiled=True), 20) for _ in range(5)]
    return {"objects_to_decisions": max(rates)}


class WarmNodes:
    """A row-local plugin in NumPy: prefers nodes that have little left."""

    name = "warm_nodes"
    depends_on: DependsOn = "row"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        left = cluster.allocatable[0, rows] - cluster.taken[0, rows]
        scores: Scores = 1_000_000 - np.minimum(left, 100_000) * 10
        return scores


class CompiledWarmNodes(WarmNodes):
    """The same plugin with a formula for the kernels."""

    kernel = scorer_kernel.row_score(lambda free, inverse, request, row: 1_000_000 - min(free[row, 0], 100_000) * 10)


class StaticPlugin(WarmNodes):
    """A static plugin, which depends on nodes and on no counter."""

    name = "static_plugin"
    depends_on: DependsOn = "static"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        scores: Scores = cluster.allocatable[0, rows] // 100
        return scores


def plugins(nodes: int) -> dict[str, float]:
    """Whole passes of a thousand on basic work: without a plugin, and with one of each kind beside the built-in."""
    given = Registry().profile()
    kinds: dict[str, tuple[tuple[tuple[Scorer, int], ...], int]] = {
        "none": ((), 20),
        "static": (((StaticPlugin(), 30),), 20),
        "compiled": (((CompiledWarmNodes(), 30),), 20),
        "numpy": (((WarmNodes(), 30),), 1),
    }
    figures = {f"plugin_{name}": 0.0 for name in kinds}
    for _ in range(3):
        for name, (scorers, passes) in kinds.items():
            profile = Profile("own", given.filters, (*given.scorers, *scorers))
            rate = rate_of_passes(Scheduler(make_nodes(nodes), profile=profile, compiled=True), passes)
            figures[f"plugin_{name}"] = max(figures[f"plugin_{name}"], rate)
    return figures


def rate_of_passes(scheduler: Scheduler, passes: int) -> float:
    """Decisions per second from workloads with one task each, a thousand at a time, after a first thousand."""
    workloads = queue(basic_forms(20), 1000 * (passes + 1))
    scheduler.run(workloads[:1000], NOW)
    gc.collect()
    started = time.thread_time()
    for first in range(1000, len(workloads), 1000):
        scheduler.run(workloads[first : first + 1000], NOW)
    return 1000 * passes / (time.thread_time() - started)


def new_engine(
    nodes: int, profile: str = "locality", *, mode: int = layout.AUTOMATIC, gpus: bool = False
) -> CompiledEngine:
    engine = CompiledEngine(Cluster(make_nodes(nodes, gpus=gpus)), Registry().profile(profile), mode=mode)
    engine.sync()
    return engine


def batch_of(engine: CompiledEngine, workloads: list[Workload]) -> Batch:
    batch = Batch()
    for each in workloads:
        code = engine.code_of(each)
        if code is None or code < 0:
            raise RuntimeError(f"{each.name} is not for the kernels")
        batch.add(each, code, len(each.tasks), min_tasks=gang_size(each))
    return batch


def make_nodes(count: int, *, gpus: bool = False) -> list[Node]:
    """Two sizes, three zones, racks of 40, one in twenty tainted, another avoided."""
    known = _NODES.get((count, gpus))
    if known is None:
        chance = random.Random(count)
        known = [_node(number, count, chance) for number in range(count)]
        if gpus:
            known = [replace(node, allocatable={**node.allocatable, **_gpus(chance)}) for node in known]
        _NODES[count, gpus] = known
    return known


_NODES: dict[tuple[int, bool], list[Node]] = {}


def _gpus(chance: random.Random) -> dict[str, int]:
    return {"gpu": 8000} if chance.random() < 0.6 else {}


def _node(number: int, count: int, chance: random.Random) -> Node:
    size = 2 if chance.random() < 0.3 else 1
    racks = max(1, count // 40)
    rack = number * racks // count
    draw = chance.random()
    taints: tuple[Taint, ...] = ()
    if draw < 0.05:
        taints = (Taint("dedicated", "db"),)
    elif draw < 0.1:
        taints = (Taint("spot", "true", Effect.PREFER_NO_SCHEDULE),)
    return Node(
        id=UUID(int=number + 1),
        name=f"node-{number:06}",
        labels={
            HOST: f"node-{number:06}",
            ZONE: f"zone-{rack % 3}",
            RACK: f"rack-{rack}",
            "arch": chance.choice(("amd64", "amd64", "amd64", "arm64")),
            "disk": chance.choice(("ssd", "hdd")),
        },
        taints=taints,
        region=REGIONS[rack % len(REGIONS)],
        allocatable={"cpu": 32_000 * size, "memory": (128 << 30) * size, "ephemeral-storage": 1 << 40},
        max_tasks=110,
        cpu_percent=number * 7 % 100,
        memory_percent=number * 13 % 100,
    )


def queue(forms: list[Form], count: int, *, shuffle: bool = True, gangs: bool = False) -> list[Workload]:
    chance = random.Random(7)
    result: list[Workload] = []
    number = 0
    while number < count:
        form = chance.choice(forms) if shuffle else forms[number % len(forms)]
        size = 4 if gangs and chance.random() < 0.08 else 1
        result.append(workload(number, form, tasks=size))
        number += size
    return result


def gangs(tasks: int) -> list[Workload]:
    """Gangs of 4 to 64; of three in twenty the last tasks find no node, since those of a rack are all taken by then."""
    chance = random.Random(11)
    forms = basic_forms(12)
    result: list[Workload] = []
    number = 0
    while number < tasks:
        size = chance.choice((4, 8, 16, 64))
        form = chance.choice(forms)
        if chance.random() < 0.15:
            rack = f"rack-{chance.randrange(NODES // 40)}"
            apart = (TaskTerm(HOST, equal_to({"gang": rack})),)
            size = 64
            form = Form(100, 128, Constraints((("gang", rack),), node_selector=((RACK, rack),), anti_affinity=apart))
        result.append(workload(number, form, tasks=size))
        number += size
    return result


def workload(number: int, form: Form, *, tasks: int = 1) -> Workload:
    return Workload(
        id=UUID(int=number + 1),
        name=f"work-{number}",
        request={"cpu": form.cpu, "memory": form.memory_mib << 20, **({"gpu": form.gpu} if form.gpu else {})},
        tasks=tuple(Task(UUID(int=(number + 1) * 100 + index), index) for index in range(tasks)),
        created_at=NOW,
        gang=tasks > 1,
        constraints=form.constraints,
    )


def deployment(replicas: int) -> Workload:
    tasks = tuple(Task(UUID(int=index + 1), index) for index in range(replicas))
    request = {"cpu": 100, "memory": 256 << 20}
    return Workload(UUID(int=1), "deployment", request=request, tasks=tasks, created_at=NOW)


def basic_forms(count: int) -> list[Form]:
    chance = random.Random(1)
    forms = []
    for number in range(count):
        wishes: dict[str, object] = {}
        if chance.random() < 0.3:
            wishes["node_selector"] = (("arch", chance.choice(("amd64", "arm64"))),)
        if chance.random() < 0.3:
            wishes["preferred_nodes"] = (
                PreferredNodes(50, _where("disk", "ssd")),
                PreferredNodes(20, _where(ZONE, "zone-0", "zone-1")),
            )
        if chance.random() < 0.2:
            wishes["node_terms"] = (_where("disk", "ssd"), _where(ZONE, "zone-1"))
        if chance.random() < 0.2:
            wishes["tolerations"] = (Toleration(exists=True),)
        constraints = Constraints(labels=_app(number), **wishes)  # type: ignore[arg-type]
        cpu = chance.choice((50, 100, 200, 250, 500)) + number
        forms.append(Form(cpu, chance.choice((64, 128, 256, 512, 1024)) + number, constraints))
    return forms


def impossible_forms() -> tuple[list[Form], list[Form]]:
    """5,000 that no node can hold: all alike, and all different."""
    different = [Form(IMPOSSIBLE + number, 64 + number % 100, Constraints()) for number in range(5000)]
    return [Form(IMPOSSIBLE, 64, Constraints())] * 5000, different


def diverse_forms(count: int) -> list[Form]:
    chance = random.Random(2)
    kinds = [Constraints(), Constraints(), Constraints(node_selector=(("arch", "amd64"),))]
    return [Form(chance.randrange(20, 700), chance.randrange(32, 1400), chance.choice(kinds)) for _ in range(count)]


def spread_forms() -> list[Form]:
    forms = []
    for number in range(20):
        alike = equal_to(dict(_app(number)))
        spreads = [Spread(ZONE, 1 + number % 3, alike)]
        if number % 2:
            spreads.append(Spread(HOST, 1, alike, hard=False))
        if number % 5 == 0:
            spreads.append(Spread(RACK, 2, alike))
        forms.append(Form(100 + number, 256 + number, Constraints(labels=_app(number), spread=tuple(spreads))))
    return forms


def anti_affinity_forms() -> list[Form]:
    forms = []
    for number in range(20):
        apart = (TaskTerm(HOST, equal_to(dict(_app(number)))),)
        forms.append(Form(100 + number, 128, Constraints(labels=_app(number), anti_affinity=apart)))
    return forms


def affinity_forms() -> list[Form]:
    forms = []
    for number in range(20):
        own, other = equal_to(dict(_app(number))), equal_to(dict(_app(number - number % 4)))
        wishes: tuple[PreferredTasks, ...] = (PreferredTasks(3, TaskTerm(HOST, own)),)
        if number % 2 == 0:
            wishes = (PreferredTasks(-2, TaskTerm(HOST, own)), PreferredTasks(1, TaskTerm(RACK, other)))
        beside = (TaskTerm(ZONE, other),)
        constraints = Constraints(labels=_app(number), affinity=beside, preferred_tasks=wishes)
        forms.append(Form(100 + number, 128, constraints))
    return forms


def gpu_forms() -> list[Form]:
    """Half of them shares of a device, a quarter one to eight whole ones, a quarter none."""
    chance = random.Random(4)
    forms = []
    for number in range(20):
        if number % 4 == 3:
            forms.append(Form(100 + number, 256 + number, Constraints()))
        elif number % 4 == 2:
            forms.append(Form(4000, 8192, Constraints(), gpu=1000 * (1, 2, 4, 8)[number // 4 % 4]))
        else:
            share = chance.choice((100, 200, 250, 300, 500, 700))
            forms.append(Form(500 + number, 2048, Constraints(), gpu=share))
    return forms


def mixed_forms() -> list[Form]:
    ports = [
        Form(100 + number, 128, Constraints(labels=_app(number), host_ports=(HostPort(8000 + number),)))
        for number in range(10)
    ]
    return [*basic_forms(10), *spread_forms(), *anti_affinity_forms(), *affinity_forms(), *ports]


def _app(number: int) -> tuple[tuple[str, str], ...]:
    return (("app", f"app-{number}"),)


def _where(key: str, *values: str) -> NodeTerm:
    return NodeTerm((Requirement(key, Operator.IN, values),))
