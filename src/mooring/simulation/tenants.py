"""Tenants of a simulation: their usage against their limits, and their fair-share factors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from uuid import UUID

from mooring.model.policy.pools import FairShare, Moment, PoolPolicy
from mooring.model.policy.preemption import VictimScope
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.fair_share import DEFAULT_WEIGHT, Factors, Weights, decay, factor, normalised
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, Admission, AdmissionContext
from mooring.scheduling.preemption.reclaim import Guarantees
from mooring.scheduling.tenant_usage import Usage, tenants_of
from mooring.simulation.jobs import tenant_id
from mooring.simulation.live_state import Live
from mooring.simulation.scenario import TenantRules

_WITHOUT_USAGE = frozenset({"fifo", "lifo"})
"""Sequencers that do not look at the usage of tenants."""
_BY_PAST_USE = frozenset({"fair_share", "multi_factor"})
_DAY_SECONDS = 86_400
_FACTORS_SECONDS = 300
"""The interval at which a server computes the fair-share factors (`accounting_interval_seconds`)."""


class Tenants:
    def __init__(self, rules: Sequence[TenantRules], policies: Mapping[str, PoolPolicy]) -> None:
        self._policies = policies
        self.usage = Usage()
        for each in rules:
            tenant = Tenant(each.scope, str(tenant_id(each.scope, each.name)))
            self.usage.update(tenant, limits=each.limits, name=each.name)
        self.counted = any(each.limits for each in rules) or any(
            policy.sequencer not in _WITHOUT_USAGE or _reclaims(policy) for policy in policies.values()
        )
        """Whether any decision depends on the usage of tenants."""
        self.weights = Weights(
            domains=_weights(rules, Scope.DOMAIN),
            projects=_weights(rules, Scope.PROJECT),
            users=_weights(rules, Scope.USER),
        )
        self._past_use = {
            name: PastUse(policy.fair_share) for name, policy in policies.items() if policy.sequencer in _BY_PAST_USE
        }
        self._factors_at = -_FACTORS_SECONDS

    def admission(self, now: datetime) -> Admission | None:
        """Return the admission for a pass; None if nothing depends on it."""
        if not self.counted:
            return None
        context = AdmissionContext(now, self.usage, Moment.SCHEDULING)
        return Admission(context, BUILT_IN_VALIDATORS, self._policies)

    def release(self, workload: Workload) -> Iterable[Tenant]:
        """Refund an ended workload, and return its tenants, whose other work may be admitted now."""
        if not self.counted:
            return ()
        self.usage.refund(workload)
        return tenants_of(workload)

    def note_use(self, workload: Workload, start: int, end: int) -> None:
        """Add the use of an ended attempt to the past use of its owner."""
        past = self._past_use.get(workload.pool)
        if past is not None:
            past.add(workload, start, end)

    def factors(
        self, now: int, running: Iterable[tuple[Workload, int]], capacity: Mapping[str, Amounts]
    ) -> dict[str, Factors] | None:
        """Return the fair-share factors by pool if they are due. `running`: workloads with their starts."""
        if now - self._factors_at < _FACTORS_SECONDS:
            return None
        first, self._factors_at = self._factors_at < 0, now
        if not self._past_use:
            return {name: Factors(weights=self.weights) for name in self._policies} if first else None
        by_pool: defaultdict[str, list[tuple[Workload, int]]] = defaultdict(list)
        for workload, start in running:
            by_pool[workload.pool].append((workload, start))
        found = {name: Factors(weights=self.weights) for name in self._policies}
        for name, past in self._past_use.items():
            found[name] = past.factors(now, by_pool[name], capacity[name], self.weights)
        return found


class LiveTenants:
    """The tenants of a server. Fair-share factors stay as they were when the simulation started."""

    counted = True

    def __init__(self, live: Live, policies: Mapping[str, PoolPolicy]) -> None:
        self._policies = policies
        self._tenancy = live.tenancy
        # Runs of one state must not see each other's charges.
        self._usage = deepcopy(live.tenancy.usage)
        self._factors: dict[str, Factors] | None = dict(live.factors)

    def admission(self, now: datetime) -> Admission | None:
        tenancy = self._tenancy
        context = AdmissionContext(
            now, self._usage, Moment.SCHEDULING, tenancy.policies, inactive=dict(tenancy.inactive)
        )
        return Admission(context, BUILT_IN_VALIDATORS, self._policies)

    def release(self, workload: Workload) -> Iterable[Tenant]:
        self._usage.refund(workload)
        return tenants_of(workload)

    def note_use(self, workload: Workload, start: int, end: int) -> None:
        """Note nothing: past use does not change."""

    def factors(
        self, now: int, running: Iterable[tuple[Workload, int]], capacity: Mapping[str, Amounts]
    ) -> dict[str, Factors] | None:
        factors, self._factors = self._factors, None
        return factors


class PastUse:
    """The use of a pool by day, project and user, in base units times seconds."""

    def __init__(self, rules: FairShare) -> None:
        self._rules = rules
        self._days: defaultdict[int, defaultdict[tuple[UUID, UUID, UUID], defaultdict[str, float]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(float))
        )

    def add(self, workload: Workload, start: int, end: int) -> None:
        owner = (workload.domain_id, workload.project_id, workload.user_id)
        for day, seconds in days_of(start, end):
            used = self._days[day][owner]
            for slot, amount in workload.request.items():
                used[slot] += amount * len(workload.tasks) * seconds

    def factors(
        self, now: int, running: Iterable[tuple[Workload, int]], capacity: Amounts, weights: Weights
    ) -> Factors:
        today = now // _DAY_SECONDS
        for day in [day for day in self._days if day <= today - self._rules.lookback_days]:
            del self._days[day]
        current = PastUse(self._rules)
        for workload, start in running:
            current.add(workload, max(start, (today - self._rules.lookback_days + 1) * _DAY_SECONDS), now)
        domains: defaultdict[UUID, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        projects: defaultdict[UUID, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        users: defaultdict[tuple[UUID, UUID], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for days in (self._days, current._days):
            for day, owners in days.items():
                weight = decay(today - day, self._rules.half_life_days)
                for (domain, project, user), used in owners.items():
                    for slot, amount in used.items():
                        for total in (domains[domain], projects[project], users[project, user]):
                            total[slot] += weight * amount

        def factor_of(used: Mapping[str, float], weight: int | None) -> float:
            return factor(normalised(used, capacity, self._rules), (weight or DEFAULT_WEIGHT) / DEFAULT_WEIGHT)

        return Factors(
            domains={each: factor_of(used, weights.domains.get(each)) for each, used in domains.items()},
            projects={each: factor_of(used, weights.projects.get(each)) for each, used in projects.items()},
            users={each: factor_of(used, weights.users.get(each[1])) for each, used in users.items()},
            weights=weights,
        )


def days_of(start: int, end: int) -> Iterable[tuple[int, int]]:
    """Yield the days of a time span with the seconds on each of them."""
    while start < end:
        day = start // _DAY_SECONDS
        until = min(end, (day + 1) * _DAY_SECONDS)
        yield day, until - start
        start = until


def guarantees_of(rules: Iterable[TenantRules], pools: Iterable[str]) -> Guarantees:
    """Return the guaranteed amounts by pool and project; a guarantee holds in every pool."""
    found = {
        tenant_id(each.scope, each.name): each.guaranteed
        for each in rules
        if each.scope is Scope.PROJECT and each.guaranteed
    }
    return dict.fromkeys(pools, found) if found else {}


def _weights(rules: Iterable[TenantRules], scope: Scope) -> dict[UUID, int]:
    return {
        tenant_id(scope, each.name): each.weight
        for each in rules
        if each.scope is scope and each.weight != DEFAULT_WEIGHT
    }


def _reclaims(policy: PoolPolicy) -> bool:
    return policy.preemption is not None and policy.preemption.scope is VictimScope.RECLAIM
