"""The scheduling loop: follow the feed, run a pass in its own thread, commit what it decided."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from time import perf_counter

import structlog

from mooring import metrics
from mooring.binding.optimistic import OptimisticBinder
from mooring.clock import now
from mooring.coordination.leadership import Office
from mooring.mirror.mirror import Mirror
from mooring.model.decisions import SCORE_ONE, Decision, Outcome
from mooring.model.errors import InvalidInput
from mooring.model.reasons import Reason
from mooring.model.slots import describe_amounts
from mooring.model.workloads import Kind, Workload
from mooring.scheduling import compilation
from mooring.scheduling.profiles import Registry
from mooring.scheduling.scheduler import Pass, Scheduler
from mooring.store.bind import Bound
from mooring.store.narration import narrate

_log = structlog.get_logger(__name__)


class SchedulingLoop:
    """The leader's pass. `once` returns True while there is more to do at once."""

    def __init__(self, mirror: Mirror, binder: OptimisticBinder, office: Office) -> None:
        self._mirror = mirror
        self._binder = binder
        self._office = office
        self._registry = Registry()
        self._registry.discover()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scheduling-pass")
        self._schedulers: dict[str, Scheduler] | None = None
        """By profile; they share the cluster. None: the mirror must be read first."""
        self.passes = 0
        self.last_pass_at: datetime | None = None
        self.last_pass_ms: float | None = None

    async def start(self) -> None:
        # The kernels are compiled beside the start, so that the first passes soon have them.
        compilation.start()
        await self._mirror.load()
        self._schedulers = {}

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
        decided = await asyncio.get_running_loop().run_in_executor(self._thread, self._pass, waiting, at)
        pass_seconds = perf_counter() - started
        result = await self._commit(decided, at)
        self._record(decided, pass_seconds, at)
        return bool(result.conflicts)

    def _pass(self, waiting: Sequence[Workload], at: datetime) -> Pass:
        """One pass over every pool, each with its own profile."""
        by_profile: dict[str, list[Workload]] = {}
        for workload in waiting:
            by_profile.setdefault(self._mirror.profiles[workload.pool], []).append(workload)
        decisions: list[Decision] = []
        for profile, workloads in sorted(by_profile.items()):
            try:
                decisions += self._scheduler(profile).run(workloads, at).decisions
            except InvalidInput as error:
                reason = Reason("invalid-profile", error.message, "profile", "change")
                decisions += [Decision(workload, Outcome.WAITING, (), reason) for workload in workloads]
        return Pass(tuple(decisions))

    def _scheduler(self, profile: str) -> Scheduler:
        assert self._schedulers is not None
        if profile not in self._schedulers:
            self._schedulers[profile] = Scheduler(cluster=self._mirror.cluster, profile=self._registry.profile(profile))
        return self._schedulers[profile]

    async def _commit(self, decided: Pass, at: datetime) -> Bound:
        # Said before the commit, so that the lines stand in the order of what happens.
        for decision in decided.decisions:
            _log_decision(decision)
        started = perf_counter()
        result = await self._binder.bind(_worth_writing(decided.decisions), self._office.term)
        metrics.bind_seconds.observe(perf_counter() - started)
        self._mirror.assume(result.bound)
        self._mirror.note_waiting(decided.decisions)
        back = [decision for decision, _ in result.conflicts] + result.dropped
        failed = [d for d in decided.decisions if d.outcome in (Outcome.IMPOSSIBLE, Outcome.ERROR)]
        if back or failed:
            await self._mirror.read_again(
                {p.node_id for d in back for p in d.placements}, {d.workload.id for d in [*back, *failed]}
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
        return result

    def _record(self, decided: Pass, seconds: float, at: datetime) -> None:
        self.passes += 1
        self.last_pass_at = at
        self.last_pass_ms = seconds * 1000
        metrics.passes.inc()
        metrics.pass_seconds.observe(seconds)
        for outcome, number in decided.outcomes.items():
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
