"""Fair share: what tenants used lately makes those who used least come first. Pure numbers, from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from mooring.model.pools import FairShare
from mooring.model.slots import Amounts

_DAY_SECONDS = 86_400
_HIGHEST_EXPONENT = 10.0
_DEFAULT_WEIGHT = 1000


@dataclass(frozen=True, slots=True)
class Factors:
    """Of the tenants that used something of a pool: the more, the lower. Who is not named used nothing, which is 1."""

    domains: Mapping[UUID, float] = field(default_factory=dict)
    projects: Mapping[UUID, float] = field(default_factory=dict)
    users: Mapping[tuple[UUID, UUID], float] = field(default_factory=dict)
    """By project and user: what somebody uses for one project does not count against it in another."""


def decay(days: int, half_life_days: int) -> float:
    """How much use counts that is so many days old."""
    return float(2 ** (-days / half_life_days))


def shares_of_days(today: datetime, rules: FairShare) -> dict[datetime, float]:
    """How much each day counts that is looked back at."""
    return {today - timedelta(days=age): decay(age, rules.half_life_days) for age in range(max(1, rules.lookback_days))}


def normalised(usage: Mapping[str, float], capacity: Amounts, rules: FairShare) -> float:
    """Use (amount times seconds, decayed) as a part of what the pool could give in the time looked back at."""
    weights = dict(rules.slot_weights)
    seconds = max(1, rules.lookback_days) * _DAY_SECONDS
    weighted = total = 0.0
    for slot, amount in capacity.items():
        if amount > 0:
            weight = weights.get(slot, _DEFAULT_WEIGHT)
            weighted += usage.get(slot, 0.0) / amount / seconds * weight
            total += weight
    return weighted / total if total else 0.0


def factor(normalised_usage: float, weight: float = 1.0) -> float:
    """Halves with every use of the whole pool; a tenant of twice the weight may use twice as much for it."""
    exponent = max(-_HIGHEST_EXPONENT, min(_HIGHEST_EXPONENT, -normalised_usage / weight))
    return float(min(1.0, 2**exponent))
