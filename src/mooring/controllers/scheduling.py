"""The scheduling loop: follow the feed, run a pass in its own thread, commit what it decided."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from time import perf_counter
from typing import TypeVar
from uuid import UUID

import structlog

from mooring import metrics
from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.coordination.leadership import Office
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.model.decisions import SCORE_ONE, Decision, Outcome
from mooring.model.errors import InvalidInput
from mooring.model.reasons import Reason
from mooring.model.slots import describe_amounts
from mooring.model.workloads import Kind, Workload
from mooring.scheduling import compilation
from mooring.scheduling.profiles import Registry
from mooring.scheduling.scheduler import Pass, Scheduler
from mooring.store.narration import narrate

_log = structlog.get_logger(__name__)
Result = TypeVar("Result")


class SchedulingLoop:
    """The leader's pass. `once` returns True while there is more to do at once."""

    def __init__(self, mirror: Mirror, binder: Binder, office: Office) -> None:
        self._mirror = mirror
        self._binder = binder
        self._office = office
        self._registry = Registry()
        self._registry.discover()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scheduling-pass")
        self._schedulers: Schedulers | None = None
        """None: the mirror must be read first."""
        self.passes = 0
        self.last_pass_at: datetime | None = None
        self.last_pass_ms: float | None = None

    async def start(self) -> None:
        # The kernels are compiled beside the start, so that the first passes soon have them.
        compilation.start()
        await self._mirror.load()
        self._schedulers = Schedulers(self._mirror.cluster, self._registry)

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def wait_seconds(self, longest: float) -> float:
        """How long the loop may sleep: until the timer, or until a task that backs off is due."""
        due = self._mirror.next_due(now())
        return longest if due is None else max(0.01, min(longest, due))

    async def once(self) -> bool:
        if self._schedulers is None:
            await self.start()
        try:
            return await self._turn()
        except BaseException:
            # What the pass assumed may not have come true: the next turn begins from the store.
            self._schedulers = None
            raise

    async def _turn(self) -> bool:
        await self._mirror.follow()
        at = now()
        waiting = self._mirror.due(at)
        self._measure_queue(at)
        if not waiting:
            return False
        started = perf_counter()
        placed = await self._in_thread(self._place, waiting, at)
        pass_seconds = perf_counter() - started
        conflicts = await self._bind([d for _, result in placed for d in result.decisions if d.placements], at)
        # Said when what was placed is committed: reasons never delay a start.
        decided = await self._in_thread(self._explain, placed)
        await self._write_reasons([d for d in decided if d.workload.id not in conflicts])
        self._record(decided, pass_seconds, at)
        return bool(conflicts)

    async def _in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _place(self, waiting: Sequence[Workload], at: datetime) -> list[tuple[Scheduler | None, Pass]]:
        """One pass over every pool, each with its own profile."""
        assert self._schedulers is not None
        by_scheduler: dict[Scheduler, list[Workload]] = {}
        placed: list[tuple[Scheduler | None, Pass]] = []
        for workload in waiting:
            try:
                scheduler = self._schedulers.of(self._mirror.pools[workload.pool])
            except InvalidInput as error:
                reason = Reason("invalid-profile", error.message, "profile", "change")
                placed.append((None, Pass((Decision(workload, Outcome.WAITING, (), reason),))))
            else:
                by_scheduler.setdefault(scheduler, []).append(workload)
        placed.extend((scheduler, scheduler.place(workloads, at)) for scheduler, workloads in by_scheduler.items())
        return placed

    def _explain(self, placed: Sequence[tuple[Scheduler | None, Pass]]) -> list[Decision]:
        """The decisions with the reasons of those that fell short."""
        return [
            decision
            for scheduler, result in placed
            for decision in (result if scheduler is None else scheduler.explained(result)).decisions
        ]

    async def _bind(self, decisions: Sequence[Decision], at: datetime) -> set[UUID]:
        """Commit placements; the workloads that go back to placing."""
        # Said before the commit, so that the lines stand in the order of what happens.
        for decision in decisions:
            _log_decision(decision)
        started = perf_counter()
        assert self._schedulers is not None
        result = await self._binder.bind(
            decisions,
            self._office.term,
            pools=self._mirror.pools,
            expected=self._mirror.revisions(),
            turns=self._schedulers.turns(),
        )
        metrics.bind_seconds.observe(perf_counter() - started)
        self._mirror.assume(result.bound, result.revisions)
        back = [decision for decision, _ in result.conflicts] + result.dropped
        if back:
            await self._mirror.read_again(
                {p.node_id for d in back for p in d.placements}, {d.workload.id for d in back}
            )
        for decision, what in result.conflicts:
            _log.info(f"Workload {decision.workload.id} goes back to placing: {what}")
        metrics.bind_conflicts.inc(len(result.conflicts))
        for decision in result.bound:
            if not decision.workload.placed_before:
                metrics.waited_seconds.observe((at - decision.workload.created_at).total_seconds())
        narrate(result.applied)
        for decision in result.bound:
            _log.info(
                f"Successfully scheduled {decision.workload.kind} {decision.workload.id} "
                f"with {_counted(len(decision.placements), decision.workload.kind)}"
            )
        return {decision.workload.id for decision, _ in result.conflicts}

    async def _write_reasons(self, decisions: Sequence[Decision]) -> None:
        """Make failures final, and store why the others wait, wholly or in part."""
        for decision in decisions:
            if not decision.placements:
                _log_decision(decision)
        left = [d._replace(outcome=Outcome.WAITING, placements=()) if d.placements else d for d in decisions]
        result = await self._binder.bind(_worth_writing(left), self._office.term)
        self._mirror.note_waiting(left)
        failed = {d.workload.id for d in left if d.outcome in (Outcome.IMPOSSIBLE, Outcome.ERROR)}
        if failed:
            await self._mirror.read_again((), failed)
        narrate(result.applied)

    def _record(self, decided: Sequence[Decision], seconds: float, at: datetime) -> None:
        self.passes += 1
        self.last_pass_at = at
        self.last_pass_ms = seconds * 1000
        metrics.passes.inc()
        metrics.pass_seconds.observe(seconds)
        for outcome, number in Counter(decision.outcome for decision in decided).items():
            metrics.decisions.labels(outcome.value).inc(number)

    def _measure_queue(self, at: datetime) -> None:
        queue = self._mirror.queue.values()
        metrics.queue_length.set(len(queue))
        oldest = min((workload.created_at for workload in queue), default=at)
        metrics.queue_oldest_seconds.set((at - oldest).total_seconds())


