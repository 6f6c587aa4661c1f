"""The leader and the servers of the cluster, as several routes report them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mooring.api.services import Services
from mooring.coordination.presence import is_there
from mooring.store.control import (
    leadership,
    servers,
)
from mooring.store.control.leadership import Term, Vacancy
from mooring.store.control.servers import ServerRecord


@dataclass(frozen=True, slots=True)
class ClusterLeadership:
    term: Term | None
    vacancy: Vacancy | None
    servers: list[ServerRecord]


async def cluster_leadership(services: Services) -> ClusterLeadership:
    async with services.database.read() as connection:
        return ClusterLeadership(
            await leadership.latest(connection),
            await leadership.vacancy(connection),
            await servers.everyone(connection),
        )


async def scheduling_problem(services: Services) -> str | None:
    """Return why nothing is scheduled, for owners of pending work: no server leads. None while one does."""
    present = await cluster_leadership(services)
    reason = nobody_leads(present.vacancy, present.servers, services.now())
    if present.vacancy is None:
        return None
    since = f" since {present.vacancy.since:%Y-%m-%d %H:%M:%SZ}" if present.vacancy.since else ""
    return f"no server leads{since}, so nothing is scheduled: {reason}"


def nobody_leads(vacancy: Vacancy | None, present: Sequence[ServerRecord], at: datetime) -> str | None:
    """Return why no server leads, with the problems of the candidates; None while one leads."""
    if vacancy is None:
        return None
    problems = [
        f"{server.name} cannot campaign: {server.problem} since {server.problem_since:%H:%M:%S}Z"
        for server in present
        if server.problem and server.problem_since and is_there(server, at)
    ]
    return "; ".join([vacancy.reason, *problems])
