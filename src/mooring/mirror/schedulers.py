"""The schedulers of a mirror's pools: one per policy, over one cluster."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from mooring.mirror.mirror import Mirror
from mooring.model.errors import InvalidInput
from mooring.model.pools import PoolPolicy
from mooring.model.timeslots import Timeslot
from mooring.model.workloads import Workload
from mooring.scheduling.arrays import Rows
from mooring.scheduling.plugins import PluginFailed
from mooring.scheduling.profiles import Registry
from mooring.scheduling.scheduler import Scheduler
from mooring.store.pools import Pool


@runtime_checkable
class TakesTurns(Protocol):
    """A selector that goes on where it was, also after a restart; every pool has its own."""

    position: int


class Schedulers:
    """Pools with the same policy share a scheduler, unless its selector takes turns."""

    def __init__(self, mirror: Mirror, registry: Registry, *, compiled: bool | None = None) -> None:
        self._mirror = mirror
        self._registry = registry
        self._compiled = compiled
        self._by_policy: dict[tuple[PoolPolicy, str | None], Scheduler] = {}
        self._turns: dict[str, int] = {}

    def of(self, pool: Pool) -> Scheduler:
        """The pool's scheduler; InvalidInput if its profile or sequencer is not known here."""
        policy = pool.policy
        for key in ((policy, None), (policy, pool.name)):
            if key in self._by_policy:
                return self._by_policy[key]
        profile = self._registry.profile(policy.profile, weights=dict(policy.weights) if policy.weights else None)
        own = None
        if isinstance(profile.selector, TakesTurns):
            own = pool.name
            profile.selector.position = self._turns.setdefault(pool.name, pool.turn)
        scheduler = Scheduler(
            cluster=self._mirror.cluster,
            profile=profile,
            sequencer=self._registry.sequencer(policy),
            head_of_line=policy.head_of_line,
            backfill=policy.backfill,
            ageing_seconds=policy.ageing_seconds,
            compiled=self._compiled,
            preemption=policy.preemption,
            residents=self._mirror.residents,
            budgets=self._mirror.budgets,
        )
        self._by_policy[policy, own] = scheduler
        return scheduler

    def rows_for(self, slot: Timeslot) -> Rows:
        """The nodes that may take the work of a timeslot; where that is not known yet, those with any runtime.

        None where the rules of its pool fail: its work could not be placed either.
        """
        runtimes = {name for names in self._mirror.cluster.runtime_sets.values for name in names}
        work = self._mirror.waiting_inside(slot.id)[:1] or [work_of(slot, runtime) for runtime in sorted(runtimes)]
        try:
            scheduler = self.of(self._mirror.pools[slot.pool])
            found = [scheduler.rows_for(each) for each in work]
        except (InvalidInput, PluginFailed):
            found = []
        return np.unique(np.concatenate((np.empty(0, dtype=np.intp), *found)))

    def tell_budgets(self) -> None:
        """How many tasks of each workload may be disturbed, and what projects are guaranteed, as the mirror has it."""
        for scheduler in self._by_policy.values():
            if scheduler.preemptor is not None:
                scheduler.preemptor.tell_budgets(self._mirror.budgets)
                scheduler.preemptor.guarantees = self._mirror.guarantees

    def turns(self) -> dict[str, int]:
        """Where selectors that take turns go on, of those that moved since this was asked last."""
        moved: dict[str, int] = {}
        for (_, pool), scheduler in self._by_policy.items():
            selector = scheduler.profile.selector
            if pool is not None and isinstance(selector, TakesTurns) and selector.position != self._turns[pool]:
                moved[pool] = self._turns[pool] = selector.position
        return moved


def work_of(slot: Timeslot, runtime: str) -> Workload:
    """One task of a timeslot, as placement sees it."""
    return Workload(
        name=slot.name,
        pool=slot.pool,
        user_id=slot.user_id,
        runtime=runtime,
        request=slot.request,
        architecture=slot.architecture,
        region=slot.region,
        constraints=slot.constraints,
    )
