"""The simulation: submissions, ends and faults in order of time, and passes of the production scheduler after each.

The scheduler and its pending queue are those of a server; only the clock is virtual, and jobs end by themselves when
their run time is over. At one time, jobs end first, then nodes are lost or return, then jobs are submitted.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from uuid import UUID

from mooring.model.decisions import Decision, Outcome
from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import PoolPolicy
from mooring.model.policy.preemption import PreemptionMode, RunningTask, Victim
from mooring.model.workloads.runs import EndedRun
from mooring.model.workloads.workload import OnInsufficient, Workload
from mooring.scheduling.calendar.prediction.predictors import features_of, predictor_of, with_prediction
from mooring.scheduling.calendar.seconds import seconds_of, time_of
from mooring.scheduling.calendar.timeline import Expected
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.explain.explanation import forget
from mooring.simulation.bookings import Bookings
from mooring.simulation.gpus import Gpus
from mooring.simulation.jobs import DEFAULT_POOL, Job, workload_of
from mooring.simulation.outcomes import Attempt, Cause, JobOutcome, Result, Status
from mooring.simulation.pools import Pools
from mooring.simulation.scenario import Fault, Scenario, check, with_task_limits
from mooring.simulation.tenants import Tenants, guarantees_of

_FULL_PASS_SECONDS = 30
"""A server tries all pending work this often (`reconcile_interval`), since priorities and shares change with time."""

_COLLECTION_THRESHOLDS = (200_000, 20, 100)

Progress = Callable[[float], None]
"""Called with the finished part of the jobs, from 0 to 1."""
_PROGRESS_EVENTS = 512


def simulate(nodes: Sequence[Node], jobs: Sequence[Job], policy: PoolPolicy) -> Result:
    """Return the result of jobs on nodes of one pool with this policy."""
    return replay(Scenario(nodes, jobs, {DEFAULT_POOL: policy}))


def replay(scenario: Scenario, progress: Progress | None = None) -> Result:
    """Return the result of a scenario.

    Raise InvalidInput for an option of a pool that the simulation does not model.
    """
    check(scenario)
    with _with_less_garbage_collection():
        return _Replay(scenario).run(progress)


@dataclass(slots=True)
class _Running:
    decision: Decision
    start: int


class _Replay:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._nodes = {node.name: node for node in with_task_limits(scenario.nodes, scenario.pools)}
        self._cluster = Cluster(self._nodes.values())
        self._cluster.timeline.advance(0)
        self._tenants = Tenants(scenario.tenants, scenario.pools)
        guarantees = guarantees_of(scenario.tenants, scenario.pools)
        self._pools = Pools(self._cluster, scenario.pools, guarantees)
        self._bookings = Bookings(self._cluster, self._pools, scenario.bookings)
        self._queue = self._pools.queue
        self._arrivals = sorted(scenario.jobs, key=lambda job: (job.submitted, job.number))
        self._outcomes = {job.number: JobOutcome(job) for job in scenario.jobs}
        if len(self._outcomes) < len(scenario.jobs):
            raise InvalidInput("two jobs have the same number", code="invalid-scenario")
        span = self._arrivals[-1].submitted - self._arrivals[0].submitted if self._arrivals else 0
        self._gpus = Gpus(self._cluster, scenario.pools, span)
        self._capacity = {name: self._cluster.capacity_of(name) for name in scenario.pools}
        self._predictors = {
            name: predictor
            for name, policy in scenario.pools.items()
            if (predictor := predictor_of(policy.backfill.expectation)) is not None
        }
        self._position = 0
        self._now = 0
        self._running: dict[int, _Running] = {}
        self._waiting: dict[int, Workload] = {}
        """Waiting jobs as they were submitted last; their later attempts have other tasks."""
        self._in_booking: dict[str, set[int]] = {}
        """Waiting and running jobs by booking."""
        self._ends: list[tuple[int, int, int]] = []
        """Time, job and start: an entry whose start differs from that of the running attempt is outdated."""
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        """Time, sequence number and action."""
        self._timer_numbers = count()
        self._futile_wakes = 0
        """Passes since the last start or event, made only because pending work was due to be tried again."""
        ages = any(policy.ageing_seconds for policy in scenario.pools.values())
        self._tries_all = ages or any(p.sequencer in ("fair_share", "multi_factor") for p in scenario.pools.values())
        self._tried_all_at = 0
        for fault in scenario.faults:
            self._at(fault.at, lambda fault=fault: self._lose(fault))  # type: ignore[misc]
            if fault.back_at is not None:
                self._at(fault.back_at, lambda fault=fault: self._restore(fault))  # type: ignore[misc]
        for booking in scenario.bookings:
            self._at(booking.end, lambda name=booking.name: self._end_booking(name))  # type: ignore[misc]

    def run(self, progress: Progress | None) -> Result:
        events, until, total = 0, self._scenario.until, max(len(self._arrivals), 1)
        while (time := self._next_time()) is not None and (until is None or time <= until):
            if self._gpus.present and self._position:
                self._gpus.sample(self._now)
            self._now = self._pools.now = time
            self._end_jobs()
            while self._timers and self._timers[0][0] <= time:
                heappop(self._timers)[2]()
            self._submit_jobs()
            self._schedule()
            events += 1
            if progress is not None and events % _PROGRESS_EVENTS == 0:
                progress((self._position - len(self._waiting) - len(self._running)) / total)
        return self._result()

    def _next_time(self) -> int | None:
        times: list[int] = []
        if self._position < len(self._arrivals):
            times.append(self._arrivals[self._position].submitted)
        elif not self._running and not self._waiting:
            return None
        if self._ends:
            times.append(self._ends[0][0])
        if self._timers:
            times.append(self._timers[0][0])
        next_event = min(times, default=None)
        due = self._queue.next_time()
        if due is None:
            return next_event
        wake = max(seconds_of(due), self._now + 1)
        if next_event is not None and next_event <= wake:
            self._futile_wakes = 0
            return next_event
        # Work that waits for victims to have run for a minimum time is due again and again, also in vain.
        self._futile_wakes += 1
        return wake if self._futile_wakes <= 2 * len(self._waiting) + 2 else next_event

    def _end_jobs(self) -> None:
        while self._ends and self._ends[0][0] <= self._now:
            end, number, start = heappop(self._ends)
            running = self._running.get(number)
            if running is None or running.start != start:
                continue
            self._stop(number, Cause.ENDED)
            self._outcomes[number].status = Status.ENDED
            self._scenario.estimates.ended(self._outcomes[number].job, end - start)
            predictor = self._predictors.get(running.decision.workload.pool)
            if predictor is not None:
                predictor.learn(EndedRun(features_of(running.decision.workload), end - start))

    def _submit_jobs(self) -> None:
        arrivals, gpus = self._arrivals, self._gpus
        while self._position < len(arrivals) and arrivals[self._position].submitted <= self._now:
            job = arrivals[self._position]
            self._position += 1
            if gpus.present:
                gpus.submitted(job)
            self._submit(job)

    def _submit(self, job: Job) -> None:
        policy, outcome = self._scenario.pools[job.pool], self._outcomes[job.number]
        longest = policy.max_time_seconds
        limit = job.limit_seconds if job.limit_seconds is not None else policy.default_time_seconds or longest
        if longest is not None and limit is not None and limit > longest:
            outcome.status = Status.REFUSED
            return
        if job.booking in self._bookings.refused:
            outcome.status = Status.EXPIRED
            return
        outcome.limit_seconds = limit
        if policy.pending_timeout_seconds:
            self._at(job.submitted + policy.pending_timeout_seconds, lambda: self._expire(job.number))
        if job.booking:
            self._in_booking.setdefault(job.booking, set()).add(job.number)
        self._wait(job, attempt=1)

    def _wait(self, job: Job, attempt: int) -> None:
        policy, estimates = self._scenario.pools[job.pool], self._scenario.estimates
        fails = policy.on_insufficient is OnInsufficient.FAIL
        workload = workload_of(
            job,
            attempt=attempt,
            expected_seconds=estimates.expected_seconds(job, self._outcomes[job.number].limit_seconds),
            on_insufficient=OnInsufficient.FAIL if fails else OnInsufficient.WAIT,
            bookings=self._bookings.ids,
        )
        workload = with_prediction(workload, self._predictors.get(job.pool))
        self._waiting[job.number] = workload
        self._queue.admit(workload)

    # --- passes ---

    def _schedule(self) -> None:
        """Run passes until nothing more can be placed at this time."""
        self._cluster.timeline.advance(self._now)
        now, queue = time_of(self._now), self._queue
        if self._gpus.present:
            self._gpus.learn(self._now)
        factors = self._tenants.factors(
            self._now, ((each.decision.workload, each.start) for each in self._running.values()), self._capacity
        )
        if factors is not None:
            self._pools.factors = factors
            queue.reconsider(queue.strict_pools)
        untried = True
        while untried:
            taken = self._take()
            if not taken:
                return
            self._pools.admission = self._tenants.admission(now)
            for result in self._pools.place(taken, now):
                for decision in result.decisions:
                    self._apply(decision)
            untried = queue.has_untried_work

    def _take(self) -> list[Workload]:
        now = time_of(self._now)
        if self._tries_all and self._now - self._tried_all_at >= _FULL_PASS_SECONDS:
            self._tried_all_at = self._now
            return self._queue.take_all(now)
        return self._queue.take(now)

    def _apply(self, decision: Decision) -> None:
        if decision.placements:
            for victim in {victim.workload_id: victim for victim in decision.victims}.values():
                self._preempt(victim)
            self._start(decision)
        elif decision.outcome is Outcome.IMPOSSIBLE:
            self._leave(decision.workload.id.int - 1, Status.IMPOSSIBLE)
        elif decision.outcome is Outcome.ERROR:
            assert decision.reason is not None
            raise InvalidInput(f"{decision.workload.name}: {decision.reason.message}", code=decision.reason.code)
        elif decision.planned_start is not None:
            outcome = self._outcomes[decision.workload.id.int - 1]
            if outcome.planned_start is None and not outcome.attempts:
                outcome.planned_start = seconds_of(decision.planned_start)

    def _start(self, decision: Decision) -> None:
        workload = decision.workload
        number = workload.id.int - 1
        self._running[number] = _Running(decision, self._now)
        self._futile_wakes = 0
        del self._waiting[number]
        self._queue.forget(workload.id)
        outcome = self._outcomes[number]
        run, limit = outcome.job.run_seconds, outcome.limit_seconds
        seconds = min((each for each in (run, limit) if each is not None), default=None)
        if seconds is not None:
            heappush(self._ends, (self._now + seconds, number, self._now))
        if self._pools.preempt:
            self._register(decision, outcome.job)
        if decision.outcome is Outcome.RESERVED or self._scenario.bookings:
            self._expect_end(decision)

    def _expect_end(self, decision: Decision) -> None:
        """Note the expected end of a placement that the pass did not note, as a server reads it from its store."""
        workload = decision.workload
        if workload.longest_seconds is None or workload.booking is not None:
            return
        ends: dict[UUID, Expected] = {}
        for placement in decision.placements:
            row = self._cluster.row_of(placement.node_id)
            assert row is not None
            footprint = Footprint(workload.constraints, placement.devices, False, 0)
            end, expected = self._now + workload.longest_seconds, workload.expected_seconds
            guessed = None if workload.predicted_seconds is None or expected is None else self._now + expected
            ends[placement.task_id] = Expected(row, end, workload.request, footprint, guessed)
        self._cluster.timeline.expect_all(ends)  # type: ignore[arg-type]

    def _register(self, decision: Decision, job: Job) -> None:
        """Register the tasks as running, for preemption."""
        workload, running = decision.workload, self._pools.running_tasks
        for placement in decision.placements:
            task = RunningTask(
                placement.task_id,
                workload.id,
                placement.node_id,
                workload.priority,
                workload.request,
                workload.constraints,
                workload.user_id,
                workload.project_id,
                workload.domain_id,
                preemptible=job.preemptible and workload.booking is None,
                started_at=time_of(self._now),
                whole=workload.gang,
                devices=placement.devices,
            )
            running.update(placement.node_id, [*running.on(placement.node_id), task])

    # --- ends ---

    def _stop(self, number: int, cause: Cause, *, leaving: bool = False) -> Workload:
        """End the running attempt of a job and release what it occupies."""
        running = self._running.pop(number)
        decision = running.decision
        workload = decision.workload
        forget(self._cluster, decision, leaving=leaving)
        if self._pools.preempt:
            tasks = self._pools.running_tasks
            for node_id in {placement.node_id for placement in decision.placements}:
                tasks.update(node_id, [each for each in tasks.on(node_id) if each.workload_id != workload.id])
        self._tenants.note_use(workload, running.start, self._now)
        self._queue.requeue_tenants(self._tenants.release(workload))
        self._record(number, running, cause)
        booking = self._outcomes[number].job.booking
        if booking:
            members = self._in_booking[booking]
            members.discard(number)
            for other in sorted(members & self._waiting.keys()):
                self._queue.admit(self._waiting[other])
        return workload

    def _record(self, number: int, running: _Running, cause: Cause) -> None:
        nodes = tuple(placement.node_name for placement in running.decision.placements)
        self._outcomes[number].attempts.append(Attempt(running.start, self._now, nodes, cause))

    def _preempt(self, victim: Victim) -> None:
        number = victim.workload_id.int - 1
        self._stop(number, Cause.PREEMPTED, leaving=True)
        job = self._outcomes[number].job
        rules = self._scenario.pools[job.pool].preemption
        if rules is not None and rules.mode is PreemptionMode.REQUEUE:
            self._wait(job, attempt=len(self._outcomes[number].attempts) + 1)
        else:
            self._outcomes[number].status = Status.PREEMPTED

    def _leave(self, number: int, status: Status) -> None:
        """Remove a waiting job for good."""
        del self._waiting[number]
        self._queue.forget(UUID(int=number + 1))
        outcome = self._outcomes[number]
        outcome.status = status
        if outcome.job.booking:
            self._in_booking[outcome.job.booking].discard(number)

    def _expire(self, number: int) -> None:
        """Expire a job that has waited for the timeout of its pool and has never started."""
        if number in self._waiting and not self._outcomes[number].attempts:
            self._leave(number, Status.EXPIRED)

    def _end_booking(self, name: str) -> None:
        for number in sorted(self._in_booking.get(name, ())):
            if number in self._running:
                self._stop(number, Cause.BOOKING_OVER)
                self._outcomes[number].status = Status.PREEMPTED
            else:
                self._leave(number, Status.EXPIRED)
        self._bookings.release(name)

    # --- nodes ---

    def _lose(self, fault: Fault) -> None:
        lost = {self._nodes[name].id for name in fault.nodes}
        hit = [
            number
            for number, running in self._running.items()
            if any(placement.node_id in lost for placement in running.decision.placements)
        ]
        for number in hit:
            self._stop(number, Cause.NODE_LOST)
            self._wait(self._outcomes[number].job, attempt=len(self._outcomes[number].attempts) + 1)
        for node_id in lost:
            self._cluster.remove(node_id)
            self._pools.running_tasks.remove(node_id)
        self._capacity = {name: self._cluster.capacity_of(name) for name in self._scenario.pools}

    def _restore(self, fault: Fault) -> None:
        for name in fault.nodes:
            if self._cluster.row_of(self._nodes[name].id) is None:
                self._cluster.upsert(replace(self._nodes[name]))
        self._capacity = {name: self._cluster.capacity_of(name) for name in self._scenario.pools}

    def _at(self, time: int, action: Callable[[], None]) -> None:
        heappush(self._timers, (time, next(self._timer_numbers), action))

    def _result(self) -> Result:
        start = self._arrivals[0].submitted if self._arrivals else 0
        until = self._scenario.until
        end = self._now if until is None else max(until, start)
        self._now = end
        for number, running in self._running.items():
            self._record(number, running, Cause.NOT_ENDED)
            self._outcomes[number].status = Status.RUNNING
        outcomes = [self._outcomes[job.number] for job in self._scenario.jobs]
        return Result(outcomes, start, end, self._gpus.samples, self._bookings.outcomes)


@contextmanager
def _with_less_garbage_collection() -> Iterator[None]:
    """Search for cyclic garbage less often: a replay makes few cycles, and each search visits many objects."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
