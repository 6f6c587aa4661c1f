"""The schedulers and the pending queue of a simulation, set up as a server sets up its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from mooring.model.policy.pools import HeadOfLine, PoolPolicy
from mooring.model.policy.preemption import Budgets
from mooring.model.tenancy.fair_share import Factors
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission
from mooring.scheduling.calendar.seconds import time_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.profiles import Registry, effective_policy
from mooring.scheduling.plugins.protocols import NO_FACTORS, FollowsQueue
from mooring.scheduling.preemption.reclaim import Guarantees
from mooring.scheduling.preemption.running_tasks import RunningTasks
from mooring.scheduling.queue.pending_queue import PendingQueue
from mooring.scheduling.scheduler import Pass, Scheduler

_FEW_NODES = 64
"""Up to this many nodes, NumPy is faster than compiling the kernels."""


class Pools:
    """One scheduler per pool, over one cluster."""

    def __init__(
        self, cluster: Cluster, policies: Mapping[str, PoolPolicy], guarantees: Guarantees, *, admits: bool
    ) -> None:
        """`admits`: passes have an admission, which may refuse work."""
        self.policies = policies
        self.running_tasks = RunningTasks()
        self.factors: dict[str, Factors] = {}
        self.admission: Admission | None = None
        """The admission of the current pass; None: nothing depends on the usage of tenants."""
        self.now = 0
        self._cluster = cluster
        self._guarantees = guarantees
        self._budgets: Budgets | None = None
        self._schedulers: dict[tuple[str, str], Scheduler] = {}
        """By pool and the profile that applies."""
        for name in policies:
            self.scheduler(name)
        for name, policy in policies.items():
            cluster.timeline.allow_open_ended(name, policy.bookings.movable_notice_seconds)
            cluster.allow_fragmentation(name, policy.fragmentation)
        self.queue = PendingQueue(cluster, best=self._best)
        self.queue.strict_pools = frozenset(
            name for name, policy in policies.items() if policy.head_of_line is HeadOfLine.STRICT
        )
        self.queue.backfill_depths = {
            name: policy.backfill.depth
            for name, policy in policies.items()
            if policy.head_of_line is HeadOfLine.BACKFILL
        }
        if not admits:
            self.queue.plain_profiles = {
                name: scheduler.profile
                for (name, _), scheduler in self._schedulers.items()
                if scheduler.preemptor is None
                and not any(isinstance(scorer, FollowsQueue) for scorer, _ in scheduler.profile.scorers)
            }

    @property
    def preempt(self) -> bool:
        return any(policy.preemption is not None for policy in self.policies.values())

    def set_budgets(self, budgets: Budgets) -> None:
        """Set the disruption budgets of workloads."""
        self._budgets = budgets
        for scheduler in self._schedulers.values():
            if scheduler.preemptor is not None:
                scheduler.preemptor.set_budgets(budgets)

    def scheduler(self, pool: str) -> Scheduler:
        policy = effective_policy(self.policies[pool], self._cluster, pool)
        key = pool, policy.profile
        if key not in self._schedulers:
            self._schedulers[key] = self._new_scheduler(policy)
        return self._schedulers[key]

    def queue_order(self, pool: str, waiting: Iterable[Workload], admission: Admission | None) -> Sequence[Workload]:
        """Return the waiting work of a pool in queue order."""
        factors = self.factors.get(pool, NO_FACTORS)
        return self.scheduler(pool).queue_order(pool, waiting, time_of(self.now), admission=admission, factors=factors)

    def place(self, taken: Sequence[Workload], now: datetime) -> list[Pass]:
        """Run a pass over every pool that has work to try. Workloads without a placement return to the queue."""
        if len(self.policies) == 1:
            [name] = self.policies
            return [self._place_in(name, taken, now)]
        by_pool: dict[str, list[Workload]] = {}
        for workload in taken:
            by_pool.setdefault(workload.pool, []).append(workload)
        return [self._place_in(name, by_pool[name], now) for name in sorted(by_pool)]

    def _place_in(self, name: str, workloads: Sequence[Workload], now: datetime) -> Pass:
        scheduler, policy = self.scheduler(name), self.policies[name]
        factors = self.factors.get(name, NO_FACTORS)
        result = scheduler.place(workloads, now, admission=self.admission, factors=factors)
        rules = policy.preemption
        again = timedelta(seconds=rules.min_runtime_seconds) if rules and rules.min_runtime_seconds else None
        eager = rules is not None or policy.head_of_line is HeadOfLine.STRICT
        self.queue.add_unschedulable(result, scheduler.profile, now, eager=eager, again=again)
        return result

    def _best(self, waiting: Sequence[Workload], number: int) -> Sequence[Workload]:
        name = waiting[0].pool
        factors = self.factors.get(name, NO_FACTORS)
        return self.scheduler(name).best(waiting, number, time_of(self.now), admission=self.admission, factors=factors)

    def _new_scheduler(self, policy: PoolPolicy) -> Scheduler:
        registry = Registry()
        registry.discover()
        scheduler = Scheduler(
            cluster=self._cluster,
            profile=registry.profile_of(policy),
            sequencer=registry.sequencer(policy),
            head_of_line=policy.head_of_line,
            backfill=policy.backfill,
            ageing_seconds=policy.ageing_seconds,
            compiled=len(self._cluster) > _FEW_NODES,
            preemption=policy.preemption,
            running_tasks=self.running_tasks,
        )
        if scheduler.preemptor is not None:
            scheduler.preemptor.guarantees = self._guarantees
            if self._budgets is not None:
                scheduler.preemptor.set_budgets(self._budgets)
        return scheduler
