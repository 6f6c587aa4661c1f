"""The scheduling loop: follow the feed, run a pass in its own thread, commit its decisions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from typing import TypeVar
from uuid import UUID

import structlog
from prometheus_client import Metric

from mooring.binding.binder import Binder
from mooring.clock import monotonic, now
from mooring.controllers.leadership.loops import Iteration
from mooring.controllers.scheduling.decision_logging import log_bound, log_decision
from mooring.controllers.scheduling.queue_metrics import capacity_metrics, queue_metrics
from mooring.controllers.scheduling.reservations import Reservations
from mooring.controllers.scheduling.unmet_demand import DemandQuery, UnmetDemand, find_unmet_demand
from mooring.coordination.leadership import Leadership
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.mirror.validators import installed_validators
from mooring.model.decisions import Decision, Outcome
from mooring.model.errors import InvalidInput, LeadershipLost
from mooring.model.names import shown
from mooring.model.policy.pools import HeadOfLine, PoolPolicy
from mooring.model.reasons import Reason
from mooring.model.tenancy.fair_share import Factors
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission
from mooring.scheduling.calendar.seconds import seconds_of, time_of
from mooring.scheduling.compiled import compilation
from mooring.scheduling.plugins.profiles import Registry
from mooring.scheduling.plugins.protocols import NO_FACTORS
from mooring.scheduling.preemption.reclaim import Guarantees
from mooring.scheduling.queue.pending_queue import PendingQueue
from mooring.scheduling.scheduler import Pass, Scheduler
from mooring.store.commit.commit_logging import log_applied
from mooring.store.nodes.pools import Pool
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
_HELD_BACK_SECONDS = 0.05
_VERIFY_ATTEMPTS = 3
"""Attempts to verify the view, since agents' reports may change the store between a read and its check."""
_AGAIN_AT_ONCE = 5
"""Consecutive conflicts after which a workload waits for the next signal or timer, so that conflicts never spin."""
Result = TypeVar("Result")

_MAX_FORGOTTEN_STARTS = 1000
"""Predicted starts of workloads that are no longer pending, which may be kept before they are dropped."""
_REASONS_PER_ITERATION = 64
"""Maximum number of reasons per iteration, so that a flood of unschedulable work does not delay the rest."""
_CAPACITY_SECONDS = 1.0
"""Pause between two readings of the capacity metrics while iterations follow each other."""


@dataclass(frozen=True, slots=True)
class FullPass:
    """The result of a pass over all pending workloads, counted in workloads."""

    placed: int
    impossible: int
    """Workloads that can never be placed as submitted, or whose scheduling raised an error."""
    waiting: int
    """All other workloads."""
    seconds: float


