"""The slow, obviously correct placer: for each task, every node is examined and every placed task is counted.

No columns, no cache, no arrays. It shares the model's nouns and its label rules with what it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from uuid import UUID

from mooring.model.decisions import SCORE_ONE, Outcome
from mooring.model.nodes.node import Node
from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.task_resources import UNASKED
from mooring.model.versions import allows
from mooring.model.workloads.constraints import (
    Constraints,
    Effect,
    HostPort,
    NodeTerm,
    Spread,
    TaskTerm,
)
from mooring.model.workloads.workload import OnInsufficient, Workload
from mooring.scheduling.cluster.typical_requests import FALLBACK, TypicalRequest
from tests.properties.devices import Left, devices_of, fragment, fragmentation_score, given_devices, named

NODE_NAME = "metadata.name"
ENDLESS = 1 << 31


@dataclass
class Place:
    """A node with the tasks on it."""

    node: Node
    tasks: list[Constraints] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    uncounted: dict[str, int] = field(default_factory=dict)
    """The request that Kubernetes' scores assume for tasks without a CPU or memory request."""
    arrived: int = 0
    devices: dict[str, list[Left]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.devices = devices_of(self.node)

    def label(self, key: str) -> str | None:
        return self.node.name if key == NODE_NAME else self.node.labels.get(key)

    def taken(self, slot: str) -> int:
        node = self.node
        return sum(part.get(slot, 0) for part in (node.held, node.reserved, node.used, self.added))

    @property
    def ports(self) -> list[HostPort]:
        return [port for task in self.tasks for port in task.host_ports]


@dataclass(frozen=True)
class Answer:
    workload: str
    outcome: Outcome
    nodes: tuple[tuple[str, int, tuple[int, ...], tuple[DeviceShare, ...]], ...]
    """Names, scores, given ports and given devices, in the order of the tasks."""


Choice: TypeAlias = tuple[Place, int, Constraints, tuple[DeviceShare, ...]]
"""A node with its score, the constraints of the task with its ports, and its devices."""


@dataclass
class Placer:
    places: list[Place]
    project_labels: dict[str, dict[str, str]]
    weights: dict[str, int] = field(default_factory=dict)
    all_terms: list[tuple[TaskTerm, int, str]] = field(default_factory=list)
    """The distinct terms by which placed tasks pull others, also those that have left, with the carriers' project."""
    at_once: int = 1
    """The number of tasks to place on the node."""
    fragmented: frozenset[str] = frozenset()
    typical: dict[str, tuple[TypicalRequest, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in self.places:
            for task in place.tasks:
                self.note_terms(task)

    def note_terms(self, task: Constraints) -> None:
        for term in task.affinity:
            self.note((term, 1, task.project))
        for wish in task.preferred_tasks:
            self.note((wish.term, wish.weight, task.project))

    def note(self, carried: tuple[TaskTerm, int, str]) -> None:
        if carried not in self.all_terms:
            self.all_terms.append(carried)

    def decide_all(self, workloads: Iterable[Workload]) -> list[Answer]:
        ordered = sorted(workloads, key=lambda workload: (-workload.priority, workload.created_at, workload.id.int))
        return [self.decide(workload) for workload in ordered]

    def decide(self, workload: Workload) -> Answer:
        waiting = len(workload.tasks)
        fail = workload.on_insufficient is OnInsufficient.FAIL and not workload.placed_before
        least = waiting if fail else 1
        if workload.min_tasks is not None:
            least = max(1, min(workload.min_tasks - sum(workload.occupied.values()), waiting))
        if workload.gang or workload.single_node:
            least = waiting
        chosen: list[Choice] = []
        if workload.single_node:
            chosen = self.on_one_node(workload)
        elif least == 1 or sum(self.capacity(place, workload) for place in self.places) >= least:
            for domain in self.domains(workload):
                chosen = self.choose(workload, domain)
                if len(chosen) == waiting:
                    break
                self.undo(chosen, workload)
            if len(chosen) < waiting:
                chosen = self.choose(workload, self.places)
        if len(chosen) < least:
            self.undo(chosen, workload)
            return Answer(workload.name, Outcome.IMPOSSIBLE if fail else Outcome.WAITING, ())
        first = len(workload.constraints.host_ports)
        return Answer(
            workload.name,
            Outcome.PLACED,
            tuple(
                (place.node.name, score, tuple(port.port for port in resolved.host_ports[first:]), devices)
                for place, score, resolved, devices in chosen
            ),
        )

    def choose(self, workload: Workload, among: Sequence[Place]) -> list[Choice]:
        own: dict[UUID, int] = dict(workload.occupied)
        chosen: list[Choice] = []
        for _ in workload.tasks:
            limit = workload.max_per_node
            feasible = [place for place in self.places if self.may(place, workload)]
            ranks = dict(zip(map(id, feasible), self.ranks(feasible, workload), strict=True))
            possible = [
                place
                for place in feasible
                if (limit is None or own.get(place.node.id, 0) < limit) and any(place is other for other in among)
            ]
            if not possible:
                break
            tier = max(self.designated(place, workload) for place in possible)
            if workload.spread:
                possible = [place for place in possible if self.designated(place, workload) == tier]
                fewest = min(own.get(place.node.id, 0) for place in possible)
                possible = [place for place in possible if own.get(place.node.id, 0) == fewest]
            best = self.best(possible, ranks, workload)
            weighted, weight = ranks[id(best)]
            chosen.append(self.put_on(best, workload, weighted // weight))
            own[best.node.id] = own.get(best.node.id, 0) + 1
        return chosen

    def put_on(self, place: Place, workload: Workload, score: int) -> Choice:
        resolved, devices = with_ports(place, workload.constraints), self.devices_on(place, workload)
        self.put(place, workload, resolved)
        self.move(place, devices, 1)
        return place, score, resolved, devices

    def best(self, possible: Iterable[Place], ranks: dict[int, tuple[int, int]], workload: Workload) -> Place:
        ranked = sorted(possible, key=lambda place: place.node.name)
        return max(ranked, key=lambda place: (*self.tier(place, workload), ranks[id(place)][0]))

    def on_one_node(self, workload: Workload) -> list[Choice]:
        """All tasks on the node that is best for what they ask for together, if they bear each other there."""
        count = len(workload.tasks)
        whole = replace(workload, request={slot: amount * count for slot, amount in workload.request.items()})
        self.at_once = count
        feasible = [place for place in self.places if self.may(place, whole)]
        ranks = dict(zip(map(id, feasible), self.ranks(feasible, whole), strict=True))
        self.at_once = 1
        limit, occupied = workload.max_per_node, workload.occupied
        possible = [
            place
            for place in feasible
            if (limit is None or occupied.get(place.node.id, 0) + count <= limit)
            and (not occupied or list(occupied) == [place.node.id])
        ]
        while possible:
            best = self.best(possible, ranks, workload)
            weighted, weight = ranks[id(best)]
            chosen = [
                self.put_on(best, workload, weighted // weight) for _ in workload.tasks if self.may(best, workload)
            ]
            if len(chosen) == count:
                return chosen
            self.undo(chosen, workload)
            possible = [place for place in possible if place is not best]
        return []

    def domains(self, workload: Workload) -> Iterator[list[Place]]:
        """The domains whose nodes have the amounts for all tasks, by narrowest level, least capacity."""
        known = [place for place in self.places if place.node.id in workload.occupied]
        for level in range(len(workload.pack), 0, -1):
            domains: dict[tuple[str | None, ...], list[Place]] = {}
            for place in sorted(self.places, key=lambda place: place.node.name):
                values = tuple(place.label(key) for key in workload.pack[:level])
                if None not in values:
                    domains.setdefault(values, []).append(place)
            holding = [
                (sum(self.capacity(place, workload) for place in domain), number, domain)
                for number, domain in enumerate(domains.values())
                if all(any(place is other for other in domain) for place in known)
            ]
            for capacity, _, domain in sorted(holding, key=lambda each: each[:2]):
                if capacity >= len(workload.tasks):
                    yield domain

    def capacity(self, place: Place, workload: Workload) -> int:
        """Return the number of its tasks that fit on a node by amounts and task count alone."""
        node, most = place.node, ENDLESS
        if not self.may_ever(place, workload):
            return 0
        for slot, amount in workload.request.items():
            free = node.allocatable.get(slot, 0) - place.taken(slot)
            most = 0 if free < 0 else min(most, free // amount if amount else most)
        if node.max_tasks is not None:
            most = min(most, node.max_tasks - node.tasks - place.arrived)
        if workload.max_per_node is not None:
            most = min(most, workload.max_per_node - workload.occupied.get(node.id, 0))
        return max(most, 0)

    def undo(self, chosen: Sequence[Choice], workload: Workload) -> None:
        for place, _, resolved, devices in reversed(chosen):
            self.take(place, workload, resolved)
            self.move(place, devices, -1)

    def put(self, place: Place, workload: Workload, resolved: Constraints) -> None:
        place.tasks.append(resolved)
        self.note_terms(resolved)
        place.arrived += 1
        for slot, unasked in UNASKED.items():
            if slot not in workload.request:
                place.uncounted[slot] = place.uncounted.get(slot, 0) + unasked
        for slot, amount in workload.request.items():
            place.added[slot] = place.added.get(slot, 0) + amount

    def take(self, place: Place, workload: Workload, resolved: Constraints) -> None:
        place.tasks.remove(resolved)
        place.arrived -= 1
        for slot, unasked in UNASKED.items():
            if slot not in workload.request:
                place.uncounted[slot] -= unasked
        for slot, amount in workload.request.items():
            place.added[slot] -= amount

    def has_devices(self, place: Place, workload: Workload) -> bool:
        """For all tasks that the node is asked about, one after the other."""
        each, given = self.of_each(workload), []
        for _ in range(self.at_once):
            found = given_devices(place.devices, each, fragmentation=workload.pool in self.fragmented)
            if found is None:
                break
            given.append(named(found))
            self.move(place, given[-1], 1)
        for shares in given:
            self.move(place, shares, -1)
        return len(given) == self.at_once

    def of_each(self, workload: Workload) -> Workload:
        """With what each of the tasks asks of devices, where the request is that of several."""
        return replace(
            workload,
            request={
                slot: amount if slot in ("cpu", "memory") else amount // self.at_once
                for slot, amount in workload.request.items()
            },
        )

    def devices_on(self, place: Place, workload: Workload) -> tuple[DeviceShare, ...]:
        workload = self.of_each(workload)
        fragmentation = workload.pool in self.fragmented
        given = given_devices(place.devices, workload, fragmentation=fragmentation)
        assert given is not None
        shares = named(given)
        whole_on_one = [share for share in shares if share.slot == "gpu" and share.amount == workload.request["gpu"]]
        if whole_on_one and "fragmentation" in self.weights:
            return tuple(sorted({*shares} - {*whole_on_one} | {self.least_fragmenting(place, workload)[1]}))
        return shares

    def move(self, place: Place, shares: Sequence[DeviceShare], sign: int) -> None:
        for share in shares:
            for device in place.devices[share.slot]:
                if device.index == share.device:
                    device.free -= sign * share.amount

    def least_fragmenting(self, place: Place, workload: Workload) -> tuple[int, DeviceShare]:
        """The least fragment that the whole request can leave on one device, and that device."""
        amount = workload.request["gpu"]
        demand = next((demand for demand in workload.constraints.devices if demand.slot == "gpu"), None)
        choices = []
        for device in place.devices["gpu"]:
            if device.takes(amount, amount, demand):
                share = DeviceShare("gpu", device.index, amount)
                self.move(place, [share], 1)
                choices.append((self.fragment_after(place, workload), device.index, share))
                self.move(place, [share], -1)
        least, _, share = min(choices)
        return least, share

    def fragment_after(self, place: Place, workload: Workload) -> int:
        asked = workload.request
        cpu, memory = (
            place.node.allocatable.get(slot, 0) - place.taken(slot) - asked.get(slot, 0) for slot in ("cpu", "memory")
        )
        return fragment(place.devices["gpu"], cpu, memory, self.typical.get(workload.pool, FALLBACK))

    def designated(self, place: Place, workload: Workload) -> bool:
        constraints = workload.constraints
        return not constraints.designated_strictly and place.node.name in constraints.designated

    def tier(self, place: Place, workload: Workload) -> tuple[bool, bool]:
        return self.designated(place, workload), place.node.id not in workload.constraints.failed_on

    # Filters

    def may_ever(self, place: Place, workload: Workload) -> bool:
        """As far as no other task has a say in it."""
        node, wants = place.node, workload.constraints
        return (
            node.ready
            and node.pool == workload.pool
            and workload.runtime in node.runtimes
            and workload.architecture in (None, node.architecture)
            and node.owner in (None, workload.user_id)
            and wants.node_name in (None, node.name)
            and (not wants.designated_strictly or node.name in wants.designated)
            and self.wanted(place, wants)
            and not untolerated(place, wants, (Effect.NO_SCHEDULE, Effect.NO_EXECUTE))
            and self.right_image(node, wants)
            and all(place.label(key) in values for key, values in wants.volume_zones)
            and all(volume.node_id == node.id for volume in wants.volumes if volume.node is not None)
        )

    def may(self, place: Place, workload: Workload) -> bool:
        node, wants = place.node, workload.constraints
        return (
            self.may_ever(place, workload)
            and all(
                place.taken(slot) + amount <= node.allocatable.get(slot, 0) for slot, amount in workload.request.items()
            )
            and self.has_devices(place, workload)
            and (node.max_tasks is None or node.tasks + place.arrived + self.at_once <= node.max_tasks)
            and self.licensed(place, wants)
            and self.has_ports(place, wants)
            and self.near_tasks(place, wants)
            and self.apart(place, wants)
            and all(self.even(place, workload, spread) for spread in wants.spread if spread.hard)
        )

    def wanted(self, place: Place, wants: Constraints) -> bool:
        if any(place.label(key) != value for key, value in wants.node_selector):
            return False
        return wants.node_terms is None or any(self.term_matches(place, term) for term in wants.node_terms)

    def term_matches(self, place: Place, term: NodeTerm) -> bool:
        return term.matches(place.node.labels, place.node.name)

    def right_image(self, node: Node, wants: Constraints) -> bool:
        image = wants.machine_image
        return image is None or (node.machine_image == image.name and allows(image.version, node.machine_image_version))

    def licensed(self, place: Place, wants: Constraints) -> bool:
        if wants.licence is None:
            return True
        held = place.node.licence
        if held != wants.licence and (held, wants.licence) != ("enterprise", "personal"):
            return False
        allowed = place.node.sessions_allowed
        return allowed is None or sum(task.licence is not None for task in place.tasks) + self.at_once <= allowed

    def has_ports(self, place: Place, wants: Constraints) -> bool:
        if wants.host_ports and self.at_once > 1:
            return False
        for port in wants.host_ports:
            for used in place.ports:
                same = (used.port, used.protocol) == (port.port, port.protocol)
                if same and (used.address == port.address or "0.0.0.0" in (used.address, port.address)):
                    return False
        first, last = place.node.port_range
        free = set(range(first, last + 1)) - {used.port for used in place.ports}
        named = len({port.port for port in wants.host_ports})
        return not wants.ports_wanted or len(free) >= wants.ports_wanted * self.at_once + named

    def near_tasks(self, place: Place, wants: Constraints) -> bool:
        def matches_terms(task: Constraints) -> bool:
            return all(self.means(term, wants.project, task) for term in wants.affinity)

        def beside(here: Place, term: TaskTerm) -> bool:
            return any(
                matches_terms(task)
                for other in self.places
                if other.label(term.topology_key) == here.label(term.topology_key) is not None
                for task in other.tasks
            )

        if not wants.affinity:
            return True
        labelled = all(place.label(term.topology_key) is not None for term in wants.affinity)
        nowhere = not any(beside(other, term) for other in self.places for term in wants.affinity)
        if nowhere and matches_terms(wants):
            return labelled
        return labelled and all(beside(place, term) for term in wants.affinity)

    def apart(self, place: Place, wants: Constraints) -> bool:
        for other in self.places:
            for task in other.tasks:
                for term in wants.anti_affinity:
                    if self.means(term, wants.project, task) and same_domain(place, other, term.topology_key):
                        return False
                for term in task.anti_affinity:
                    if self.means(term, task.project, wants) and same_domain(place, other, term.topology_key):
                        return False
        return True

    def means(self, term: TaskTerm, own_project: str, task: Constraints) -> bool:
        """Return whether a term of a task in `own_project` selects another task."""
        selected = term.project_selector is not None and term.project_selector.matches(
            self.project_labels.get(task.project, {})
        )
        named = task.project in term.projects
        own = not term.projects and term.project_selector is None and task.project == own_project
        return (selected or named or own) and term.selector is not None and term.selector.matches(dict(task.labels))

    def even(self, place: Place, workload: Workload, spread: Spread) -> bool:
        wants = workload.constraints
        if place.label(spread.topology_key) is None:
            return False
        hard = [other.topology_key for other in wants.spread if other.hard]
        members = [
            other
            for other in self.places
            if other.node.pool == workload.pool
            and all(other.label(key) is not None for key in hard)
            and self.takes_part(other, wants, spread)
        ]
        counts: dict[str | None, int] = {}
        for other in members:
            domain = other.label(spread.topology_key)
            counts[domain] = counts.get(domain, 0) + self.counted(other, wants, spread)
        least = min(counts.values()) if len(counts) >= (spread.min_domains or 1) else 0
        own = int(self.is_counted(wants, wants, spread))
        return counts.get(place.label(spread.topology_key), 0) + own - least <= spread.max_skew

    def takes_part(self, place: Place, wants: Constraints, spread: Spread) -> bool:
        hard = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)
        return (not spread.honor_node_affinity or self.wanted(place, wants)) and not (
            spread.honor_node_taints and untolerated(place, wants, hard)
        )

    def counted(self, place: Place, wants: Constraints, spread: Spread) -> int:
        return sum(self.is_counted(task, wants, spread) for task in place.tasks)

    def is_counted(self, task: Constraints, wants: Constraints, spread: Spread) -> bool:
        if spread.selector is None or task.project != wants.project:
            return False
        labels, own = dict(task.labels), dict(wants.labels)
        same = all(labels.get(key) == own[key] for key in spread.match_label_keys if key in own)
        return same and spread.selector.matches(labels)

    # Scores

    def ranks(self, feasible: Sequence[Place], workload: Workload) -> list[tuple[int, int]]:
        return [self.rank(place, workload) for place in feasible]

    def rank(self, place: Place, workload: Workload) -> tuple[int, int]:
        """The weighted sum of the scores that concern the workload, and the sum of their weights."""
        weighted = weight = 0
        for name, number in self.weights.items():
            score = getattr(self, f"score_{name}")(place, workload)
            if score is not None:
                weighted += number * score
                weight += number
        return weighted, max(weight, 1)

    def left(self, place: Place, workload: Workload, slot: str) -> int:
        allocatable = place.node.allocatable.get(slot, 0)
        left = max(max(allocatable - place.taken(slot), 0) - workload.request.get(slot, 0), 0)
        return round(float(left) * (1.0 / allocatable) * SCORE_ONE) if allocatable else 0

    def score_resources(self, place: Place, workload: Workload) -> int:
        return sum(self.left(place, workload, slot) for slot in ("cpu", "memory")) // 2

    def score_most_allocated(self, place: Place, workload: Workload) -> int:
        has = [slot for slot in ("cpu", "memory") if place.node.allocatable.get(slot, 0)]
        return sum(SCORE_ONE - self.left(place, workload, slot) for slot in has) // 2

    def score_balanced(self, place: Place, workload: Workload) -> int:
        return SCORE_ONE - abs(self.left(place, workload, "cpu") - self.left(place, workload, "memory"))

    def score_load(self, place: Place, workload: Workload) -> int:
        node = place.node
        return SCORE_ONE - (round(node.cpu_percent * 10_000) + round(node.memory_percent * 10_000)) // 2

    def score_locality(self, place: Place, workload: Workload) -> int:
        if workload.region is None:
            return SCORE_ONE
        same = workload.region == (place.node.region or "us-east")
        distance = 5 if same else 200
        return SCORE_ONE * (200 - distance) // 200

    def score_unused_capability(self, place: Place, workload: Workload) -> int:
        node = place.node
        unused = [
            slot
            for slot, units in node.allocatable.items()
            if units > place.taken(slot) and not workload.request.get(slot)
        ]
        return SCORE_ONE // (1 + len(unused))

    def score_fragmentation(self, place: Place, workload: Workload) -> int:
        typical = self.typical.get(workload.pool, FALLBACK)
        cpu, memory = (place.node.allocatable.get(slot, 0) - place.taken(slot) for slot in ("cpu", "memory"))
        before = fragment(place.devices["gpu"], cpu, memory, typical)
        shares = [share for share in self.devices_on(place, workload) if share.slot == "gpu"]
        self.move(place, shares, 1)
        after = self.fragment_after(place, workload)
        self.move(place, shares, -1)
        return fragmentation_score(before, after, sum(each.weight for each in typical))

    def score_spreading(self, place: Place, workload: Workload) -> int:
        wants = workload.constraints
        levels = [
            key
            for key in (NODE_NAME, "topology.kubernetes.io/zone", "topology.kubernetes.io/region")
            if any(other.label(key) is not None for other in self.places)
        ]
        score = 0
        for key in levels:
            if place.label(key) is not None:
                alike = sum(
                    task.project == wants.project and set(wants.labels) <= set(task.labels)
                    for other in self.places
                    if same_domain(place, other, key)
                    for task in other.tasks
                )
                score += SCORE_ONE // len(levels) // (1 + alike)
        return score

    def score_node_affinity(self, place: Place, workload: Workload) -> int | None:
        wishes = workload.constraints.preferred_nodes
        if not any(wish.weight for wish in wishes):
            return None
        asked = sum(abs(wish.weight) for wish in wishes)
        return sum(
            SCORE_ONE * abs(wish.weight) // asked
            for wish in wishes
            if self.term_matches(place, wish.term) == (wish.weight >= 0)
        )

    def score_task_affinity(self, place: Place, workload: Workload) -> int | None:
        wants = workload.constraints
        if not any(wish.weight for wish in wants.preferred_tasks):
            return None
        asked = sum(abs(wish.weight) for wish in wants.preferred_tasks)
        score = 0
        for wish in wants.preferred_tasks:
            beside = any(
                self.means(wish.term, wants.project, task)
                for other in self.places
                if same_domain(place, other, wish.term.topology_key)
                for task in other.tasks
            )
            if beside == (wish.weight >= 0):
                score += SCORE_ONE * abs(wish.weight) // asked
        return score

    def score_topology_spread(self, place: Place, workload: Workload) -> int | None:
        wants = workload.constraints
        soft = [spread for spread in wants.spread if not spread.hard]
        if not soft:
            return None
        score = 0
        for spread in soft:
            if place.label(spread.topology_key) is not None:
                here = sum(
                    self.counted(other, wants, spread)
                    for other in self.places
                    if other.node.pool == workload.pool
                    and self.takes_part(other, wants, spread)
                    and same_domain(place, other, spread.topology_key)
                )
                score += SCORE_ONE // len(soft) * spread.max_skew // (spread.max_skew + here)
        return score

    def score_taints(self, place: Place, workload: Workload) -> int | None:
        soft = (Effect.PREFER_NO_SCHEDULE,)
        if not any(untolerated(other, workload.constraints, soft) for other in self.places):
            return None
        return SCORE_ONE // (1 + untolerated(place, workload.constraints, soft))

    def score_images(self, place: Place, workload: Workload) -> int | None:
        images = workload.constraints.images
        if not any(image in other.node.images for image in images for other in self.places):
            return None
        return SCORE_ONE * sum(image in place.node.images for image in images) // len(images)


def same_domain(one: Place, other: Place, key: str) -> bool:
    return one.label(key) is not None and one.label(key) == other.label(key)


def untolerated(place: Place, wants: Constraints, effects: Sequence[Effect]) -> int:
    return sum(
        taint.effect in effects and not any(toleration.tolerates(taint) for toleration in wants.tolerations)
        for taint in place.node.taints
    )


def with_ports(place: Place, wants: Constraints) -> Constraints:
    """The constraints with the lowest free ports of the range in place of the number that is wanted."""
    if not wants.ports_wanted:
        return wants
    used = {port.port for port in (*place.ports, *wants.host_ports)}
    first, last = place.node.port_range
    given = [port for port in range(first, last + 1) if port not in used][: wants.ports_wanted]
    changed = {name: getattr(wants, name) for name in wants.__dataclass_fields__}
    changed.update(host_ports=(*wants.host_ports, *map(HostPort, given)), ports_wanted=0)
    return Constraints(**changed)
