"""A pass through the compiled engine: workloads in one call of the kernels, as many as they can place in a row."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.workloads import Workload
from mooring.scheduling.engine import TOO_FEW_SLOTS, Batch, Engine
from mooring.scheduling.gaps import Gaps
from mooring.scheduling.shortage import Shortage
from mooring.scheduling.together import fails_at_once, least_together

Short = list[tuple[int, Shortage]]
"""Which decisions found too few nodes; the reason is said when the pass is through."""

OneByOne = Callable[[Workload, datetime], tuple[Decision, Shortage | None]]


def decide_in_batches(
    engine: Engine,
    ordered: Sequence[Workload],
    now: datetime,
    *,
    one_by_one: OneByOne,
    tell: Callable[[Sequence[Decision]], None],
    stop: bool = False,
) -> tuple[list[Decision], Short]:
    """Decide for workloads in their order. `one_by_one` decides for those that the kernels cannot place.

    `tell` hears what the kernels decided, batch by batch. `stop`: the first that finds too few nodes is the last that
    is decided on.
    """
    with _no_collection():
        return _decide_all(engine, ordered, now, one_by_one, tell, stop)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Leave the search for cyclic garbage until the decisions are made, as it was set before.

    A pass makes thousands of small objects that all stay and form no cycles; each thousand would start a search, which
    costs an eighth of the pass. The switch is the process's: what other threads leave in cycles meanwhile, for the
    milliseconds of a pass, is found at the next search. To freeze what is there would help as much, but would exempt
    the caller's objects for good.
    """
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
    one_by_one: OneByOne,
    tell: Callable[[Sequence[Decision]], None],
    stop: bool,
) -> tuple[list[Decision], Short]:
    decisions: list[Decision] = []
    short: Short = []
    batch = Batch()
    code_of, takes = engine.code_of, engine.takes
    synced = engine.sync()
    booked = engine.cluster.timeline.booked
    gaps = Gaps(engine.cluster, only_where_it_fits=engine.looks_at_amounts)

    def decide_batch() -> bool:
        """Place what is in the batch; whether it was the last."""
        nonlocal batch
        first = len(decisions)
        _decide_batch(engine, batch, decisions, short, stop)
        tell(decisions[first:])
        batch = Batch()
        gaps.begin()
        return stop and bool(short)

    for workload in ordered:
        tasks = workload.tasks
        single = workload.single_node
        for task in tasks:
            if task.not_before is not None and task.not_before > now:
                code = None
                break
        else:
            code = code_of(workload) if synced and tasks else None
        if code == TOO_FEW_SLOTS:
            if decide_batch():
                return decisions, short
            engine.make_room(workload)
            code = code_of(workload)
        if booked and code is not None:
            closed = gaps.closed_to(workload)
            if closed is None and len(batch):
                if decide_batch():
                    return decisions, short
                closed = gaps.closed_to(workload)
            code = None if closed is None else engine.code_beside(code, closed)
        limited = (workload.spread or workload.max_per_node is not None) and not single
        each = code
        if single and code is not None:
            code = engine.code_of_all(workload)
        if code is None or (limited and not takes(workload, len(tasks))) or (workload.pack and not single):
            if decide_batch():
                return decisions, short
            decision, shortage = one_by_one(workload, now)
            if shortage is not None:
                short.append((len(decisions), shortage))
            decisions.append(decision)
            if stop and not decision.placements:
                return decisions, short
            synced = engine.sync()
            gaps.begin()
            continue
        if limited:
            batch.limited.append(len(batch.entries))
        if single and each is not None:
            batch.each[len(batch.entries)] = each
        batch.entries.append((workload, code, len(tasks), least_together(workload)))
        if booked:
            gaps.add(workload)
    decide_batch()
    return decisions, short


def _decide_batch(engine: Engine, batch: Batch, decisions: list[Decision], short: Short, stop: bool) -> None:
    if not len(batch):
        return
    first = len(decisions)
    answers = engine.place(batch, stop=stop)
    if answers.decided < len(batch):
        del batch.entries[answers.decided :]
    rows, scores, devices, nodes = answers.rows, answers.scores, answers.devices, engine.cluster.nodes
    placed, nothing, new = Outcome.PLACED, (), tuple.__new__
    lacking: list[int] = []
    for index, ((workload, _, count, _), start, found, feasible) in enumerate(
        zip(batch.entries, answers.start, answers.found, answers.feasible, strict=False)
    ):
        if found < count:
            lacking.append(index)
        if found == 1:
            node = nodes[rows[start]]
            assert node is not None
            task = workload.tasks[0]
            placement = new(
                Placement, (task.id, node.id, node.name, node.generation, scores[start], (), devices[start])
            )
            decisions.append(new(Decision, (workload, placed, (placement,), None, feasible, (), None, None)))
        else:
            at = range(start, start + found)
            placements = tuple(
                [
                    new(
                        Placement,
                        (task.id, node.id, node.name, node.generation, scores[place], nothing, devices[place]),
                    )
                    for task, place in zip(workload.tasks, at, strict=False)
                    if (node := nodes[rows[place]]) is not None
                ]
            )
            decisions.append(new(Decision, (workload, placed, placements, None, feasible, (), None, None)))
    for index in lacking:
        workload, _, count, least = batch.entries[index]
        start, found = answers.start[index], answers.found[index]
        short.append((first + index, Shortage(rows[start : start + found], count, least)))
        if found < max(least, 1):
            outcome = Outcome.IMPOSSIBLE if fails_at_once(workload) else Outcome.WAITING
            decisions[first + index] = Decision(workload, outcome, (), None, answers.feasible[index])