class SchedulingLoop:
    """The leader's pass."""

    def __init__(
        self, mirror: Mirror, binder: Binder, leadership: Leadership, *, reconcile_interval: float = 30.0
    ) -> None:
        """`reconcile_interval`: seconds between passes over all pending workloads, even if nothing changed."""
        self._reconcile_interval = reconcile_interval
        self._mirror = mirror
        self._binder = binder
        self._leadership = leadership
        self._registry = Registry()
        self._registry.discover()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scheduling-pass")
        self._schedulers: Schedulers | None = None
        """None if the mirror must be loaded first."""
        self._reservations: Reservations | None = None
        self._validators = installed_validators()
        self.pending_queue = self._new_pending_queue()
        self._policies: dict[str, PoolPolicy] = {}
        self._guarantees: Guarantees = {}
        self._factors: dict[str, Factors] = {}
        self._admission: Admission | None = None
        """The admission of the last pass."""
        self._tried_all_at = 0.0
        self._conflicts: dict[UUID, int] = {}
        """Consecutive bind conflicts by workload."""
        self._first_starts: dict[UUID, datetime] = {}
        """First planned or estimated start of pending workloads."""
        self._asked: list[asyncio.Future[FullPass]] = []
        """Callers of `retry_all` that await their pass."""
        self._pass_lock = asyncio.Lock()
        """Held while the view is in use: by an iteration, or by work between two of them."""
        self._capacity: tuple[Metric, ...] = ()
        """Capacity metrics as read between two iterations."""
        self._capacity_at = 0.0
        self.passes = 0
        self.last_pass_at: datetime | None = None
        self.last_pass_ms: float | None = None

    async def stand_by(self) -> None:
        """Follow the commits of the leader, so that the view of this standby is warm at a takeover."""
        if self._schedulers is None:
            await self.start()
        else:
            await self._mirror.follow()

    async def take_over(self) -> None:
        """Begin to lead. A view whose sums differ from the store is reloaded before anything is bound."""
        for _ in range(_VERIFY_ATTEMPTS):
            if self._schedulers is None:
                break
            await self._mirror.follow()
            if await self._mirror.agrees():
                await self._mirror.start_term()
                self._begin()
                return
        else:
            _log.warning("The mirror of this standby differs from the store and is loaded again")
        await self.start()

    def lose(self) -> None:
        """Drop the leader's state: its metrics, its view, and the callers that await a pass."""
        if metrics.of_leader.source == self._metrics:
            metrics.of_leader.source = None
        self._distrust()
        for waiter in self._asked:
            if not waiter.done():
                waiter.set_exception(LeadershipLost("this scheduler lost its leadership during the pass"))
        self._asked.clear()

    def _distrust(self) -> None:
        """Discard the view. Its assumed changes may not be committed, so it is reloaded from the store."""
        self._schedulers = None
        metrics.view_warm.set(0)

    def retry_all(self) -> asyncio.Future[FullPass]:
        """Make the next iteration try all pending workloads. Return a future with the result."""
        waiter: asyncio.Future[FullPass] = asyncio.get_running_loop().create_future()
        self._asked.append(waiter)
        return waiter

    async def start(self) -> None:
        # Compile the kernels in the background, so that they are ready for the first passes.
        compilation.start()
        # A pass of an earlier term may still run in the thread, on the state that is rebuilt here.
        await self._in_thread(lambda: None)
        await self._mirror.load()
        self._begin()

    def _begin(self) -> None:
        self.pending_queue = self._new_pending_queue()
        self._policies, self._guarantees, self._factors, self._first_starts = {}, {}, {}, {}
        self._tried_all_at = monotonic()
        self._schedulers = Schedulers(self._mirror, self._registry)
        self._reservations = Reservations(self._mirror.cluster, self._mirror.calendar, self._schedulers.rows_for)
        metrics.view_warm.set(1)

    def _new_pending_queue(self) -> PendingQueue:
        return PendingQueue(self._mirror.cluster, best=self._best)

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def wait_seconds(self, max_seconds: float) -> float:
        """Return the seconds until the timer, a time that pending work depends on, or more to read from the store.

        Pending work may depend on the beginning or end of a booking or plan.
        """
        if self._mirror.held_back:
            return _HELD_BACK_SECONDS
        change = self._mirror.cluster.timeline.next_change() if self._mirror.queue else None
        booked = None if change is None else time_of(change)
        times = (self.pending_queue.next_time(), self._mirror.tenancy.limits_until, booked)
        seconds = [(due - now()).total_seconds() for due in times if due is not None]
        confirm = self._mirror.confirm_seconds()
        return max(0.01, min([max_seconds, *seconds, *([] if confirm is None else [confirm])]))

    async def once(self) -> Iteration:
        async with self._pass_lock:
            if self._schedulers is None:
                await self.start()
            metrics.of_leader.source = self._metrics
            try:
                iteration = await self._iterate()
                if monotonic() - self._capacity_at >= _CAPACITY_SECONDS:
                    self._read_capacity()
                return iteration
            except BaseException:
                self._distrust()
                raise

    async def unmet_demand(self, asked: DemandQuery) -> UnmetDemand | None:
        """Return the unmet demand between two iterations, or None while it is unknown."""
        async with self._pass_lock:
            if self._schedulers is None or not self.pending_queue.settled:
                return None
            admission = self._new_admission(now())
            return await self._in_thread(
                find_unmet_demand, asked, self._mirror, self.pending_queue, self._schedulers, admission
            )

    async def between_passes(self, work: Callable[[Mirror, Schedulers, Admission], Result]) -> Result | None:
        """Run a small piece of work on the view, in the thread of the passes. Return None if there is no view."""
        async with self._pass_lock:
            if self._schedulers is None:
                return None
            try:
                return await self._in_thread(work, self._mirror, self._schedulers, self._new_admission(now()))
            except BaseException:
                # The work may have left the view with temporary changes.
                self._distrust()
                raise

    def _new_admission(self, at: datetime) -> Admission:
        waiting = self._mirror.queue.values()
        return self._mirror.tenancy.admission(waiting, self._policies, self._validators, at)

    async def _iterate(self) -> Iteration:
        asked = list(self._asked)
        # Events held back in the feed were announced by an earlier signal. A timer of the mirror may outrun a signal.
        expected = self._mirror.held_back or self._mirror.confirm_seconds() is not None
        with _timed("follow"):
            announced = await self._mirror.follow() and not expected
        at = now()
        with _timed("reserve"):
            await self._reserve(at)
        self._update_pending_queue()
        started = perf_counter()
        queued, missed = len(self._mirror.queue), self.pending_queue.found_by_timer
        placed = await self._in_thread(self._run, at, bool(asked))
        pass_seconds = perf_counter() - started
        overlooked = self.pending_queue.found_by_timer > missed
        if not placed and not self.pending_queue.has_more_work:
            self._answer(asked, placed, pass_seconds, queued)
            return Iteration(self._mirror.calendar.unsettled, announced, overlooked)
        metrics.phase_seconds.labels("place").observe(pass_seconds)
        with _timed("bind"):
            conflicts = await self._bind([d for _, result in placed for d in result.decisions if d.placements], at)
        # Explain after the placements are committed, so that reasons never delay a start.
        with _timed("explain"):
            decided = await self._in_thread(self._explain, placed)
        with _timed("write"):
            await self._write_reasons([d for d in decided if d.workload.id not in conflicts])
        if placed:
            self._record(pass_seconds, at)
        self._answer(asked, placed, pass_seconds, queued, conflicts)
        self._conflicts = {workload_id: self._conflicts.get(workload_id, 0) + 1 for workload_id in conflicts}
        more = self.pending_queue.has_more_work or self._mirror.calendar.unsettled
        more = more or any(number <= _AGAIN_AT_ONCE for number in self._conflicts.values())
        return Iteration(more, announced, overlooked)

    async def _reserve(self, at: datetime) -> None:
        """Answer requests for timeslots, and relocate timeslots that lost their capacity."""
        assert self._reservations is not None
        updates = await self._in_thread(self._reservations.decide, at) if self._reservations.unsettled(at) else []
        if not updates:
            return
        updated = await self._binder.update_timeslots(updates, self._leadership.term)
        self._reservations.settle(updates, updated)
        for update in updates:
            why = "" if update.reason is None else f": {update.reason.message}"
            _log.info(f"Booking {update.slot.id} is {update.status}{why}")

    def _update_pending_queue(self) -> None:
        """Pass new, removed and changed workloads and policies to the pending queue."""
        policies = {name: pool.policy for name, pool in self._mirror.pools.items()}
        if policies != self._policies:
            self.pending_queue.reconsider({name for name in policies if policies[name] != self._policies.get(name)})
            self._policies = policies
            strict = (name for name, policy in policies.items() if policy.head_of_line is HeadOfLine.STRICT)
            self.pending_queue.strict_pools = frozenset(strict)
            self.pending_queue.backfill_depths = {
                name: policy.backfill.depth
                for name, policy in policies.items()
                if policy.head_of_line is HeadOfLine.BACKFILL
            }
        lent = self._mirror.guarantees
        if lent != self._guarantees:
            self.pending_queue.reconsider(
                {p for p in {*lent, *self._guarantees} if lent.get(p) != self._guarantees.get(p)}
            )
            self._guarantees = lent
        used = self._mirror.factors
        if used != self._factors:
            # Usage changes the head of queue, which blocks others in strict pools.
            self.pending_queue.reconsider(
                {p for p in used if used[p] != self._factors.get(p)} & self.pending_queue.strict_pools
            )
            self._factors = dict(used)
        self.pending_queue.reconsider(self._mirror.calendar.eased())
        for workload_id, workload in self._mirror.news().items():
            if workload is None:
                self.pending_queue.forget(workload_id)
                self._first_starts.pop(workload_id, None)
            else:
                self.pending_queue.admit(workload)
        self._mirror.tenancy.note_pending(self._mirror.queue.values(), policies)
        self.pending_queue.requeue_tenants(self._mirror.tenancy.eased())

    async def _in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _run(self, at: datetime, everything: bool) -> list[tuple[Scheduler | None, Pass]]:
        """Run a pass over the requeued workloads, and one over all if requested or due."""
        self._mirror.cluster.timeline.advance(seconds_of(at))
        placed = self._place(self.pending_queue.take(at), at)
        if everything or monotonic() - self._tried_all_at >= self._reconcile_interval:
            placed += self._place(self.pending_queue.take_all(at), at)
            self._tried_all_at = monotonic()
        return placed

    def _place(self, waiting: Sequence[Workload], at: datetime) -> list[tuple[Scheduler | None, Pass]]:
        """Run one pass over every pool by its own policy. Workloads without a placement become unschedulable."""
        assert self._schedulers is not None
        self._schedulers.update_budgets()
        by_pool: dict[str, list[Workload]] = {}
        for workload in waiting:
            by_pool.setdefault(workload.pool, []).append(workload)
        self._admission = self._new_admission(at)
        return [self._place_in(self._mirror.pools[name], by_pool[name], at) for name in sorted(by_pool)]

    def _place_in(self, pool: Pool, workloads: Sequence[Workload], at: datetime) -> tuple[Scheduler | None, Pass]:
        assert self._schedulers is not None
        try:
            scheduler = self._schedulers.of(pool)
        except InvalidInput as error:
            reason = Reason("invalid-profile", error.message, "profile", "change")
            wrong = Pass(tuple(Decision(workload, Outcome.WAITING, (), reason) for workload in workloads))
            return None, self.pending_queue.add_unschedulable(_counted_in_metrics(wrong), None, at)
        factors = self._mirror.factors.get(pool.name, NO_FACTORS)
        result = _counted_in_metrics(scheduler.place(workloads, at, admission=self._admission, factors=factors))
        rules = pool.policy.preemption
        again = timedelta(seconds=rules.min_runtime_seconds) if rules and rules.min_runtime_seconds else None
        eager = rules is not None or pool.policy.head_of_line is HeadOfLine.STRICT
        return scheduler, self.pending_queue.add_unschedulable(result, scheduler.profile, at, eager=eager, again=again)

    def _best(self, workloads: Sequence[Workload], number: int) -> Sequence[Workload]:
        """Return the workloads of one pool to try when capacity may suffice for `number`, by the pool's own order."""
        assert self._schedulers is not None
        pool = self._mirror.pools[workloads[0].pool]
        factors = self._mirror.factors.get(pool.name, NO_FACTORS)
        return self._schedulers.of(pool).best(workloads, number, now(), admission=self._admission, factors=factors)

    def _explain(self, placed: Sequence[tuple[Scheduler | None, Pass]]) -> list[Decision]:
        """Return the decisions with their reasons, and those of some unschedulable workloads not yet explained."""
        assert self._schedulers is not None
        decided = [
            decision
            for scheduler, result in placed
            for decision in (result if scheduler is None else scheduler.explained(result)).decisions
        ]
        for group in self.pending_queue.unexplained(_REASONS_PER_ITERATION):
            workload = group.entry.workload
            scheduler = self._schedulers.of(self._mirror.pools[workload.pool])
            first = scheduler.with_reason(Decision(workload, Outcome.WAITING), group.unplaced)
            assert first.reason is not None
            explained = self.pending_queue.explained(group, first.reason)
            checked = self._admission.passed(workload) if self._admission is not None else None
            decided += [each._replace(outcome=first.outcome, checked=checked) for each in explained]
        decided += self.pending_queue.replanned({decision.workload.id for decision in decided})
        # Stored reasons reach the mirror, not the pending queue.
        queue = self._mirror.queue
        return [d._replace(workload=queue.get(d.workload.id, d.workload)) for d in decided]

    async def _bind(self, decisions: Sequence[Decision], at: datetime) -> set[UUID]:
        """Commit placements. Return the workloads with a conflict, which are placed again."""
        # Log before the commit, so that the log lines are in order.
        for decision in decisions:
            log_decision(decision)
        started = perf_counter()
        assert self._schedulers is not None
        result = await self._binder.bind(
            decisions,
            self._leadership.term,
            pools=self._mirror.pools,
            expected=self._mirror.revisions(),
            positions=self._schedulers.moved_positions(),
        )
        metrics.bind_seconds.observe(perf_counter() - started)
        self._mirror.assume(result.bound, result.revisions)
        back = [decision for decision, _ in result.conflicts] + result.dropped
        if back:
            nodes = {p.node_id for d in back for p in d.placements} | {v.node_id for d in back for v in d.victims}
            await self._mirror.read_again(nodes, {d.workload.id for d in back})
        for decision, what in result.conflicts:
            named = f"{shown(decision.workload.name)} ({decision.workload.id})"
            _log.info(f"Workload {named} returns to placement: {what}")
        metrics.bind_conflicts.inc(len(result.conflicts))
        for decision in result.bound:
            if not decision.workload.placed_before:
                metrics.waited_seconds.observe((at - decision.workload.created_at).total_seconds())
                self._measure_start(decision.workload, at)
        metrics.preempted.inc(sum(len(decision.victims) for decision in result.bound))
        log_applied(result.applied)
        log_bound(result.bound)
        return {decision.workload.id for decision, _ in result.conflicts}

    async def _write_reasons(self, decisions: Sequence[Decision]) -> None:
        """Make failures final, and store the reasons of workloads that stay pending, wholly or in part."""
        for decision in decisions:
            if not decision.placements:
                log_decision(decision)
        left = [d._replace(outcome=Outcome.WAITING, placements=()) if d.placements else d for d in decisions]
        result = await self._binder.bind(_worth_writing(left), self._leadership.term)
        self._mirror.note_waiting(left)
        self.note_first_starts({decision.workload.id: decision.planned_start for decision in left})
        failed = {d.workload.id for d in left if d.outcome in (Outcome.IMPOSSIBLE, Outcome.ERROR)}
        if failed:
            await self._mirror.read_again((), failed)
        log_applied(result.applied)

    def _answer(
        self,
        asked: Sequence[asyncio.Future[FullPass]],
        placed: Sequence[tuple[Scheduler | None, Pass]],
        seconds: float,
        queued: int,
        conflicts: Collection[UUID] = (),
    ) -> None:
        """Pass the result of a pass to the callers that requested it. Workloads with a conflict count as waiting."""
        if not asked:
            return
        decided = (d for _, result in placed for d in result.decisions if d.workload.id not in conflicts)
        counts = Counter(decision.outcome for decision in decided)
        impossible = counts[Outcome.IMPOSSIBLE] + counts[Outcome.ERROR]
        waiting = queued - counts[Outcome.PLACED] - impossible
        found = FullPass(counts[Outcome.PLACED], impossible, waiting, seconds)
        for waiter in asked:
            self._asked.remove(waiter)
            if not waiter.done():
                waiter.set_result(found)

    def _record(self, seconds: float, at: datetime) -> None:
        self.passes += 1
        self.last_pass_at = at
        self.last_pass_ms = seconds * 1000
        metrics.passes.inc()
        metrics.pass_seconds.observe(seconds)

    def note_first_starts(self, starts: Mapping[UUID, datetime | None]) -> None:
        """Remember the first planned or estimated start of workloads, to compare it with their placement."""
        for workload_id, start in starts.items():
            if start is not None:
                self._first_starts.setdefault(workload_id, start)
        if len(self._first_starts) > _MAX_FORGOTTEN_STARTS + 2 * len(self._mirror.queue):
            # Some workloads ended without a placement.
            queue = self._mirror.queue
            self._first_starts = {id: start for id, start in self._first_starts.items() if id in queue}

    def _measure_start(self, workload: Workload, at: datetime) -> None:
        """Observe the error of the first predicted start; after a takeover, that of the stored planned start."""
        planned = self._first_starts.pop(workload.id, workload.planned_start)
        if planned is not None:
            late = (at - planned).total_seconds()
            metrics.start_error_seconds.labels("late" if late > 0 else "early").observe(abs(late))

    def _metrics(self) -> Iterable[Metric]:
        # A pass changes the columns for trials in its own thread; then the amounts from before it are shown.
        if not self._pass_lock.locked():
            self._read_capacity()
        return (*queue_metrics(self._mirror, now()), *self._capacity)

    def _read_capacity(self) -> None:
        self._capacity, self._capacity_at = tuple(capacity_metrics(self._mirror)), monotonic()


@contextmanager
def _timed(phase: str) -> Iterator[None]:
    started = perf_counter()
    try:
        yield
    finally:
        metrics.phase_seconds.labels(phase).observe(perf_counter() - started)


def _counted_in_metrics(result: Pass) -> Pass:
    for outcome, number in result.outcomes.items():
        metrics.decisions.labels(outcome.value).inc(number)
    return result


def _worth_writing(decisions: Sequence[Decision]) -> list[Decision]:
    """Return the decisions that change something; an unchanged reason is already stored."""
    return [
        decision
        for decision in decisions
        if decision.outcome is not Outcome.WAITING or decision.has_new_reason or decision.is_replanned
    ]
