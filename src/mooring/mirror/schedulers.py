"""The schedulers of a mirror's pools: one per policy, over one cluster."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from mooring.mirror.mirror import Mirror
from mooring.model.calendar.timeslots import Timeslot
from mooring.model.errors import InvalidInput
from mooring.model.policy.pools import PoolPolicy
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.plugins.profiles import Registry, effective_policy
from mooring.scheduling.plugins.protocols import PluginFailed
from mooring.scheduling.scheduler import Scheduler
from mooring.store.nodes.pools import Pool


@runtime_checkable
class KeepsPosition(Protocol):
    """A selector with a position that persists across restarts; every pool has its own instance."""

    position: int


class Schedulers:
    """Pools with the same policy share a scheduler, unless its selector keeps a position."""

    def __init__(self, mirror: Mirror, registry: Registry, *, compiled: bool | None = None) -> None:
        self._mirror = mirror
        self._registry = registry
        self._compiled = compiled
        self._by_policy: dict[tuple[PoolPolicy, str | None], Scheduler] = {}
        self._positions: dict[str, int] = {}

    def of(self, pool: Pool) -> Scheduler:
        """Return the pool's scheduler. Raise InvalidInput if its profile or sequencer is not installed here."""
        policy = effective_policy(pool.policy, self._mirror.cluster, pool.name)
        for key in ((policy, None), (policy, pool.name)):
            if key in self._by_policy:
                return self._by_policy[key]
        profile = self._registry.profile_of(policy)
        own = None
        if isinstance(profile.selector, KeepsPosition):
            own = pool.name
            profile.selector.position = self._positions.setdefault(pool.name, pool.turn)
        scheduler = Scheduler(
            cluster=self._mirror.cluster,
            profile=profile,
            sequencer=self._registry.sequencer(policy),
            head_of_line=policy.head_of_line,
            backfill=policy.backfill,
            ageing_seconds=policy.ageing_seconds,
            compiled=self._compiled,
            preemption=policy.preemption,
            running_tasks=self._mirror.running_tasks,
            budgets=self._mirror.budgets,
        )
        self._by_policy[policy, own] = scheduler
        return scheduler

    def rows_for(self, slot: Timeslot) -> Rows:
        """Return the nodes that may run the work of a timeslot; without pending work, those feasible for any runtime.

        The result is empty if the pool's profile is invalid or fails: its work could not be placed either.
        """
        runtimes = {name for names in self._mirror.cluster.runtime_sets.values for name in names}
        work = self._mirror.pending_in_reservation(slot.id)[:1] or [
            work_of(slot, runtime) for runtime in sorted(runtimes)
        ]
        try:
            scheduler = self.of(self._mirror.pools[slot.pool])
            found = [scheduler.rows_for(each) for each in work]
        except (InvalidInput, PluginFailed):
            found = []
        return np.unique(np.concatenate((np.empty(0, dtype=np.intp), *found)))

    def update_budgets(self) -> None:
        """Pass the mirror's disruption budgets and guarantees to the preemptors."""
        for scheduler in self._by_policy.values():
            if scheduler.preemptor is not None:
                scheduler.preemptor.set_budgets(self._mirror.budgets)
                scheduler.preemptor.guarantees = self._mirror.guarantees

    def moved_positions(self) -> dict[str, int]:
        """Return by pool the selector positions that changed since the last call."""
        moved: dict[str, int] = {}
        for (_, pool), scheduler in self._by_policy.items():
            selector = scheduler.profile.selector
            if pool is not None and isinstance(selector, KeepsPosition) and selector.position != self._positions[pool]:
                moved[pool] = self._positions[pool] = selector.position
        return moved


def work_of(slot: Timeslot, runtime: str) -> Workload:
    """Return one task of a timeslot as a workload to place."""
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
