"""Fair share factors of a pool: the use that the store counted, put into the formula of the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from mooring.model.fair_share import Factors, factor, normalised, shares_of_days
from mooring.model.pools import FairShare
from mooring.store import usage
from mooring.store.engine import Connection


async def factors(connection: Connection, pool: str, rules: FairShare, now: datetime) -> Factors:
    """Of everybody who used something of the pool in the days looked back at."""
    capacity = await usage.capacity(connection, pool)
    of_users = await usage.decayed(connection, pool, shares_of_days(usage.day_of(now), rules))
    domain_of = await usage.domains_of_projects(connection)
    of_projects: dict[UUID, dict[str, float]] = defaultdict(dict)
    of_domains: dict[UUID, dict[str, float]] = defaultdict(dict)
    for (project_id, _), used in of_users.items():
        _add(of_projects[project_id], used)
        if project_id in domain_of:
            _add(of_domains[domain_of[project_id]], used)

    def share(used: Mapping[str, float]) -> float:
        return factor(normalised(used, capacity, rules))

    return Factors(
        domains={tenant: share(used) for tenant, used in of_domains.items()},
        projects={tenant: share(used) for tenant, used in of_projects.items()},
        users={tenant: share(used) for tenant, used in of_users.items()},
    )


def _add(total: dict[str, float], used: Mapping[str, float]) -> None:
    for slot, amount in used.items():
        total[slot] = total.get(slot, 0.0) + amount
