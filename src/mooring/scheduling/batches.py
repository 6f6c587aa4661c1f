"""A pass through the compiled engine: workloads in one call of the kernels, as many as they can place in a row."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.reasons import Reason
from mooring.model.workloads import OnInsufficient, Workload
from mooring.scheduling.engine import TOO_FEW_SLOTS, Batch, Engine
from mooring.scheduling.plugins import PluginFailed


class Shortage(Protocol):
    """Says why a workload got fewer nodes than tasks; `rows` and `scores` are what it found."""

    def __call__(
        self, workload: Workload, rows: list[int], scores: list[int], feasible_nodes: int, count: int, *, together: bool
    ) -> Reason: ...


def decide_in_batches(
    engine: Engine,
    ordered: Sequence[Workload],
    now: datetime,
    *,
    one_by_one: Callable[[Workload, datetime], Decision],
    shortage: Shortage,
) -> list[Decision]:
    """Decide for workloads in their order. `one_by_one` decides for those that the kernels cannot place.

    Why a workload waits is said when its batch is through, so that no explanation holds up the decisions behind it.
    """
    with _no_collection():
        return _decide_all(engine, ordered, now, one_by_one, shortage)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Decisions are many small objects that stay and form no cycles: searching them costs a fifth of a pass."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _decide_all(
    engine: Engine,
    ordered: Sequence[Workload],
    now: datetime,
    one_by_one: Callable[[Workload, datetime], Decision],
    shortage: Shortage,
) -> list[Decision]:
    decisions: list[Decision] = []
    batch = Batch()
    code_of, takes = engine.code_of, engine.takes
    append = batch.entries.append
    synced = engine.sync()
    fail = OnInsufficient.FAIL
    for workload in ordered:
        tasks = workload.tasks
        together = workload.gang or (workload.on_insufficient is fail and not workload.placed_before)
        for task in tasks:
            if task.not_before is not None and task.not_before > now:
                code = None
                break
        else:
            code = code_of(workload) if synced and tasks else None
        if code == TOO_FEW_SLOTS:
            _decide_batch(engine, batch, decisions, shortage)
            batch = Batch()
            append = batch.entries.append
            engine.make_room(workload)
            code = code_of(workload)
        limited = workload.spread or workload.max_per_node is not None
        if code is None or (limited and not takes(workload, len(tasks))):
            _decide_batch(engine, batch, decisions, shortage)
            batch = Batch()
            append = batch.entries.append
            decisions.append(one_by_one(workload, now))
            synced = engine.sync()
            continue
        if limited:
            batch.limited.append(len(batch.entries))
        append((workload, code, len(tasks), together))
    _decide_batch(engine, batch, decisions, shortage)
    return decisions


def _decide_batch(engine: Engine, batch: Batch, decisions: list[Decision], shortage: Shortage) -> None:
    if not len(batch):
        return
    first = len(decisions)
    answers = engine.place(batch)
    rows, scores, nodes = answers.rows, answers.scores, engine.cluster.nodes
    placed, nothing, new = Outcome.PLACED, (), tuple.__new__
    short: list[int] = []
    for index, ((workload, _, count, _), start, found, feasible) in enumerate(
        zip(batch.entries, answers.start, answers.found, answers.feasible, strict=False)
    ):
        if found < count:
            short.append(index)
        if found == 1:
            node = nodes[rows[start]]
            assert node is not None
            task = workload.tasks[0]
            placement = new(Placement, (task.id, node.id, node.name, node.generation, scores[start], ()))
            decisions.append(new(Decision, (workload, placed, (placement,), None, feasible)))
        else:
            at = range(start, start + found)
            placements = tuple(
                [
                    new(Placement, (task.id, node.id, node.name, node.generation, scores[place], nothing))
                    for task, place in zip(workload.tasks, at, strict=False)
                    if (node := nodes[rows[place]]) is not None
                ]
            )
            decisions.append(new(Decision, (workload, placed, placements, None, feasible)))
    for index in short:
        start, found = answers.start[index], answers.found[index]
        mine = rows[start : start + found], scores[start : start + found]
        decisions[first + index] = _short(engine, batch, index, decisions[first + index], *mine, shortage)


def _short(
    engine: Engine,
    batch: Batch,
    index: int,
    decision: Decision,
    rows: list[int],
    scores: list[int],
    shortage: Shortage,
) -> Decision:
    """The decision for a workload that found too few nodes, with the reason."""
    workload, _, count, together = batch.entries[index]
    feasible = decision.feasible_nodes
    try:
        reason = shortage(workload, rows, scores, feasible, count, together=together)
    except PluginFailed as failure:
        if not together:
            engine.forget(workload, rows)
        return Decision(workload, Outcome.ERROR, reason=failure.reason)
    if rows and not together:
        return Decision(workload, Outcome.PLACED, decision.placements, reason, feasible)
    fails = workload.on_insufficient is OnInsufficient.FAIL and not workload.placed_before
    return Decision(workload, Outcome.IMPOSSIBLE if fails else Outcome.WAITING, (), reason, feasible)
