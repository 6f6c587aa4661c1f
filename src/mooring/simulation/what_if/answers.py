"""Answers to what-if questions: the same state continued with and without the changes, and searches over sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import NamedTuple
from uuid import UUID

from mooring.model.policy.pools import Expectation
from mooring.model.workloads.workload import OnInsufficient
from mooring.simulation.engine import replay
from mooring.simulation.metrics import percentiles_of
from mooring.simulation.outcomes import Cause, Result, Status
from mooring.simulation.scenario import Scenario, options_without_model
from mooring.simulation.what_if.changes import Changes, apply, copies_of

_SAME_START_SECONDS = 30
"""Starts that differ by less count as equal."""


class Search(NamedTuple):
    """The smallest number of nodes like `like` to add, so that the 95th percentile of the waits is at most this."""

    like: str
    p95_wait_seconds: int
    most: int


@dataclass(frozen=True, slots=True)
class Question:
    changes: Changes = field(default_factory=Changes)
    search: Search | None = None
    seconds: int = 7 * 86_400
    """The time to simulate."""
    visible: frozenset[int] | None = None
    """The numbers of the jobs that the answer is about; None: all."""
    asked: tuple[int, ...] = ()
    """The numbers of the jobs to show in any case."""
    most: int = 100
    """The most workloads to show."""


class Waits(NamedTuple):
    """The pending workloads of a run. Times in seconds, from the submission to the first start."""

    workloads: int
    started: int
    """Within the simulated time."""
    mean: float | None
    median: float | None
    p95: float | None
    """None: more than a twentieth of them do not start within the simulated time."""


class Effect(NamedTuple):
    """One workload, without and with the changes. Times in seconds; None: not within the simulated time."""

    id: UUID
    running: bool
    """It has tasks on nodes at the beginning."""
    pending: bool
    """It has pending tasks at the beginning."""
    start: int | None
    """The next start of pending tasks; of running work, the next start after it was stopped."""
    changed_start: int | None
    end: int | None
    changed_end: int | None
    stopped: bool
    """With the changes, running tasks of it are lost or preempted before their end."""
    cancelled: bool


class Try(NamedTuple):
    nodes: int
    """Added nodes."""
    p95_wait_seconds: float | None


class Found(NamedTuple):
    nodes: int | None
    """The number of nodes to add; None: not even the largest number suffices."""
    tries: tuple[Try, ...]


class Answer(NamedTuple):
    at: int
    until: int
    nodes: int
    """Ready nodes at the beginning."""
    waits: Waits
    changed_waits: Waits
    earlier: int
    later: int
    unchanged: int
    stopped: int
    """Workloads with running tasks that are lost or preempted because of the changes."""
    effects: tuple[Effect, ...]
    effects_left_out: int
    found: Found | None
    assumptions: tuple[str, ...]


def answer(scenario: Scenario, question: Question) -> Answer:
    """Answer a question about the state of a server."""
    assert scenario.live is not None
    before = replace(scenario, until=scenario.begins + question.seconds)
    after = apply(before, question.changes)
    found = None
    if question.search is not None:
        found = _search(after, question.search, question.visible)
        if found.nodes:
            copies = copies_of(after.nodes, question.search.like, found.nodes)
            after = replace(after, nodes=[*after.nodes, *copies])
    results = replay(before), replay(after)
    effects = _effects(before, question, *results)
    pending = [each for each in effects if each.pending and not each.cancelled]
    earlier = sum(_moved(each) < 0 for each in pending)
    later = sum(_moved(each) > 0 for each in pending)
    candidates = _candidates(effects, question, before)
    shown = tuple(candidates[: question.most])
    return Answer(
        at=before.begins,
        until=before.begins + question.seconds,
        nodes=sum(node.ready for node in before.nodes),
        waits=_waits(before, results[0], question.visible),
        changed_waits=_waits(after, results[1], question.visible),
        earlier=earlier,
        later=later,
        unchanged=len(pending) - earlier - later,
        stopped=sum(each.stopped for each in effects),
        effects=shown,
        effects_left_out=len(candidates) - len(shown),
        found=found,
        assumptions=_assumptions(after, question.visible),
    )


def _search(scenario: Scenario, search: Search, visible: frozenset[int] | None) -> Found:
    """Return the smallest sufficient number of nodes; more nodes are taken never to make waits longer."""
    tries: dict[int, float | None] = {}

    def suffices(number: int) -> bool:
        nodes = [*scenario.nodes, *copies_of(scenario.nodes, search.like, number)] if number else scenario.nodes
        grown = replace(scenario, nodes=nodes)
        tries[number] = p95 = _waits(grown, replay(grown), visible).p95
        return p95 is not None and p95 <= search.p95_wait_seconds

    too_few, number = -1, 0
    while not suffices(number):
        if number >= search.most:
            return Found(None, tuple(Try(*each) for each in sorted(tries.items())))
        too_few, number = number, min(max(1, 2 * number), search.most)
    while number - too_few > 1:
        middle = (too_few + number) // 2
        if suffices(middle):
            number = middle
        else:
            too_few = middle
    return Found(number, tuple(Try(*each) for each in sorted(tries.items())))


def _waits(scenario: Scenario, result: Result, visible: frozenset[int] | None) -> Waits:
    starts = _starts(result)
    pending = [
        job
        for job in scenario.jobs
        if job.workload is not None
        and job.workload.tasks
        and not job.workload.placed_before
        and (visible is None or job.number in visible)
    ]
    waits = sorted(starts[job.number] - job.submitted for job in pending if job.number in starts)
    if not waits:
        return Waits(len(pending), 0, None, None, None if pending else 0.0)
    # Work that does not start waits for longer than all others.
    endless = [float("inf")] * (len(pending) - len(waits))
    p95 = percentiles_of([*waits, *endless])[94] if not endless else _p95_of([*waits, *endless])
    return Waits(len(pending), len(waits), mean(waits), median(waits), None if p95 == float("inf") else p95)


def _p95_of(ascending: Sequence[float]) -> float:
    """Return the 95th percentile by the nearest rank, which unlike an interpolation is defined for infinite values."""
    return ascending[max(0, -(-95 * len(ascending) // 100) - 1)]


def _starts(result: Result) -> dict[int, int]:
    """Return the first placement of each job that was placed."""
    found: dict[int, int] = {}
    for each in result.placed:
        found.setdefault(each.number, each.time)
    return found


def _effects(scenario: Scenario, question: Question, before: Result, after: Result) -> list[Effect]:
    assert scenario.live is not None
    running = {part.number for part in scenario.live.running}
    starts, changed_starts = _starts(before), _starts(after)
    found: list[Effect] = []
    for job, was, will_be in zip(scenario.jobs, before.outcomes, after.outcomes, strict=True):
        if job.workload is None or (question.visible is not None and job.number not in question.visible):
            continue
        stops = (Cause.NODE_LOST, Cause.PREEMPTED)
        stopped = any(each.cause in stops for each in will_be.attempts) and not any(
            each.cause in stops for each in was.attempts
        )
        found.append(
            Effect(
                job.workload.id,
                job.number in running,
                bool(job.workload.tasks),
                starts.get(job.number),
                changed_starts.get(job.number),
                max(each.end for each in was.attempts) if was.status is Status.ENDED and was.attempts else None,
                max(each.end for each in will_be.attempts)
                if will_be.status is Status.ENDED and will_be.attempts
                else None,
                stopped,
                job.workload.id in question.changes.cancel,
            )
        )
    return found


def _moved(effect: Effect) -> int:
    """Return by how much the changes delay a start, as a sign."""
    before, after = effect.start, effect.changed_start
    if before is None or after is None:
        return (after is None) - (before is None)
    return 0 if abs(after - before) < _SAME_START_SECONDS else (after > before) - (after < before)


def _candidates(effects: Sequence[Effect], question: Question, scenario: Scenario) -> list[Effect]:
    """Return the workloads asked for, then the stopped ones, then those whose start moves most, then other pending."""
    ids = {each.number: each.workload.id for each in scenario.jobs if each.workload is not None}
    asked = {ids[number] for number in question.asked}
    never = question.seconds

    def rank(effect: Effect) -> tuple[bool, bool, int]:
        moved = abs((effect.changed_start or never) - (effect.start or never)) if _moved(effect) else 0
        return effect.id not in asked, not effect.stopped, -moved

    shown = [each for each in effects if each.id in asked or each.stopped or each.pending]
    return sorted(shown, key=rank)


def _assumptions(scenario: Scenario, visible: frozenset[int] | None) -> tuple[str, ...]:
    live = scenario.live
    assert live is not None
    found = [
        "no work is submitted, changed or cancelled meanwhile, and no other node joins or fails",
        "work runs as long as earlier runs of its user and type, as predicted by its pool, or up to its time limit",
    ]
    endless = [part for part in live.running if part.end is None]
    if endless:
        # Nothing about the work of others is disclosed, not even its number.
        number = f"{len(endless)} " if visible is None or all(part.number in visible for part in endless) else ""
        found.append(f"{number}running tasks without a known end run for the whole time")
    if scenario.faults:
        found.append("work on failed nodes is noticed at once, is requeued and starts from the beginning")
    if live.reservations:
        found.append("confirmed bookings stay on their nodes")
    if live.factors:
        found.append("fair-share factors stay as they are")
    for name, policy in sorted(scenario.pools.items()):
        ignored = options_without_model(policy)
        if policy.on_insufficient is OnInsufficient.SCALE_UP:
            ignored.append("on_insufficient scale_up")
        if ignored:
            found.append(f"pool {name}: without {', '.join(ignored)}")
        if policy.backfill.expectation in (Expectation.RECENT, Expectation.PREDICTED):
            found.append(f"pool {name}: the predictions stay as they are")
    return tuple(found)
