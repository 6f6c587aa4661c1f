"""The leader: campaigns for the seat, takes office, and runs the loops until it is stopped or the seat is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from mooring import metrics
from mooring.binding.binder import Binder
from mooring.controllers.accounting import AccountingLoop
from mooring.controllers.audit import AuditLoop
from mooring.controllers.holds import HoldsLoop
from mooring.controllers.lifecycle import LifecycleLoop
from mooring.controllers.limits import LimitsLoop
from mooring.controllers.loops import LoopState, keep_running
from mooring.controllers.nodes import NodesLoop
from mooring.controllers.retention import Retention, RetentionLoop
from mooring.controllers.scheduling import SchedulingLoop
from mooring.controllers.simulation import SimulationLoop
from mooring.coordination.election import Election, Seat
from mooring.coordination.leadership import Office
from mooring.coordination.signals import Signal
from mooring.mirror.mirror import Mirror
from mooring.model.errors import LeadershipLost
from mooring.model.heartbeats import Pace
from mooring.store.engine import Database

_log = structlog.get_logger(__name__)
_BURST_SECONDS = 0.02
_RETENTION_SECONDS = 3600.0
_START_AGAIN_SECONDS = 5.0


class Leader:
    def __init__(
        self,
        database: Database,
        signal: Signal,
        holder: str,
        election: Election,
        *,
        reconcile_interval: float,
        pace: Pace,
        retention: Retention,
        accounting_interval_seconds: float = 300.0,
        audit_interval_seconds: float = 0,
    ) -> None:
        self._database = database
        self._signal = signal
        self._election = election
        self._reconcile_interval = reconcile_interval
        self._pace = pace
        self._node_check_seconds = min(reconcile_interval, max(0.2, pace.timeout_seconds / 5))
        self.office = Office(database, holder)
        self.scheduling = SchedulingLoop(
            Mirror(database, accounting_interval_seconds),
            Binder(database),
            self.office,
            reconcile_interval=reconcile_interval,
        )
        self._lifecycle = LifecycleLoop(database, self.office)
        self._limits = LimitsLoop(database, self.office)
        self._holds = HoldsLoop(database, self.office)
        self._simulation = SimulationLoop(database, self.office)
        self._retention = RetentionLoop(database, self.office, retention)
        self._accounting_seconds = accounting_interval_seconds
        self._accounting = AccountingLoop(database, self.office)
        self._audit = AuditLoop(database)
        self._audit_seconds = audit_interval_seconds
        self._warming: asyncio.Task[None] | None = None
        self.loops: list[LoopState] = []
        self.problem: str | None = "not started yet"

    @property
    def role(self) -> str:
        return "leader" if self.office.held else "standby"

    @property
    def standing(self) -> str:
        """What /ready says of it: `ok` while it leads, or waits for the seat of another."""
        well = self.office.held or (self._election.standbys and self.problem is None)
        return "ok" if well else self.problem or "not leading"

    async def run(self) -> None:
        """Lead whenever the seat is ours, until cancelled. While it is not, the rest of the server goes on."""
        try:
            while True:
                seat = await self._stand_by()
                try:
                    await self._lead(seat)
                except LeadershipLost as error:
                    self.problem = error.message
                    _log.error(f"This scheduler stopped: {error.message}")
                    _log.warning("Deployment scheduling may be unavailable")
                    if not self._election.standbys:
                        return
                except Exception as error:
                    self.problem = f"the scheduler failed: {type(error).__name__}: {error}"
                    _log.exception("Scheduler initialization failed")
                    _log.warning("Deployment scheduling may be unavailable")
                    await asyncio.sleep(_START_AGAIN_SECONDS)
                finally:
                    self.scheduling.lose()
                    await seat.resign()
        except asyncio.CancelledError:
            self.problem = "stopped"
            raise
        finally:
            if self._warming is not None:
                self._warming.cancel()
                await asyncio.gather(self._warming, return_exceptions=True)
            self.scheduling.close()
            await self._election.close()

    async def _stand_by(self) -> Seat:
        """Wait for the seat, with a view of the cluster that is kept warm."""
        if not self._election.standbys:
            return await self._election.campaign()
        self.problem = None
        elected = asyncio.Event()
        self._warming = asyncio.create_task(self._stay_warm(elected))
        try:
            return await self._election.campaign()
        finally:
            elected.set()
            self._signal.send()

    async def _stay_warm(self, elected: asyncio.Event) -> None:
        """Until it is elected; a read that is under way then is not cut off, since half of it would be wrong."""
        while not elected.is_set():
            seen = self._signal.count
            try:
                await self.scheduling.stand_by()
            except Exception as error:
                self.scheduling.lose()
                _log.warning("This standby cannot follow", error=f"{type(error).__name__}: {error}")
            if not elected.is_set():
                await self._signal.wait(self._reconcile_interval, seen)
                await asyncio.sleep(_BURST_SECONDS)

    async def _lead(self, seat: Seat) -> None:
        self.loops.clear()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_keep(seat), name="seat")
                term = await self.office.take(seat.claim)
                if self._warming is not None:
                    await self._warming
                await self.scheduling.take_over()
                self.problem = None
                metrics.leading.set(1)
                _log.info(f"Deployment scheduler started successfully (term {term})")
                self._start_loops(group)
        except BaseExceptionGroup as failed:
            lost = failed.subgroup(LeadershipLost)
            raise (lost or failed).exceptions[0] from None
        finally:
            metrics.leading.set(0)
            self.office.lose()

    def _start_loops(self, group: asyncio.TaskGroup) -> None:
        longest = self._reconcile_interval
        wait = self.scheduling.wait_seconds
        self._start(group, "scheduling", self.scheduling.once, lambda: wait(longest))
        until_held = self._holds.wait_seconds
        self._start(group, "holds", self._holds.once, lambda: until_held(longest), _BURST_SECONDS)
        self._start(group, "lifecycle", self._lifecycle.once, lambda: longest, _BURST_SECONDS)
        until_due = self._limits.wait_seconds
        self._start(group, "limits", self._limits.once, lambda: until_due(longest), _BURST_SECONDS)
        self._start(group, "simulation", self._simulation.once, lambda: longest, _BURST_SECONDS)
        nodes = NodesLoop(self._database, self.office, self._pace)
        self._start(group, "nodes", nodes.once, lambda: self._node_check_seconds, _BURST_SECONDS)
        counting = self._accounting_seconds
        self._start(group, "accounting", self._accounting.once, lambda: counting, signalled=False)
        self._start(group, "retention", self._retention.once, lambda: _RETENTION_SECONDS, signalled=False)
        if self._audit_seconds:
            self._start(group, "audit", self._audit.once, lambda: self._audit_seconds, signalled=False)

    def _start(
        self,
        group: asyncio.TaskGroup,
        name: str,
        work: Callable[[], Awaitable[bool]],
        interval: Callable[[], float],
        pause_seconds: float = 0.0,
        *,
        signalled: bool = True,
    ) -> None:
        state = LoopState(name)
        self.loops.append(state)
        signal = self._signal if signalled else Signal()
        group.create_task(
            keep_running(name, work, signal, interval=interval, state=state, pause_seconds=pause_seconds), name=name
        )


async def _keep(seat: Seat) -> None:
    """Renew the seat, and end the loops before anybody else can have it."""
    await seat.until_lost()
    raise LeadershipLost("the lease of leadership could not be renewed in time")
