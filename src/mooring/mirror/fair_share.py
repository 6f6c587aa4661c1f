"""Fair-share factors of a pool, computed from the accounted usage in the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mooring.model.policy.pools import FairShare
from mooring.model.tenancy.fair_share import (
    DEFAULT_WEIGHT,
    Factors,
    Weights,
    factor,
    normalised,
    shares_of_days,
)
from mooring.store.accounting import usage
from mooring.store.core.engine import Connection
from mooring.store.tenancy import fair_share

User = tuple[UUID, UUID]
"""A project and one of its users."""


@dataclass(frozen=True, slots=True)
class PastUse:
    """The decayed usage of tenants, as a fraction of the pool's capacity over the lookback time."""

    domains: Mapping[UUID, float]
    projects: Mapping[UUID, float]
    users: Mapping[User, float]
    weights: Weights

    def factors(self) -> Factors:
        weights = self.weights
        return Factors(
            domains={each: _factor(used, weights.domains.get(each)) for each, used in self.domains.items()},
            projects={each: _factor(used, weights.projects.get(each)) for each, used in self.projects.items()},
            users={each: _factor(used, weights.users.get(each[1])) for each, used in self.users.items()},
            weights=weights,
        )


async def past_use(connection: Connection, pool: str, rules: FairShare, now: datetime) -> PastUse:
    """Return the usage of all tenants that used the pool within the lookback time."""
    capacity = await usage.capacity(connection, pool)
    of_users = await usage.decayed(connection, pool, shares_of_days(usage.day_of(now), rules))
    domain_of = await usage.domains_of_projects(connection)
    of_projects: dict[UUID, dict[str, float]] = defaultdict(dict)
    of_domains: dict[UUID, dict[str, float]] = defaultdict(dict)
    for (project_id, _), used in of_users.items():
        _add(of_projects[project_id], used)
        if project_id in domain_of:
            _add(of_domains[domain_of[project_id]], used)
    return PastUse(
        {each: normalised(used, capacity, rules) for each, used in of_domains.items()},
        {each: normalised(used, capacity, rules) for each, used in of_projects.items()},
        {each: normalised(used, capacity, rules) for each, used in of_users.items()},
        await fair_share.weights(connection),
    )


async def factors(connection: Connection, pool: str, rules: FairShare, now: datetime) -> Factors:
    return (await past_use(connection, pool, rules, now)).factors()


def _factor(used: float, weight: int | None) -> float:
    return factor(used, (weight or DEFAULT_WEIGHT) / DEFAULT_WEIGHT)


def _add(total: dict[str, float], used: Mapping[str, float]) -> None:
    for slot, amount in used.items():
        total[slot] = total.get(slot, 0.0) + amount
