"""Fair share: tenants that used least recently come first. Pure numbers, from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import prod
from uuid import UUID

from mooring.model.policy.pools import FairShare
from mooring.model.resources.slots import Amounts

_DAY_SECONDS = 86_400
_HIGHEST_EXPONENT = 10.0
_DEFAULT_SLOT_WEIGHT = 1000
DEFAULT_WEIGHT = 100
"""Of a tenant, in hundredths."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The fair-share weights of tenants: twice the weight entitles to twice as much. Tenants not listed have 100."""

    domains: Mapping[UUID, int] = field(default_factory=dict)
    projects: Mapping[UUID, int] = field(default_factory=dict)
    users: Mapping[UUID, int] = field(default_factory=dict)

    def product(self, domain_id: UUID, project_id: UUID, user_id: UUID) -> float:
        """Return the product of the three weights, 1.0 where all are 100."""
        weights = (
            self.domains.get(domain_id, DEFAULT_WEIGHT),
            self.projects.get(project_id, DEFAULT_WEIGHT),
            self.users.get(user_id, DEFAULT_WEIGHT),
        )
        return prod(weights) / DEFAULT_WEIGHT**3


@dataclass(frozen=True, slots=True)
class Factors:
    """The fair-share factors of tenants that used a pool: the more, the lower. Absent tenants have 1."""

    domains: Mapping[UUID, float] = field(default_factory=dict)
    projects: Mapping[UUID, float] = field(default_factory=dict)
    users: Mapping[tuple[UUID, UUID], float] = field(default_factory=dict)
    """By project and user: use for one project does not count against the user in another."""
    weights: Weights = Weights()


def decay(days: int, half_life_days: int) -> float:
    """Return the weight of use that is this many days old."""
    return float(2 ** (-days / half_life_days))


def shares_of_days(today: datetime, rules: FairShare) -> dict[datetime, float]:
    """Return the weights of the days in the lookback time."""
    return {today - timedelta(days=age): decay(age, rules.half_life_days) for age in range(max(1, rules.lookback_days))}


def normalised(usage: Mapping[str, float], capacity: Amounts, rules: FairShare) -> float:
    """Return use (amount times seconds, decayed) as a fraction of the pool's capacity over the lookback time."""
    weights = dict(rules.slot_weights)
    seconds = max(1, rules.lookback_days) * _DAY_SECONDS
    weighted = total = 0.0
    for slot, amount in capacity.items():
        if amount > 0:
            weight = weights.get(slot, _DEFAULT_SLOT_WEIGHT)
            weighted += usage.get(slot, 0.0) / amount / seconds * weight
            total += weight
    return weighted / total if total else 0.0


def factor(normalised_usage: float, weight: float = 1.0) -> float:
    """Return the factor: it halves with every use of the whole pool; twice the weight allows twice the use."""
    exponent = max(-_HIGHEST_EXPONENT, min(_HIGHEST_EXPONENT, -normalised_usage / weight))
    return float(min(1.0, 2**exponent))
