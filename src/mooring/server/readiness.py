"""The state of this server as `/health` and `/ready` report it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from mooring.api.services import Readiness
from mooring.clock import now
from mooring.concurrency.background import BackgroundTask
from mooring.controllers.leadership.leader import Leader
from mooring.store.control import leadership
from mooring.store.core.engine import Database
from mooring.store.nodes import (
    pools,
)


@dataclass(slots=True)
class ServerState:
    """The state that `/health` and `/ready` report."""

    database: Database
    leader: Leader | None
    lease_time: timedelta
    tasks: Callable[[], list[BackgroundTask]]
    agent_problem: str | None = None
    stopping: bool = False

    @property
    def role(self) -> str:
        return "api" if self.leader is None else self.leader.role

    @property
    def last_pass_at(self) -> datetime | None:
        return self.leader.scheduling.last_pass_at if self.leader else None

    @property
    def last_pass_ms(self) -> float | None:
        return self.leader.scheduling.last_pass_ms if self.leader else None

    @property
    def passes(self) -> int:
        return self.leader.scheduling.passes if self.leader else 0

    async def readiness(self) -> Readiness:
        checks = {"database": "ok"}
        degraded: dict[str, str] = {}
        vacancy: leadership.Vacancy | None = None
        try:
            async with asyncio.timeout(3), self.database.read() as connection:
                await pools.all_pools(connection)
                vacancy = await leadership.vacancy(connection)
        except Exception as error:
            checks["database"] = f"does not answer: {type(error).__name__}"
        if self.database.problem is not None:
            checks["database"] = self.database.problem
        if self.stopping:
            checks["server"] = "stopping"
        if self.leader is not None:
            checks["leadership"] = self.leader.health
            for loop in self.leader.loops:
                checks[f"loop {loop.name}"] = loop.error or "ok"
            if self.leader.problem:
                checks["scheduler"] = self.leader.problem
        for task in self.tasks():
            if task.status != "running":
                broken = task.essential and task.status == "failing"
                (checks if broken else degraded)[f"task {task.name}"] = f"{task.status}: {task.error}"
        if self.agent_problem is not None:
            degraded["agent"] = self.agent_problem
        if (problem := self._leadership_problem(vacancy)) is not None:
            # One that only passes requests on does so without a leader, too: work is accepted, and waits.
            broken = self.leader is not None and vacancy is not None and self._lasts(vacancy)
            (checks if broken else degraded)["leadership"] = problem
        return Readiness(checks, degraded)

    def _leadership_problem(self, vacancy: leadership.Vacancy | None) -> str | None:
        """Return why no server leads, or why this one could not take over; None while one leads."""
        if self.leader is not None and self.leader.leads:
            return None
        outage = None if self.leader is None else self.leader.outage
        parts = []
        if vacancy is not None:
            since = f" since {vacancy.since:%Y-%m-%d %H:%M:%SZ}" if vacancy.since else ""
            parts.append(f"nobody leads{since}: {vacancy.reason}")
        if outage is not None and outage.since is not None:
            parts.append(f"this server cannot campaign: {outage.reason} since {outage.since:%Y-%m-%d %H:%M:%SZ}")
        return "; ".join(parts) or None

    def _lasts(self, vacancy: leadership.Vacancy) -> bool:
        """Return whether this server cannot end the vacancy, or it has lasted longer than a change of leader takes."""
        if self.leader is not None and self.leader.outage is not None:
            return True
        return vacancy.since is not None and now() - vacancy.since > 2 * self.lease_time
