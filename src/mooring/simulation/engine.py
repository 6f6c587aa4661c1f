"""The simulation: submissions, ends and faults in order of time, and passes of the production scheduler after each.

The scheduler and its pending queue are those of a server; only the clock is virtual, and jobs end by themselves when
their run time is over. At one time, jobs end first, then nodes are lost or return, then jobs are submitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from uuid import UUID, uuid5

from mooring.model.decisions import Decision, Outcome
from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import Expectation, PoolPolicy
from mooring.model.policy.preemption import PreemptionMode, RunningTask, Victim
from mooring.model.workloads.lifetime.runs import EndedRun
from mooring.model.workloads.workload import Kind, OnInsufficient, Task, Workload
from mooring.scheduling.calendar.prediction.predictors import features_of, predictor_of, with_prediction
from mooring.scheduling.calendar.seconds import seconds_of, time_of
from mooring.scheduling.calendar.timeline import Expected
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.explain.explanation import forget
from mooring.simulation.bookings import Bookings
from mooring.simulation.defragmentation import planned_moves
from mooring.simulation.garbage_collection import less_garbage_collection
from mooring.simulation.gpus import Gpus
from mooring.simulation.jobs import DEFAULT_POOL, Job, workload_of
from mooring.simulation.live_state import Live, RunningPart, occupy, reserve
from mooring.simulation.outcomes import Attempt, Cause, JobOutcome, Placed, Result, Status
from mooring.simulation.pools import Pools
from mooring.simulation.scenario import Defragmentation, Fault, Scenario, check, with_task_limits
from mooring.simulation.tenants import LiveTenants, Tenants, guarantees_of

_FULL_PASS_SECONDS = 30
"""A server tries all pending work this often (`reconcile_interval`), since priorities and shares change with time."""

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
    with less_garbage_collection():
        return Replay(scenario).run(progress)


@dataclass(slots=True)
class _Running:
    number: int
    decision: Decision
    start: int


class Replay:
    """One simulation: its state, and what happens at each time."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._nodes = {node.name: node for node in with_task_limits(scenario.nodes, scenario.pools)}
        self._cluster = Cluster(self._nodes.values())
        self._cluster.timeline.advance(scenario.begins)
        self._live = live = scenario.live
        self._tenants: Tenants | LiveTenants
        if live is None:
            self._tenants = Tenants(scenario.tenants, scenario.pools)
            guarantees = guarantees_of(scenario.tenants, scenario.pools)
        else:
            self._tenants, guarantees = LiveTenants(live, scenario.pools), live.guarantees
        self._pools = Pools(self._cluster, scenario.pools, guarantees, admits=self._tenants.counted)
        self._bookings = Bookings(self._cluster, self._pools, scenario.bookings)
        self._queue = self._pools.queue
        pending = [job for job in scenario.jobs if job.workload is None or job.workload.tasks]
        self._arrivals = sorted(pending, key=lambda job: (job.submitted, job.number))
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
        self._now = scenario.begins
        self._running: dict[int, _Running] = {}
        """By number of the job; by number of the run where the simulation starts from the state of a server."""
        self._runs: dict[int, dict[int, None]] = {}
        """The runs by job, if the simulation starts from the state of a server."""
        self._run_numbers = count()
        self._numbers = {job.workload.id: job.number for job in scenario.jobs if job.workload is not None}
        self._placed: list[Placed] = []
        self._waiting: dict[int, Workload] = {}
        """Waiting jobs as they were submitted last; their later attempts have other tasks."""
        self._in_booking: dict[str, set[int]] = {}
        """Waiting and running jobs by booking."""
        self._ends: list[tuple[int, int, int]] = []
        """Time, run and start: an entry whose start differs from that of the running attempt is outdated."""
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        """Time, sequence number and action."""
        self._timer_numbers = count()
        self._idle_passes = 0
        """Passes since the last start or event, made only because pending work was due to be tried again."""
        ages = any(policy.ageing_seconds for policy in scenario.pools.values())
        self._tries_all = ages or any(p.sequencer in ("fair_share", "multi_factor") for p in scenario.pools.values())
        self._tried_all_at = 0
        for fault in scenario.faults:
            self._at(fault.at, lambda fault=fault: self._lose(fault))  # type: ignore[misc]
            if fault.back_at is not None:
                self._at(fault.back_at, lambda fault=fault: self._restore(fault))  # type: ignore[misc]
        for rule in scenario.moves:
            self._at(rule.every_seconds, lambda rule=rule: self._defragment(rule))  # type: ignore[misc]
        for booking in scenario.bookings:
            self._at(booking.end, lambda name=booking.name: self._end_booking(name))  # type: ignore[misc]
        if live is not None:
            self._begin_live(live)

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
            times.append(max(self._arrivals[self._position].submitted, self._scenario.begins))
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
        next_pass = max(seconds_of(due), self._now + 1)
        if next_event is not None and next_event <= next_pass:
            self._idle_passes = 0
            return next_event
        # Work that waits for the minimum run time of victims is due repeatedly, often without success.
        self._idle_passes += 1
        return next_pass if self._idle_passes <= 2 * len(self._waiting) + 2 else next_event

    def _end_jobs(self) -> None:
        while self._ends and self._ends[0][0] <= self._now:
            end, run, start = heappop(self._ends)
            running = self._running.get(run)
            if running is None or running.start != start:
                continue
            self._stop(run, Cause.ENDED)
            number = running.number
            if self._live is not None and (self._runs.get(number) or number in self._waiting):
                continue
            self._outcomes[number].status = Status.ENDED
            if self._live is not None:
                self._release_dependents(running.decision.workload.id)
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
        if job.workload is not None:
            self._submit_live(job, job.workload, policy)
            return
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

    def _wait(self, job: Job, attempt: int, target: str | None = None) -> None:
        """Queue a job. `target`: the node that it prefers to all others."""
        policy, estimates = self._scenario.pools[job.pool], self._scenario.estimates
        fails = policy.on_insufficient is OnInsufficient.FAIL
        workload = workload_of(
            job,
            attempt=attempt,
            expected_seconds=estimates.expected_seconds(job, self._outcomes[job.number].limit_seconds),
            on_insufficient=OnInsufficient.FAIL if fails else OnInsufficient.WAIT,
            bookings=self._bookings.ids,
        )
        if target is not None:
            workload = replace(workload, constraints=replace(workload.constraints, designated=frozenset((target,))))
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
            for run in self._victim_runs(decision.victims):
                self._preempt(run)
            self._start(decision)
        elif decision.outcome is Outcome.IMPOSSIBLE or (decision.outcome is Outcome.ERROR and self._live is not None):
            self._leave(self._number(decision.workload.id), Status.IMPOSSIBLE)
        elif decision.outcome is Outcome.ERROR:
            assert decision.reason is not None
            raise InvalidInput(f"{decision.workload.name}: {decision.reason.message}", code=decision.reason.code)
        elif decision.planned_start is not None:
            outcome = self._outcomes[self._number(decision.workload.id)]
            if outcome.planned_start is None and not outcome.attempts:
                outcome.planned_start = seconds_of(decision.planned_start)

    def _start(self, decision: Decision) -> None:
        workload = decision.workload
        number = self._number(workload.id)
        self._idle_passes = 0
        outcome = self._outcomes[number]
        run_number = number if self._live is None else self._begin_part(number, decision)
        self._running[run_number] = _Running(number, decision, self._now)
        if number in self._waiting and len(decision.placements) >= len(self._waiting[number].tasks):
            del self._waiting[number]
            self._queue.forget(workload.id)
        elif number in self._waiting:
            self._wait_for_rest(number, decision)
        run, limit = outcome.job.run_seconds, outcome.limit_seconds
        seconds = min((each for each in (run, limit) if each is not None), default=None)
        if seconds is not None:
            heappush(self._ends, (self._now + seconds, run_number, self._now))
        if self._pools.preempt:
            self._register(decision, outcome.job)
        live = self._live
        if (
            decision.outcome is Outcome.RESERVED
            or self._scenario.bookings
            or (live is not None and (live.reservations or self._relies_on_history(workload.pool)))
        ):
            self._expect_end(decision)

    def _expect_end(self, decision: Decision) -> None:
        """Note the expected end of a placement that the pass did not note, as a server reads it from its store."""
        workload = decision.workload
        usually = None
        if self._live is not None and self._relies_on_history(workload.pool):
            usually = self._outcomes[self._number(workload.id)].job.run_seconds
        longest = workload.longest_seconds if workload.longest_seconds is not None else usually
        if longest is None or workload.booking is not None:
            return
        ends: dict[UUID, Expected] = {}
        for placement in decision.placements:
            row = self._cluster.row_of(placement.node_id)
            assert row is not None
            footprint = Footprint(workload.constraints, placement.devices, False, 0)
            end, expected = self._now + longest, workload.expected_seconds
            if workload.predicted_seconds is None or expected is None:
                expected = usually
            guessed = None if expected is None else self._now + expected
            ends[placement.task_id] = Expected(row, end, workload.request, footprint, guessed)
        self._cluster.timeline.expect_all(ends)  # type: ignore[arg-type]

    def _register(self, decision: Decision, job: Job, part: RunningPart | None = None) -> None:
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
                preemptible=(job if part is None else part).preemptible and workload.booking is None,
                started_at=time_of(self._now if part is None else part.start),
                whole=workload.gang if part is None else part.whole,
                devices=placement.devices,
            )
            running.update(placement.node_id, [*running.on(placement.node_id), task])

    # --- ends ---

    def _stop(self, run: int, cause: Cause, *, leaving: bool = False) -> _Running:
        """End a running attempt of a job and release what it occupies."""
        running = self._running.pop(run)
        number, decision = running.number, running.decision
        workload = decision.workload
        forget(self._cluster, decision, leaving=leaving)
        if self._pools.preempt:
            tasks = self._pools.running_tasks
            for node_id in {placement.node_id for placement in decision.placements}:
                tasks.update(node_id, [each for each in tasks.on(node_id) if each.workload_id != workload.id])
        self._tenants.note_use(workload, running.start, self._now)
        if self._live is not None:
            workload = self._end_part(run, running)
        self._queue.requeue_tenants(self._tenants.release(workload))
        self._record(number, running, cause)
        booking = self._outcomes[number].job.booking
        if booking:
            members = self._in_booking[booking]
            members.discard(number)
            for other in sorted(members & self._waiting.keys()):
                self._queue.admit(self._waiting[other])
        return running

    def _record(self, number: int, running: _Running, cause: Cause) -> None:
        nodes = tuple(placement.node_name for placement in running.decision.placements)
        self._outcomes[number].attempts.append(Attempt(running.start, self._now, nodes, cause))

    def _victim_runs(self, victims: Sequence[Victim]) -> list[int]:
        """Return the runs of the tasks to preempt, each once."""
        if self._live is None:
            return list({self._number(victim.workload_id): None for victim in victims})
        tasks = {victim.task_id for victim in victims}
        runs = {run: None for victim in victims for run in self._runs.get(self._number(victim.workload_id), ())}
        return [run for run in runs if any(each.task_id in tasks for each in self._running[run].decision.placements)]

    def _preempt(self, run: int) -> None:
        running = self._stop(run, Cause.PREEMPTED, leaving=True)
        number = running.number
        job = self._outcomes[number].job
        rules = self._scenario.pools[job.pool].preemption
        requeued = rules is not None and rules.mode is PreemptionMode.REQUEUE
        if self._live is not None and (requeued or running.decision.workload.kind is Kind.DEPLOYMENT):
            self._requeue_part(running)
        elif self._live is None and requeued:
            self._wait(job, attempt=len(self._outcomes[number].attempts) + 1)
        else:
            self._outcomes[number].status = Status.PREEMPTED

    def _leave(self, number: int, status: Status) -> None:
        """Remove a waiting job for good."""
        self._queue.forget(self._waiting.pop(number).id)
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

    # --- defragmentation ---

    def _defragment(self, rule: Defragmentation) -> None:
        """Move jobs of a pool by a plan, up to the first that does not start on its new node."""
        if self._ends or self._position < len(self._arrivals):
            self._at(self._now + rule.every_seconds, lambda: self._defragment(rule))
        # Work that fits without moves starts first.
        self._schedule()
        running = [
            (running.decision, running.start, self._outcomes[running.number].job) for running in self._running.values()
        ]
        admission = self._tenants.admission(time_of(self._now))
        pending = self._pools.queue_order(rule.pool, self._waiting.values(), admission)
        profile = self._pools.scheduler(rule.pool).profile
        for move in planned_moves(self._cluster, profile, rule, running, pending, admission, self._now):
            number = self._number(move.workload_id)
            self._stop(number, Cause.MOVED)
            outcome = self._outcomes[number]
            self._wait(outcome.job, attempt=len(outcome.attempts) + 1, target=move.target)
            self._schedule()
            moved = self._running.get(number)
            if moved is None or moved.decision.placements[0].node_name != move.target:
                return

    # --- nodes ---

    def _lose(self, fault: Fault) -> None:
        lost = {self._nodes[name].id for name in fault.nodes}
        hit = [
            run
            for run, running in self._running.items()
            if any(placement.node_id in lost for placement in running.decision.placements)
        ]
        for run in hit:
            running = self._stop(run, Cause.NODE_LOST)
            if self._live is not None:
                self._requeue_part(running)
            else:
                outcome = self._outcomes[running.number]
                self._wait(outcome.job, attempt=len(outcome.attempts) + 1)
        for node_id in lost:
            self._cluster.remove(node_id)
            self._pools.running_tasks.remove(node_id)
        self._capacity = {name: self._cluster.capacity_of(name) for name in self._scenario.pools}

    def _restore(self, fault: Fault) -> None:
        for name in fault.nodes:
            if self._cluster.row_of(self._nodes[name].id) is None:
                self._cluster.upsert(replace(self._nodes[name]))
        self._capacity = {name: self._cluster.capacity_of(name) for name in self._scenario.pools}

    # --- from the state of a server, where the tasks of a job may start and end apart ---

    def _number(self, workload_id: UUID) -> int:
        number = self._numbers.get(workload_id) if self._numbers else None
        return workload_id.int - 1 if number is None else number

    def _begin_live(self, live: Live) -> None:
        self._gpus.present = False
        for pool, typical in live.typical.items():
            self._cluster.set_typical_requests(pool, list(typical))
        occupy(self._cluster, live.running)
        self._pools.set_budgets(live.budgets)
        for reservation in live.reservations:
            reserve(self._cluster, reservation)
            self._at(reservation.ends, lambda each=reservation: self._end_reservation(each.id))  # type: ignore[misc]
        for part in live.running:
            if all(self._cluster.row_of(each.node_id) is None for each in part.placements):
                continue
            decision = Decision(part.workload, Outcome.PLACED, part.placements)
            run = next(self._run_numbers)
            self._runs.setdefault(part.number, {})[run] = None
            self._running[run] = _Running(part.number, decision, part.start)
            if part.end is not None:
                heappush(self._ends, (max(part.end, live.at + 1), run, part.start))
            if self._pools.preempt:
                self._register(decision, self._outcomes[part.number].job, part)

    def _submit_live(self, job: Job, workload: Workload, policy: PoolPolicy) -> None:
        self._outcomes[job.number].limit_seconds = workload.longest_seconds
        if policy.pending_timeout_seconds and not workload.placed_before:
            self._at(
                max(job.submitted + policy.pending_timeout_seconds, self._now + 1), lambda: self._expire(job.number)
            )
        self._waiting[job.number] = workload
        self._queue.admit(workload)

    def _begin_part(self, number: int, decision: Decision) -> int:
        run = next(self._run_numbers)
        self._runs.setdefault(number, {})[run] = None
        self._placed.append(Placed(self._now, number, tuple(each.node_name for each in decision.placements)))
        return run

    def _wait_for_rest(self, number: int, decision: Decision) -> None:
        """Return the tasks of a waiting job that a decision did not place to the queue."""
        waiting = self._waiting[number]
        placed = {each.task_id for each in decision.placements}
        left = tuple(task for task in waiting.tasks if task.id not in placed)
        if left:
            self._admit(number, replace(waiting, tasks=left, placed_before=True))
        else:
            del self._waiting[number]
            self._queue.forget(waiting.id)

    def _end_part(self, run: int, running: _Running) -> Workload:
        """Forget an ended part. Return what its tenants are refunded: with its last part also the session."""
        number, decision = running.number, running.decision
        del self._runs[number][run]
        placed = {each.task_id for each in decision.placements}
        tasks = tuple(task for task in decision.workload.tasks if task.id in placed)
        if number in self._waiting:
            self._admit(number, self._waiting[number])
        return replace(decision.workload, tasks=tasks, occupied=self._occupied(number))

    def _requeue_part(self, running: _Running) -> None:
        """Requeue the tasks of a part that was stopped: they start from the beginning."""
        number, decision = running.number, running.decision
        template = self._outcomes[number].job.workload
        assert template is not None
        before = self._waiting.get(number)
        placed = {each.task_id for each in decision.placements}
        again = [
            Task(uuid5(task.id, "again"), task.index, task.attempt + 1)
            for task in decision.workload.tasks
            if task.id in placed
        ]
        waiting = template if before is None else before
        tasks = (*(() if before is None else before.tasks), *again)
        self._admit(number, replace(waiting, tasks=tasks, placed_before=True))

    def _admit(self, number: int, workload: Workload) -> None:
        """Queue the pending tasks of a job in addition to those that run."""
        self._waiting[number] = replace(workload, occupied=self._occupied(number))
        self._queue.admit(self._waiting[number])

    def _occupied(self, number: int) -> dict[UUID, int]:
        decisions = [self._running[run].decision for run in self._runs.get(number, ()) if run in self._running]
        return dict(Counter(each.node_id for decision in decisions for each in decision.placements))

    def _release_dependents(self, ended: UUID) -> None:
        """Let the jobs continue that wait for the end of a workload; it is taken to have succeeded."""
        for number, waiting in list(self._waiting.items()):
            if ended in waiting.behind or any(each.workload_id == ended for each in waiting.dependencies):
                met = tuple(
                    replace(each, status=WorkloadStatus.SUCCEEDED) if each.workload_id == ended else each
                    for each in waiting.dependencies
                )
                behind = tuple(each for each in waiting.behind if each != ended)
                self._admit(number, replace(waiting, dependencies=met, behind=behind))

    def _end_reservation(self, identity: UUID) -> None:
        for run in [run for run, each in self._running.items() if each.decision.workload.booking == identity]:
            running = self._stop(run, Cause.BOOKING_OVER)
            self._outcomes[running.number].status = Status.PREEMPTED
        for number in [number for number, each in self._waiting.items() if each.booking == identity]:
            self._leave(number, Status.EXPIRED)
        self._cluster.timeslots.forget(identity)

    def _relies_on_history(self, pool: str) -> bool:
        return self._scenario.pools[pool].backfill.expectation is Expectation.HISTORY

    def _at(self, time: int, action: Callable[[], None]) -> None:
        heappush(self._timers, (max(time, self._scenario.begins), next(self._timer_numbers), action))

    def _result(self) -> Result:
        start = self._arrivals[0].submitted if self._arrivals and self._live is None else self._scenario.begins
        until = self._scenario.until
        end = self._now if until is None else max(until, start)
        self._now = end
        for running in self._running.values():
            self._record(running.number, running, Cause.NOT_ENDED)
            if running.number not in self._waiting:
                self._outcomes[running.number].status = Status.RUNNING
        outcomes = [self._outcomes[job.number] for job in self._scenario.jobs]
        return Result(outcomes, start, end, self._gpus.samples, self._bookings.outcomes, self._placed)