def _worth_writing(decisions: Sequence[Decision]) -> list[Decision]:
    """Those that change something: an unchanged reason to wait is stored already."""
    return [
        decision
        for decision in decisions
        if decision.outcome is not Outcome.WAITING
        or (decision.reason is not None and decision.reason.message != decision.workload.waiting_reason)
    ]


def _counted(number: int, kind: Kind) -> str:
    noun = "replica" if kind is Kind.DEPLOYMENT else "task"
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _log_decision(decision: Decision) -> None:
    workload = decision.workload
    if decision.outcome is Outcome.WAITING and (decision.reason and decision.reason.message == workload.waiting_reason):
        return
    what = f"{workload.kind} {workload.id}"
    asked = describe_amounts(workload.request)
    _log.info(f"Scheduling {what}: {_counted(len(workload.tasks), workload.kind)}, {asked}")
    _log.info(f"Found {decision.feasible_nodes} nodes with capacity: >={asked}")
    if decision.placements:
        best = sorted(decision.placements, key=lambda p: -p.score)
        top = ", ".join(f"{p.node_name}={p.score / SCORE_ONE:.2f}" for p in best[:3])
        _log.debug(f"Node scoring complete. Top {min(3, len(best))}: {top}")
        names = ", ".join(p.node_name for p in decision.placements)
        _log.info(f"Selected {len(decision.placements)} nodes for {workload.kind}: [{names}]")
        for placement in decision.placements:
            _log.debug(
                f"Created replica {placement.task_id} on node {placement.node_name} "
                f"(score: {placement.score / SCORE_ONE:.2f})"
            )
    message = decision.reason.message if decision.reason else ""
    if decision.outcome in (Outcome.IMPOSSIBLE, Outcome.ERROR):
        _log.error(f"{message} with capacity" if message.startswith("Insufficient nodes") else message)
        short = "Insufficient capacity" if decision.outcome is Outcome.IMPOSSIBLE else message
        _log.error(f"{what.capitalize()} scheduling failed: {short}")
    elif decision.outcome is Outcome.WAITING:
        _log.info(f"{what.capitalize()} waits: {message}")
