"""The scheduling loop: follow the feed, run a pass in its own thread, commit what it decided."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from typing import TypeVar
from uuid import UUID

import structlog

from mooring import metrics
from mooring.binding.binder import Binder
from mooring.clock import monotonic, now
from mooring.controllers.loops import Turn
from mooring.controllers.reservations import Reservations
from mooring.controllers.shortfall import Question, Shortfall, shortfall
from mooring.coordination.leadership import Office
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.mirror.validators import installed_validators
from mooring.model.decisions import SCORE_ONE, Decision, Outcome
from mooring.model.errors import InvalidInput, LeadershipLost
from mooring.model.fair_share import Factors
from mooring.model.pools import HeadOfLine, PoolPolicy
from mooring.model.reasons import Reason
from mooring.model.slots import describe_amounts
from mooring.model.workloads import Kind, Workload
from mooring.scheduling import compilation
from mooring.scheduling.admission import Admission
from mooring.scheduling.plugins import NO_FACTORS
from mooring.scheduling.profiles import Registry
from mooring.scheduling.reclaim import Guarantees
from mooring.scheduling.scheduler import Pass, Scheduler
from mooring.scheduling.timeline import seconds_of, time_of
from mooring.scheduling.waiting import WaitingRoom
from mooring.store.narration import narrate
from mooring.store.pools import Pool

_log = structlog.get_logger(__name__)
_HELD_BACK_SECONDS = 0.05
_LOOKS = 3
"""At a view that agents' reports may move on between a read and its check."""
_AGAIN_AT_ONCE = 5
"""Conflicts in a row after which a workload waits for the next signal or timer, so that no disagreement spins."""
Result = TypeVar("Result")

_MEASURED_SECONDS = 5.0
"""How often the ages of all that waits are counted."""
_REASONS_A_TURN = 64
"""Said at most between two passes: a flood of work that fits nowhere does not hold up what does."""


@dataclass(frozen=True, slots=True)
class FullPass:
    """What a pass over everything that waits came to, in workloads."""

    placed: int
    impossible: int
    """They can never be placed as they are, or the rules failed at them."""
    waiting: int
    """The others."""
    seconds: float


