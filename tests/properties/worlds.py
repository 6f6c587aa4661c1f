"""Random clusters and queues with all constraints mixed, from a seed. Small numbers, so that things collide."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import NAMESPACE_DNS, UUID, uuid5

from mooring.model.labels import Operator, Requirement, Selector
from mooring.model.lifecycle import NodeStatus
from mooring.model.nodes.node import Node
from mooring.model.resources.devices import Device, DeviceDemand
from mooring.model.workloads.constraints import (
    Constraints,
    Effect,
    HostPort,
    MachineImage,
    MountedVolume,
    NodeTerm,
    PreferredNodes,
    PreferredTasks,
    Spread,
    Taint,
    TaskTerm,
    Toleration,
)
from mooring.model.workloads.workload import (
    Kind,
    OnInsufficient,
    Workload,
    new_tasks,
)
from mooring.scheduling.cluster.typical_requests import TypicalRequest

START = datetime(2026, 1, 1, tzinfo=UTC)
ZONE = "topology.kubernetes.io/zone"
KEYS = (ZONE, "rack", "metadata.name", "disk", "kubernetes.io/hostname")
LABELS = (("app", "web"), ("app", "db"), ("tier", "front"))
PROJECTS = ("red", "blue")
PROJECT_LABELS = {"red": {"team": "one"}, "blue": {"team": "two"}}
IMAGES = ("base:latest", "tool:v1")


@dataclass(frozen=True)
class World:
    nodes: list[Node]
    running: dict[UUID, list[Constraints]]
    queue: list[Workload]
    fragmented: frozenset[str]
    """The pools that may split what fits on no device."""
    typical: dict[str, tuple[TypicalRequest, ...]]


def world(seed: int, *, largest: int = 8) -> World:
    random = Random(seed)
    nodes = [_node(random, f"node-{number}") for number in range(random.randint(0, largest))]
    running = {
        node.id: [_running(random) for _ in range(random.choice((0, 0, 1, 2)))]
        for node in nodes
        if random.random() < 0.6
    }
    queue = [_workload(random, f"work-{number}", nodes) for number in range(random.randint(1, 6))]
    fragmented = frozenset(pool for pool in ("default", "other") if _some(random, 0.15))
    typical = {"default": _typical(random)} if _some(random, 0.4) else {}
    return World(nodes, running, queue, fragmented, typical)


def _some(random: Random, chance: float) -> bool:
    return random.random() < chance


def _node(random: Random, name: str) -> Node:
    labels = {key: random.choice("ab") for key in (ZONE, "rack", "disk") if _some(random, 0.8)}
    if _some(random, 0.9):
        labels["kubernetes.io/hostname"] = name
    if _some(random, 0.3):
        labels["size"] = str(random.randint(1, 3))
    gpu, devices = _devices(random)
    taints = [Taint(random.choice(("gpu", "old")), random.choice(("", "x")), random.choice(list(Effect)))]
    return Node(
        name=name,
        pool="default" if _some(random, 0.85) else "other",
        status=NodeStatus.READY if _some(random, 0.9) else NodeStatus.DRAINING,
        runtimes=frozenset(random.choice((("process",), ("process", "container")))),
        architecture=random.choice(("x86_64", "x86_64", "x86_64", "arm64")),
        region=random.choice((None, "us-east", "moon")),
        labels=labels,
        taints=tuple(taints) if _some(random, 0.35) else (),
        images={image: random.randint(1, 900) << 20 for image in IMAGES if _some(random, 0.4)},
        machine_image=random.choice((None, "linux")),
        machine_image_version=random.choice(("2.9", "2.10", "3.0")),
        licence=random.choice((None, "personal", "enterprise", "evaluation")),
        port_range=(2000, 2000 + random.randint(0, 3)),
        max_tasks=random.randint(1, 5) if _some(random, 0.3) else None,
        allocatable={"cpu": random.choice((4, 8, 12, 900)), "memory": random.randint(2, 12), **gpu},
        devices=devices,
        used={"cpu": random.randint(0, 2)} if _some(random, 0.3) else {},
        cpu_percent=random.choice((0.0, 25.0, 50.0)),
        memory_percent=random.choice((0.0, 25.0)),
    )


def _devices(random: Random) -> tuple[dict[str, int], dict[str, tuple[Device, ...]]]:
    """Unnamed devices, few units of one, alike ones of a model, ones that differ; and things with several units."""
    if _some(random, 0.45):
        return {}, {}
    kind, number = random.randrange(6), random.randint(1, 4)
    if kind == 0:
        return {"gpu": random.randint(1, 3)}, {}
    if kind <= 2:
        return {"gpu": random.choice((500, 1000, 2000, 3500, 4000))}, {}
    alike = Device(0, 1000, random.choice((None, "A", "B")), random.choice((None, 16, 40)))
    devices = tuple(
        Device(
            2 * index,
            random.choice((1000, 500, 2000)) if kind == 5 and _some(random, 0.3) else alike.capacity,
            random.choice("AB") if kind >= 4 and _some(random, 0.5) else alike.model,
            alike.memory,
            random.choice((0, 0, 0, 300, 700, 1000)),
        )
        for index in range(number)
    )
    offered, named = {"gpu": sum(device.capacity for device in devices)}, {"gpu": devices}
    if kind == 5:
        offered["lanes"] = 8
        named["lanes"] = (Device(0, 4), Device(1, 4))
    return offered, named


def _asked_devices(random: Random) -> dict[str, int]:
    if not _some(random, 0.5):
        return {"lanes": random.randint(1, 5)} if _some(random, 0.05) else {}
    return {"gpu": random.choice((1, 2, 300, 300, 500, 700, 1000, 1000, 1500, 2000))}


def _device_demands(random: Random) -> tuple[DeviceDemand, ...]:
    models = random.choice((frozenset("A"), frozenset("AB"), frozenset()))
    return (DeviceDemand("gpu", models, random.choice((0, 0, 8, 20))),)


def _typical(random: Random) -> tuple[TypicalRequest, ...]:
    return tuple(
        TypicalRequest(
            {"cpu": random.choice((0, 2)), "gpu": random.choice((0, 300, 500, 700, 1000, 1000, 2000))},
            random.randint(1, 9),
            frozenset("A") if _some(random, 0.2) else frozenset(),
        )
        for _ in range(random.randint(1, 4))
    )


def _asked(random: Random, slot: str, most: int) -> dict[str, int]:
    return {slot: random.randint(0, most)} if _some(random, 0.9) else {}


def _labels(random: Random) -> tuple[tuple[str, str], ...]:
    chosen = dict(label for label in LABELS if _some(random, 0.5))
    return tuple(sorted(chosen.items()))


def _requirement(random: Random) -> Requirement:
    key, value = random.choice(LABELS)
    operator = random.choice((Operator.IN, Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST))
    return Requirement(key, operator, (value,) if operator in (Operator.IN, Operator.NOT_IN) else ())


def _selector(random: Random) -> Selector | None:
    if _some(random, 0.05):
        return None
    return Selector(tuple(_requirement(random) for _ in range(random.choice((0, 1, 1, 1, 2)))))


def _term(random: Random) -> TaskTerm:
    projects = frozenset((random.choice(PROJECTS),)) if _some(random, 0.2) else frozenset()
    team = Selector((Requirement("team", Operator.IN, (random.choice(("one", "two")),)),))
    every = Selector()
    chosen = random.choice((team, every)) if _some(random, 0.2) else None
    return TaskTerm(random.choice(KEYS), _selector(random), projects, chosen)


def _node_term(random: Random) -> NodeTerm:
    kind = random.randrange(4)
    if kind == 0:
        return NodeTerm(
            fields=(Requirement("metadata.name", random.choice((Operator.IN, Operator.NOT_IN)), ("node-1",)),)
        )
    if kind == 1:
        return NodeTerm((Requirement("size", random.choice((Operator.GT, Operator.LT)), ("2",)),))
    if kind == 2:
        return NodeTerm((Requirement("disk", random.choice((Operator.EXISTS, Operator.DOES_NOT_EXIST))),))
    return NodeTerm((Requirement(ZONE, random.choice((Operator.IN, Operator.NOT_IN)), ("a",)),))


def _spread(random: Random) -> Spread:
    return Spread(
        random.choice(KEYS),
        random.randint(1, 2),
        _selector(random),
        hard=_some(random, 0.5),
        min_domains=random.choice((None, None, 2, 3)),
        honor_node_affinity=_some(random, 0.7),
        honor_node_taints=_some(random, 0.4),
        match_label_keys=("app",) if _some(random, 0.2) else (),
    )


def _running(random: Random) -> Constraints:
    return Constraints(
        labels=_labels(random),
        project=random.choice(PROJECTS),
        anti_affinity=(_term(random),) if _some(random, 0.15) else (),
        affinity=(_term(random),) if _some(random, 0.1) else (),
        preferred_tasks=_preferred_tasks(random) if _some(random, 0.1) else (),
        host_ports=(HostPort(2000),) if _some(random, 0.2) else (),
        licence="personal" if _some(random, 0.1) else None,
    )


def _constraints(random: Random, nodes: list[Node]) -> Constraints:
    """Each kind of constraint with a small chance, so that most workloads have a few and some have many."""
    names = [node.name for node in nodes]
    chance = random.choice((0.0, 0.08, 0.2))

    def maybe() -> bool:
        return _some(random, chance)

    addresses = ("0.0.0.0", "10.0.0.1", "10.0.0.2")
    return Constraints(
        labels=_labels(random),
        project=random.choice(PROJECTS),
        node_name="node-1" if _some(random, chance / 4) else None,
        node_selector=((random.choice((ZONE, "disk")), "a"),) if maybe() else (),
        node_terms=tuple(_node_term(random) for _ in range(random.randint(0, 2))) if maybe() else None,
        preferred_nodes=tuple(PreferredNodes(random.randint(1, 9), _node_term(random)) for _ in range(2))
        if maybe()
        else (),
        tolerations=_tolerations(random),
        affinity=tuple(_term(random) for _ in range(random.randint(1, 2))) if maybe() else (),
        anti_affinity=(_term(random),) if maybe() else (),
        preferred_tasks=tuple(PreferredTasks(random.choice((-5, 3, 7)), _term(random)) for _ in range(2))
        if maybe()
        else (),
        spread=tuple(_spread(random) for _ in range(random.randint(1, 2))) if maybe() else (),
        host_ports=(HostPort(random.choice((2000, 80)), "TCP", random.choice(addresses)),) if maybe() else (),
        ports_wanted=random.randint(1, 2) if maybe() else 0,
        images=IMAGES if maybe() else (),
        machine_image=MachineImage("linux", random.choice(("*", ">=2.10", "2.*"))) if maybe() else None,
        licence=random.choice(("personal", "evaluation")) if maybe() else None,
        volume_zones=((ZONE, frozenset("a")),) if maybe() else (),
        devices=_device_demands(random) if maybe() else (),
        designated=frozenset(random.sample(names, min(2, len(names)))) if maybe() else frozenset(),
        designated_strictly=_some(random, 0.3),
        failed_on=frozenset(node.id for node in nodes[:2]) if maybe() else frozenset(),
        volumes=_volumes(random, nodes) if maybe() else (),
    )


def _volumes(random: Random, nodes: list[Node]) -> tuple[MountedVolume, ...]:
    """On a node that is there, on one that is gone, or nowhere yet."""
    places = [(node.id, node.name) for node in nodes] + [(None, "gone"), (None, None)]
    return tuple(MountedVolume(f"v{number}", *random.choice(places)) for number in range(random.randint(1, 2)))


def _preferred_nodes(random: Random) -> tuple[PreferredNodes, ...]:
    return tuple(PreferredNodes(random.randint(1, 9), _node_term(random)) for _ in range(2))


def _preferred_tasks(random: Random) -> tuple[PreferredTasks, ...]:
    return tuple(PreferredTasks(random.choice((-5, 3, 7)), _term(random)) for _ in range(2))


def _tolerations(random: Random) -> tuple[Toleration, ...]:
    kind = random.randrange(5)
    if kind == 0:
        return (Toleration(exists=True),)
    if kind == 1:
        return (Toleration(random.choice(("gpu", "old")), value=random.choice(("", "x"))),)
    if kind == 2:
        return (Toleration("gpu", exists=True, effect=random.choice(list(Effect))),)
    return ()


def _workload(random: Random, name: str, nodes: list[Node]) -> Workload:
    constraints = _constraints(random, nodes)
    if constraints.designated_strictly and not constraints.designated:
        constraints = Constraints(labels=constraints.labels, project=constraints.project)
    return Workload(
        name=name,
        kind=Kind.DEPLOYMENT,
        pool="default" if _some(random, 0.9) else "other",
        user_id=uuid5(NAMESPACE_DNS, "someone"),
        runtime="process" if _some(random, 0.85) else "container",
        request={**_asked(random, "cpu", 3), **_asked(random, "memory", 2), **_asked_devices(random)},
        tasks=new_tasks(name, random.randint(1, 4)),
        created_at=START - timedelta(seconds=random.randint(0, 2)),
        priority=random.choice((0, 10, 10, 100)),
        architecture=random.choice((None, None, None, "arm64")),
        region=random.choice((None, "moon")),
        gang=_some(random, 0.25),
        min_tasks=random.choice((None, None, None, 2, 3)),
        single_node=_some(random, 0.15),
        pack=random.choice(((), (), (), (ZONE,), (ZONE, "rack"))),
        max_per_node=random.choice((None, None, None, 1, 2)),
        spread=_some(random, 0.2),
        on_insufficient=OnInsufficient.FAIL if _some(random, 0.15) else OnInsufficient.WAIT,
        occupied={node.id: 1 for node in nodes[:1]} if _some(random, 0.1) else {},
        constraints=constraints,
    )
