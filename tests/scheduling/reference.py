"""The scheduler as plainly as it can be said: one task after the other, every node looked at, no columns, no cache.

It shares the fit rule of the model and nothing else with what it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from mooring.model.decisions import SCORE_ONE, Outcome
from mooring.model.nodes.node import Node
from mooring.model.resources.slots import fits
from mooring.model.workloads.workload import OnInsufficient, Workload

_DISTANCE = {
    ("us-east", "us-west"): 45,
    ("us-east", "eu-west"): 80,
    ("us-west", "eu-west"): 120,
}


@dataclass
class _State:
    node: Node
    added: dict[str, int] = field(default_factory=dict)
    tasks: int = 0


@dataclass(frozen=True)
class Answer:
    workload: str
    outcome: Outcome
    nodes: tuple[tuple[str, int], ...]
    """Names and scores, in the order of the tasks."""


def decide_all(nodes: Iterable[Node], workloads: Iterable[Workload]) -> list[Answer]:
    states = [_State(node, tasks=node.tasks) for node in sorted(nodes, key=lambda node: node.name)]
    ordered = sorted(workloads, key=lambda workload: (-workload.priority, workload.created_at, workload.id.int))
    return [_decide(states, workload) for workload in ordered]


def _decide(states: Sequence[_State], workload: Workload) -> Answer:
    waiting = len(workload.tasks)
    fail = workload.on_insufficient is OnInsufficient.FAIL and not workload.placed_before
    least = waiting if fail else 1
    if workload.min_tasks is not None:
        least = max(1, min(workload.min_tasks - sum(workload.occupied.values()), waiting))
    if workload.gang or workload.single_node:
        least = waiting
    if workload.single_node:
        placed = _on_one_node(states, workload)
    else:
        placed = []
        for domain in _domains(states, workload):
            placed = _place(domain, workload)
            if len(placed) == waiting:
                break
            _undo(placed, workload)
        if len(placed) < waiting:
            placed = _place(states, workload)
    if len(placed) < least:
        _undo(placed, workload)
        return Answer(workload.name, Outcome.IMPOSSIBLE if fail else Outcome.WAITING, ())
    return Answer(workload.name, Outcome.PLACED, tuple((state.node.name, score) for state, score in placed))


def _place(states: Sequence[_State], workload: Workload) -> list[tuple[_State, int]]:
    own: dict[UUID, int] = dict(workload.occupied)
    placed: list[tuple[_State, int]] = []
    for _ in workload.tasks:
        possible = [state for state in states if _may(state, workload, own.get(state.node.id, 0))]
        if not possible:
            break
        if workload.spread:
            fewest = min(own.get(state.node.id, 0) for state in possible)
            possible = [state for state in possible if own.get(state.node.id, 0) == fewest]
        best = max(possible, key=lambda state: _score(state, workload))
        placed.append((best, _score(best, workload) // 100))
        own[best.node.id] = own.get(best.node.id, 0) + 1
        _count(best, workload, 1)
    return placed


def _undo(placed: Iterable[tuple[_State, int]], workload: Workload) -> None:
    for state, _ in placed:
        _count(state, workload, -1)


def _on_one_node(states: Sequence[_State], workload: Workload) -> list[tuple[_State, int]]:
    """All tasks on the node that is best for what they ask for together."""
    count = len(workload.tasks)
    possible = [
        state
        for state in states
        if _task_capacity(state, workload) >= count
        and (not workload.occupied or list(workload.occupied) == [state.node.id])
    ]
    if not possible:
        return []
    whole = replace(workload, request={slot: amount * count for slot, amount in workload.request.items()})
    best = max(possible, key=lambda state: _score(state, whole))
    score = _score(best, whole) // 100
    for _ in range(count):
        _count(best, workload, 1)
    return [(best, score)] * count


def _task_capacity(state: _State, workload: Workload) -> int:
    """Return the number of tasks that fit on a node. The clusters are small, so 20 stands for unlimited."""
    own = workload.occupied.get(state.node.id, 0)
    capacity = 0
    while capacity < 20 and _may(state, workload, own + capacity):
        _count(state, workload, 1)
        capacity += 1
    if capacity == 20:
        capacity = 1 << 31
    for _ in range(min(capacity, 20)):
        _count(state, workload, -1)
    return capacity


def _domains(states: Sequence[_State], workload: Workload) -> Iterator[list[_State]]:
    """The domains that hold all tasks, the narrowest level first, then by the least capacity, then by name."""
    known = [state for state in states if workload.occupied.get(state.node.id)]
    for level in range(len(workload.pack), 0, -1):
        domains: dict[tuple[str, ...], list[_State]] = {}
        for state in states:
            labels = state.node.labels
            if all(key in labels for key in workload.pack[:level]):
                domains.setdefault(tuple(labels[key] for key in workload.pack[:level]), []).append(state)
        holding = [
            (sum(_task_capacity(state, workload) for state in domain), number, domain)
            for number, domain in enumerate(domains.values())
            if all(any(state is other for other in domain) for state in known)
        ]
        yield from (
            domain
            for capacity, _, domain in sorted(holding, key=lambda each: each[:2])
            if capacity >= len(workload.tasks)
        )


def _may(state: _State, workload: Workload, own: int) -> bool:
    node = state.node
    return (
        node.ready
        and node.pool == workload.pool
        and workload.runtime in node.runtimes
        and workload.architecture in (None, node.architecture)
        and node.owner in (None, workload.user_id)
        and (node.max_tasks is None or state.tasks < node.max_tasks)
        and (workload.max_per_node is None or own < workload.max_per_node)
        and all(
            fits(
                node.allocatable.get(slot, 0),
                node.held.get(slot, 0),
                node.reserved.get(slot, 0) + state.added.get(slot, 0),
                node.used.get(slot, 0),
                amount,
            )
            for slot, amount in workload.request.items()
        )
    )


def _score(state: _State, workload: Workload) -> int:
    node = state.node
    shares = [_share_left(state, workload, slot) for slot in ("cpu", "memory")]
    resources = sum(shares) // 2
    load = SCORE_ONE - (round(node.cpu_percent * 10_000) + round(node.memory_percent * 10_000)) // 2
    locality = SCORE_ONE
    if workload.region is not None:
        region = node.region or "us-east"
        pair = (workload.region, region)
        latency = 5 if workload.region == region else _DISTANCE.get(pair, _DISTANCE.get(pair[::-1], 200))
        locality = SCORE_ONE * (200 - latency) // 200
    return 40 * resources + 30 * load + 30 * locality


def _share_left(state: _State, workload: Workload, slot: str) -> int:
    node = state.node
    allocatable = node.allocatable.get(slot, 0)
    taken = sum(part.get(slot, 0) for part in (node.held, node.reserved, node.used, state.added))
    left = max(max(allocatable - taken, 0) - workload.request.get(slot, 0), 0)
    return round(float(left) * (1.0 / allocatable) * SCORE_ONE) if allocatable else 0


def _count(state: _State, workload: Workload, sign: int) -> None:
    state.tasks += sign
    for slot, amount in workload.request.items():
        state.added[slot] = state.added.get(slot, 0) + sign * amount