class SchedulingLoop:
    """The leader's pass."""

    def __init__(self, mirror: Mirror, binder: Binder, office: Office, *, reconcile_interval: float = 30.0) -> None:
        """At most every `reconcile_interval` seconds all that waits is tried, whether or not something changed."""
        self._reconcile_interval = reconcile_interval
        self._mirror = mirror
        self._binder = binder
        self._office = office
        self._registry = Registry()
        self._registry.discover()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scheduling-pass")
        self._schedulers: Schedulers | None = None
        """None: the mirror must be read first."""
        self._reservations: Reservations | None = None
        self._validators = installed_validators()
        self.room = self._new_room()
        self._policies: dict[str, PoolPolicy] = {}
        self._guarantees: Guarantees = {}
        self._factors: dict[str, Factors] = {}
        self._admission: Admission | None = None
        """Of the last pass."""
        self._tried_all_at = 0.0
        self._measured_at = -_MEASURED_SECONDS
        self._conflicts: dict[UUID, int] = {}
        """How often in a row workloads went back to placing."""
        self._first_starts: dict[UUID, datetime] = {}
        """When work that waits was to start by its first plan."""
        self._asked: list[asyncio.Future[FullPass]] = []
        """Those who wait for a pass over everything."""
        self._turning = asyncio.Lock()
        """Held while the view changes: a turn, or a job between two of them."""
        self.passes = 0
        self.last_pass_at: datetime | None = None
        self.last_pass_ms: float | None = None

    async def stand_by(self) -> None:
        """What a standby does whenever something was committed: its view is warm when it has to take over."""
        if self._schedulers is None:
            await self.start()
        else:
            await self._mirror.follow()

    async def take_over(self) -> None:
        """Begin to lead. A view that is not, by its sums, what the store says is read anew before anything is bound."""
        for _ in range(_LOOKS):
            if self._schedulers is None:
                break
            await self._mirror.follow()
            if await self._mirror.agrees():
                await self._mirror.take_office()
                self._begin()
                return
        else:
            _log.warning("The view of this standby differs from the store, and is read anew")
        await self.start()

    def lose(self) -> None:
        """It leads no longer."""
        self._distrust()
        for waiter in self._asked:
            if not waiter.done():
                waiter.set_exception(LeadershipLost("this scheduler lost its office before the pass was over"))
        self._asked.clear()

    def _distrust(self) -> None:
        """What was assumed may not have come true: the view is to be read from the store."""
        self._schedulers = None
        metrics.view_warm.set(0)

    def ask_for_all(self) -> asyncio.Future[FullPass]:
        """The next turn tries all that waits, whether or not something changed; the future has what came of it."""
        waiter: asyncio.Future[FullPass] = asyncio.get_running_loop().create_future()
        self._asked.append(waiter)
        return waiter

    async def start(self) -> None:
        # The kernels are compiled beside the start, so that the first passes soon have them.
        compilation.start()
        # A pass of an earlier term may still be under way, and works on what is made anew here.
        await self._in_thread(lambda: None)
        await self._mirror.load()
        self._begin()

    def _begin(self) -> None:
        self.room = self._new_room()
        self._policies, self._guarantees, self._factors, self._first_starts = {}, {}, {}, {}
        self._tried_all_at = monotonic()
        self._schedulers = Schedulers(self._mirror, self._registry)
        self._reservations = Reservations(self._mirror.cluster, self._mirror.calendar, self._schedulers.rows_for)
        metrics.view_warm.set(1)

    def _new_room(self) -> WaitingRoom:
        return WaitingRoom(self._mirror.cluster, best=self._best)

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def wait_seconds(self, longest: float) -> float:
        """How long it may sleep: until the timer, a time that work waits for, or what is held back of the feed.

        Where something is booked or planned, work may wait for that to begin or to be over.
        """
        if self._mirror.held_back:
            return _HELD_BACK_SECONDS
        change = self._mirror.cluster.timeline.next_change() if self._mirror.queue else None
        booked = None if change is None else time_of(change)
        times = (self.room.next_time(), self._mirror.tenancy.limits_until, booked)
        seconds = [(due - now()).total_seconds() for due in times if due is not None]
        return max(0.01, min([longest, *seconds]))

    async def once(self) -> Turn:
        async with self._turning:
            if self._schedulers is None:
                await self.start()
            try:
                return await self._turn()
            except BaseException:
                self._distrust()
                raise

    async def short_of_nodes(self, asked: Question) -> Shortfall | None:
        """What more nodes could help, between two turns; None if there is nothing to say yet."""
        async with self._turning:
            if self._schedulers is None or not self.room.settled:
                return None
            admission = self._new_admission(now())
            return await self._in_thread(shortfall, asked, self._mirror, self.room, self._schedulers, admission)

    def _new_admission(self, at: datetime) -> Admission:
        waiting = self._mirror.queue.values()
        return self._mirror.tenancy.admission(waiting, self._policies, self._validators, at)

    async def _turn(self) -> Turn:
        asked = list(self._asked)
        # What was held back of the feed was announced before it could be read.
        held_back = self._mirror.held_back
        announced = await self._mirror.follow() and not held_back
        at = now()
        await self._reserve(at)
        self._tell_room()
        self._measure_queue(at)
        started = perf_counter()
        queued, missed = len(self._mirror.queue), self.room.found_by_timer
        placed = await self._in_thread(self._run, at, bool(asked))
        pass_seconds = perf_counter() - started
        overlooked = self.room.found_by_timer > missed
        if not placed and not self.room.restless:
            self._answer(asked, placed, pass_seconds, queued)
            return Turn(self._mirror.calendar.unsettled, announced, overlooked)
        conflicts = await self._bind([d for _, result in placed for d in result.decisions if d.placements], at)
        # Said when what was placed is committed: reasons never delay a start.
        decided = await self._in_thread(self._explain, placed)
        await self._write_reasons([d for d in decided if d.workload.id not in conflicts])
        if placed:
            self._record(pass_seconds, at)
        self._answer(asked, placed, pass_seconds, queued, conflicts)
        self._conflicts = {workload_id: self._conflicts.get(workload_id, 0) + 1 for workload_id in conflicts}
        more = self.room.restless or self._mirror.calendar.unsettled
        more = more or any(number <= _AGAIN_AT_ONCE for number in self._conflicts.values())
        return Turn(more, announced, overlooked)

    async def _reserve(self, at: datetime) -> None:
        """Answer who asked for a timeslot, and find other room for those that lost theirs."""
        assert self._reservations is not None
        moves = await self._in_thread(self._reservations.decide, at) if self._reservations.unsettled(at) else []
        if not moves:
            return
        moved = await self._binder.move(moves, self._office.term)
        self._reservations.settle(moves, moved)
        for move in moves:
            why = "" if move.reason is None else f": {move.reason.message}"
            _log.info(f"Timeslot {move.slot.id} is {move.status}{why}")

    def _tell_room(self) -> None:
        """Tell the waiting room what came, went and changed."""
        policies = {name: pool.policy for name, pool in self._mirror.pools.items()}
        if policies != self._policies:
            self.room.reconsider({name for name in policies if policies[name] != self._policies.get(name)})
            self._policies = policies
            strict = (name for name, policy in policies.items() if policy.head_of_line is HeadOfLine.STRICT)
            self.room.in_line = frozenset(strict)
            self.room.depths = {
                name: policy.backfill.depth
                for name, policy in policies.items()
                if policy.head_of_line is HeadOfLine.BACKFILL
            }
        lent = self._mirror.guarantees
        if lent != self._guarantees:
            self.room.reconsider({p for p in {*lent, *self._guarantees} if lent.get(p) != self._guarantees.get(p)})
            self._guarantees = lent
        used = self._mirror.factors
        if used != self._factors:
            # Who used how much changes who is first in line, and so who stops others.
            self.room.reconsider({p for p in used if used[p] != self._factors.get(p)} & self.room.in_line)
            self._factors = dict(used)
        self.room.reconsider(self._mirror.calendar.eased())
        for workload_id, workload in self._mirror.news().items():
            if workload is None:
                self.room.forget(workload_id)
                self._first_starts.pop(workload_id, None)
            else:
                self.room.admit(workload)
        self._mirror.tenancy.note_pending(self._mirror.queue.values(), policies)
        self.room.wake(self._mirror.tenancy.eased())

    async def _in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _run(self, at: datetime, everything: bool) -> list[tuple[Scheduler | None, Pass]]:
        """A pass over what is worth a try; then one over everything if asked for, or from time to time."""
        self._mirror.cluster.timeline.advance(seconds_of(at))
        placed = self._place(self.room.take(at), at)
        if everything or monotonic() - self._tried_all_at >= self._reconcile_interval:
            placed += self._place(self.room.take_all(at), at)
            self._tried_all_at = monotonic()
        return placed

    def _place(self, waiting: Sequence[Workload], at: datetime) -> list[tuple[Scheduler | None, Pass]]:
        """One pass over every pool, each by its own policy; what finds no place is parked."""
        assert self._schedulers is not None
        self._schedulers.tell_budgets()
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
            return None, self.room.park(_counted_in_metrics(wrong), None, at)
        factors = self._mirror.factors.get(pool.name, NO_FACTORS)
        result = _counted_in_metrics(scheduler.place(workloads, at, admission=self._admission, factors=factors))
        rules = pool.policy.preemption
        again = timedelta(seconds=rules.min_runtime_seconds) if rules and rules.min_runtime_seconds else None
        eager = rules is not None or pool.policy.head_of_line is HeadOfLine.STRICT
        return scheduler, self.room.park(result, scheduler.profile, at, eager=eager, again=again)

    def _best(self, workloads: Sequence[Workload], number: int) -> Sequence[Workload]:
        """As many of the workloads of one pool as there may be room for, by the pool's own order."""
        assert self._schedulers is not None
        pool = self._mirror.pools[workloads[0].pool]
        factors = self._mirror.factors.get(pool.name, NO_FACTORS)
        return self._schedulers.of(pool).best(workloads, number, now(), factors)

    def _explain(self, placed: Sequence[tuple[Scheduler | None, Pass]]) -> list[Decision]:
        """The decisions with their reasons, and why some of those wait that are parked."""
        assert self._schedulers is not None
        decided = [
            decision
            for scheduler, result in placed
            for decision in (result if scheduler is None else scheduler.explained(result)).decisions
        ]
        for group in self.room.unexplained(_REASONS_A_TURN):
            workload = group.entry.workload
            scheduler = self._schedulers.of(self._mirror.pools[workload.pool])
            first = scheduler.with_reason(Decision(workload, Outcome.WAITING), group.shortage)
            assert first.reason is not None
            told = self.room.explained(group, first.reason)
            checked = self._admission.passed(workload) if self._admission is not None else None
            decided += [each._replace(outcome=first.outcome, checked=checked) for each in told]
        decided += self.room.replanned({decision.workload.id for decision in decided})
        # The room does not hear of reasons that were stored; the mirror does.
        queue = self._mirror.queue
        return [d._replace(workload=queue.get(d.workload.id, d.workload)) for d in decided]

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
            nodes = {p.node_id for d in back for p in d.placements} | {v.node_id for d in back for v in d.victims}
            await self._mirror.read_again(nodes, {d.workload.id for d in back})
        for decision, what in result.conflicts:
            _log.info(f"Workload {decision.workload.id} goes back to placing: {what}")
        metrics.bind_conflicts.inc(len(result.conflicts))
        for decision in result.bound:
            if not decision.workload.placed_before:
                metrics.waited_seconds.observe((at - decision.workload.created_at).total_seconds())
                self._measure_start(decision.workload, at)
        narrate(result.applied)
        for decision in result.bound:
            if decision.victims:
                metrics.preempted.inc(len(decision.victims))
                _log.info(f"{_counted(len(decision.victims), Kind.SESSION)} leave for {decision.workload.id}")
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
        for decision in left:
            if decision.planned_start is not None:
                self._first_starts.setdefault(decision.workload.id, decision.planned_start)
        failed = {d.workload.id for d in left if d.outcome in (Outcome.IMPOSSIBLE, Outcome.ERROR)}
        if failed:
            await self._mirror.read_again((), failed)
        narrate(result.applied)

    def _answer(
        self,
        asked: Sequence[asyncio.Future[FullPass]],
        placed: Sequence[tuple[Scheduler | None, Pass]],
        seconds: float,
        queued: int,
        conflicts: Collection[UUID] = (),
    ) -> None:
        """Tell those who asked for it what came of a pass; what went back to placing waits."""
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

    def _measure_start(self, workload: Workload, at: datetime) -> None:
        """How right its first planned start was; after a take-over the one that was stored counts for that."""
        planned = self._first_starts.pop(workload.id, workload.planned_start)
        if planned is not None:
            late = (at - planned).total_seconds()
            metrics.start_error_seconds.labels("late" if late > 0 else "early").observe(abs(late))

    def _measure_queue(self, at: datetime) -> None:
        queue = self._mirror.queue.values()
        metrics.queue_length.set(len(queue))
        oldest = min((workload.created_at for workload in queue), default=at)
        metrics.queue_oldest_seconds.set((at - oldest).total_seconds())
        if monotonic() - self._measured_at >= _MEASURED_SECONDS:
            self._measured_at = monotonic()
            self._measure_ages(at)

    def _measure_ages(self, at: datetime) -> None:
        """How long work waits in each pool: who starves is seen here."""
        ages: dict[str, list[float]] = {name: [] for name in self._mirror.pools}
        for workload in self._mirror.queue.values():
            ages.setdefault(workload.pool, []).append((at - workload.created_at).total_seconds())
        for pool, waited in ages.items():
            waited.sort()
            metrics.pool_oldest_seconds.labels(pool).set(waited[-1] if waited else 0)
            for most in metrics.QUEUE_AGES:
                metrics.queue_age.labels(pool, str(most)).set(bisect_right(waited, most))
            metrics.queue_age.labels(pool, "+Inf").set(len(waited))


def _counted_in_metrics(result: Pass) -> Pass:
    for outcome, number in result.outcomes.items():
        metrics.decisions.labels(outcome.value).inc(number)
    return result


def _worth_writing(decisions: Sequence[Decision]) -> list[Decision]:
    """Those that change something: an unchanged reason to wait is stored already."""
    return [
        decision
        for decision in decisions
        if decision.outcome is not Outcome.WAITING
        or (decision.reason is not None and decision.reason.message != decision.workload.waiting_reason)
        or decision.is_replanned
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
