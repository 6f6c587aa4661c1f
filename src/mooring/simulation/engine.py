"""The simulation: submissions and ends in order of time, and a pass of the production scheduler after each.

The scheduler and its pending queue are those of a server; only the clock is virtual, and jobs end by themselves when
their run time is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from heapq import heappop, heappush

from mooring.model.decisions import Decision, Outcome
from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import HeadOfLine, PoolPolicy
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.seconds import time_of
from mooring.scheduling.explain.explanation import forget
from mooring.scheduling.plugins.profiles import Registry
from mooring.scheduling.queue.pending_queue import PendingQueue
from mooring.scheduling.scheduler import Scheduler
from mooring.simulation.jobs import Job, workload_of

_POOL = "default"
_MODELLED = {
    "profile",
    "weights",
    "scorer_options",
    "filters",
    "selector",
    "selector_options",
    "sequencer",
    "factors",
    "ageing_seconds",
    "head_of_line",
    "backfill",
}
"""Options of a pool that the simulation follows; the others must have their defaults."""
_FEW_NODES = 64
"""Up to this many nodes, NumPy is faster than compiling the kernels."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """A job and the start that it got; None if it never started."""

    job: Job
    start: int | None

    @property
    def end(self) -> int | None:
        return None if self.start is None else self.start + self.job.run_seconds


def simulate(nodes: Sequence[Node], jobs: Sequence[Job], policy: PoolPolicy) -> list[JobOutcome]:
    """Return the outcome of every job, in the order of `jobs`, on nodes of one pool with this policy.

    Raise InvalidInput for an option of the policy that the simulation does not model.
    """
    _check_modelled(policy)
    run = _Run(nodes, policy)
    run.replay(jobs)
    return [JobOutcome(job, run.starts.get(job.number)) for job in jobs]


def _check_modelled(policy: PoolPolicy) -> None:
    default = PoolPolicy(policy.profile)
    for option in fields(policy):
        if option.name not in _MODELLED and getattr(policy, option.name) != getattr(default, option.name):
            raise InvalidInput(f"the simulation does not model the pool option {option.name!r}", code="not-modelled")
    if policy.backfill.expectation is not default.backfill.expectation:
        raise InvalidInput("the simulation expects running jobs to end at their limits", code="not-modelled")


class _Run:
    def __init__(self, nodes: Sequence[Node], policy: PoolPolicy) -> None:
        self.starts: dict[int, int] = {}
        self._ends: list[tuple[int, int]] = []
        self._running: dict[int, Decision] = {}
        self._jobs: dict[int, Job] = {}
        self._now = 0
        registry = Registry()
        self._scheduler = Scheduler(
            nodes,
            profile=registry.profile_of(policy),
            sequencer=registry.sequencer(policy),
            head_of_line=policy.head_of_line,
            backfill=policy.backfill,
            ageing_seconds=policy.ageing_seconds,
            compiled=len(nodes) > _FEW_NODES,
        )
        self._queue = PendingQueue(self._scheduler.cluster, best=self._best)
        if policy.head_of_line is HeadOfLine.BACKFILL:
            self._queue.backfill_depths = {_POOL: policy.backfill.depth}
        elif policy.head_of_line is HeadOfLine.STRICT:
            self._queue.strict_pools = frozenset({_POOL})

    def replay(self, jobs: Sequence[Job]) -> None:
        arrivals = sorted(jobs, key=lambda job: (job.submitted, job.number))
        position = 0
        while position < len(arrivals) or self._ends:
            times = [arrivals[position].submitted] if position < len(arrivals) else []
            self._now = min(times + [end for end, _ in self._ends[:1]])
            while position < len(arrivals) and arrivals[position].submitted == self._now:
                job = arrivals[position]
                self._jobs[job.number] = job
                self._queue.admit(workload_of(job))
                position += 1
            while self._ends and self._ends[0][0] == self._now:
                forget(self._scheduler.cluster, self._running.pop(heappop(self._ends)[1]))
            self._schedule(time_of(self._now))

    def _schedule(self, now: datetime) -> None:
        """Run passes until nothing more can be placed at this time."""
        self._scheduler.cluster.timeline.advance(self._now)
        untried = True
        while untried and (taken := self._queue.take(now)):
            result = self._scheduler.place(taken, now)
            self._queue.add_unschedulable(result, self._scheduler.profile, now)
            for decision in result.decisions:
                if decision.placements:
                    self._start(decision)
                elif decision.outcome is Outcome.IMPOSSIBLE:
                    self._queue.forget(decision.workload.id)
                elif decision.outcome is Outcome.ERROR:
                    assert decision.reason is not None
                    raise InvalidInput(
                        f"{decision.workload.name}: {decision.reason.message}", code=decision.reason.code
                    )
            untried = self._queue.has_untried_work

    def _start(self, decision: Decision) -> None:
        number = decision.workload.id.int - 1
        self.starts[number] = self._now
        self._running[number] = decision
        heappush(self._ends, (self._now + self._jobs[number].run_seconds, number))
        self._queue.forget(decision.workload.id)

    def _best(self, waiting: Sequence[Workload], number: int) -> Sequence[Workload]:
        return self._scheduler.best(waiting, number, time_of(self._now))
