"""kube-scheduler's default scores as plainly as they can be said: whole numbers from 0 to 100, normalised as there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mooring.model.decisions import SCORE_ONE
from mooring.model.resources.task_resources import UNASKED
from mooring.model.workloads.constraints import Effect, Spread, TaskTerm
from mooring.model.workloads.workload import Workload
from tests.properties.placer import Place, Placer, same_domain, untolerated

WEIGHTS = {"taints": 3, "nodes": 2, "fit": 1, "spread": 2, "tasks": 2, "balanced": 1, "images": 1}
SOFT = (Effect.PREFER_NO_SCHEDULE,)


class KubernetesPlacer(Placer):
    """Ranks all feasible nodes together, since most scores are normalised over them."""

    def ranks(self, feasible: Sequence[Place], workload: Workload) -> list[tuple[int, int]]:
        points = {
            name: scores
            for name in WEIGHTS
            if (scores := getattr(self, f"points_{name}")(feasible, workload)) is not None
        }
        weight = max(sum(WEIGHTS[name] for name in points), 1)
        return [
            (sum(WEIGHTS[name] * scores[at] * (SCORE_ONE // 100) for name, scores in points.items()), weight)
            for at in range(len(feasible))
        ]

    def points_taints(self, feasible: Sequence[Place], workload: Workload) -> list[int] | None:
        wants = workload.constraints
        if not any(untolerated(place, wants, SOFT) for place in self.places):
            return None
        raw = [untolerated(place, wants, SOFT) for place in feasible]
        return [100 - points for points in by_largest(raw)]

    def points_nodes(self, feasible: Sequence[Place], workload: Workload) -> list[int] | None:
        wishes = workload.constraints.preferred_nodes
        if not wishes:
            return None
        return by_largest(
            [sum(wish.weight for wish in wishes if self.term_matches(place, wish.term)) for place in feasible]
        )

    def points_fit(self, feasible: Sequence[Place], workload: Workload) -> list[int]:
        result = []
        for place in feasible:
            points = []
            for slot, unasked in UNASKED.items():
                there = place.node.allocatable.get(slot, 0)
                uncounted = place.uncounted.get(slot, 0) + (0 if slot in workload.request else unasked * self.at_once)
                asked = place.taken(slot) + workload.request.get(slot, 0) + uncounted
                if there:
                    points.append(max(there - asked, 0) * 100 // there)
            result.append(sum(points) // len(points) if points else 0)
        return result

    def points_balanced(self, feasible: Sequence[Place], workload: Workload) -> list[int] | None:
        if not any(workload.request.get(slot) for slot in UNASKED):
            return None
        result = []
        for place in feasible:
            used = [
                min((place.taken(slot) + workload.request.get(slot, 0)) / there, 1.0)
                for slot in UNASKED
                if (there := place.node.allocatable.get(slot, 0))
            ]
            deviation = abs(used[0] - used[1]) / 2 if len(used) == 2 else 0.0
            result.append(int((1 - deviation) * 100))
        return result

    def points_images(self, feasible: Sequence[Place], workload: Workload) -> list[int] | None:
        images = workload.constraints.images
        if not any(image in place.node.images for image in images for place in self.places):
            return None
        members = [place for place in self.places if place.node.pool == workload.pool]
        result = []
        for place in feasible:
            present = 0
            for image in images:
                if image in place.node.images:
                    nodes = sum(image in other.node.images for other in members)
                    present += int(float(place.node.images[image]) * (nodes / len(members)))
            smallest, largest = 23 << 20, (1000 << 20) * len(images)
            clamped = min(max(present, smallest), largest)
            result.append(100 * (clamped - smallest) // (largest - smallest))
        return result

    def points_spread(self, feasible: Sequence[Place], workload: Workload) -> list[int] | None:
        wants = workload.constraints
        soft = [spread for spread in wants.spread if not spread.hard]
        if not soft:
            return None

        def labelled(place: Place) -> bool:
            return all(place.label(spread.topology_key) is not None for spread in soft)

        def here(place: Place, spread: Spread) -> int:
            if spread.topology_key == "kubernetes.io/hostname":
                return self.counted(place, wants, spread)
            return sum(
                self.counted(other, wants, spread)
                for other in self.places
                if other.node.pool == workload.pool
                and labelled(other)
                and self.takes_part(other, wants, spread)
                and same_domain(place, other, spread.topology_key)
            )

        scored = [place for place in feasible if labelled(place)]
        raw: list[int | None] = []
        for place in feasible:
            total = 0.0
            for spread in soft:
                domains = {other.label(spread.topology_key) for other in scored}
                total += here(place, spread) * math.log(len(domains) + 2) + (spread.max_skew - 1)
            raw.append(math.floor(total + 0.5) if labelled(place) else None)
        known = [value for value in raw if value is not None]
        smallest, largest = min(known, default=0), max(known, default=0)
        return [
            0 if value is None else 100 if largest == 0 else 100 * (largest + smallest - value) // largest
            for value in raw
        ]

    def points_tasks(self, feasible: Sequence[Place], workload: Workload) -> list[int] | None:
        wants = workload.constraints
        pulls: list[tuple[TaskTerm, int, str | None]] = [
            (wish.term, wish.weight, None) for wish in wants.preferred_tasks
        ]
        pulls += [
            (term, weight, project) for term, weight, project in self.all_terms if self.means(term, project, wants)
        ]
        if not pulls and not any(self.means(term, wants.project, wants) for term in wants.affinity):
            return None
        raw = [sum(self.pull(place, workload, *pull) for pull in pulls) for place in feasible]
        smallest, largest = min(raw, default=0), max(raw, default=0)
        if smallest == largest:
            return [0] * len(raw)
        return [int(100 * ((value - smallest) / (largest - smallest))) for value in raw]

    def pull(self, place: Place, workload: Workload, term: TaskTerm, weight: int, project: str | None) -> int:
        """Return a term's score for a node: its weight per task in the domain that it selects or that carries it."""
        wants = workload.constraints
        total = 0
        for other in self.places:
            if same_domain(place, other, term.topology_key):
                for task in other.tasks:
                    if project is None:
                        total += weight * self.means(term, wants.project, task)
                    elif task.project == project:
                        total += weight * carried(task).count((term, weight))
        return total


def carried(task: object) -> list[tuple[TaskTerm, int]]:
    """The terms by which a placed task pulls others, with their weights; what it requires weighs 1."""
    wishes = [(wish.term, wish.weight) for wish in getattr(task, "preferred_tasks", ())]
    return [*((term, 1) for term in getattr(task, "affinity", ())), *wishes]


def by_largest(raw: Sequence[int]) -> list[int]:
    largest = max(raw, default=0)
    return [value * 100 // largest if largest else value for value in raw]
