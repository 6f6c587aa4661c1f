"""The leader: it campaigns for the lease, begins a term, and runs the loops until it stops or loses the lease."""

from __future__ import annotations

import asyncio

import structlog

from mooring.controllers.leadership.controller_manager import ControllerManager
from mooring.controllers.nodes.scale_request_delivery import ResourceController
from mooring.controllers.scheduling.scheduling_loop import FullPass
from mooring.controllers.upkeep.retention import Retention
from mooring.coordination.election import Election, Lease
from mooring.coordination.leadership import Leadership
from mooring.coordination.outage import Outage
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.model.nodes.heartbeats import Pace
from mooring.model.nodes.suspicion import USUAL, Suspicion
from mooring.store.core.engine import Database, is_temporary
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
_BURST_SECONDS = 0.02
_START_AGAIN_SECONDS = 5.0
_REACH_AGAIN_SECONDS = 1.0
_FAIR_CHANCE_SECONDS = 3.0
"""Head start of the other candidates after this server resigns; they poll for the lease twice a second."""
_PASS_SECONDS = 20.0


class _Resigned(Exception):
    """This server was asked to release the lease."""


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
        suspicion: Suspicion = USUAL,
        controller: ResourceController | None = None,
    ) -> None:
        """`controller` receives the requests for nodes; None leaves them undelivered."""
        self._signal = signal
        self._election = election
        self._reconcile_interval = reconcile_interval
        self.leadership = Leadership(database, holder)
        self._manager = ControllerManager(
            database,
            signal,
            self.leadership,
            reconcile_interval=reconcile_interval,
            pace=pace,
            retention=retention,
            accounting_interval_seconds=accounting_interval_seconds,
            audit_interval_seconds=audit_interval_seconds,
            suspicion=suspicion,
            controller=controller,
        )
        self.scheduling = self._manager.scheduling
        self.loops = self._manager.states
        self._warming: asyncio.Task[None] | None = None
        self._resigning = asyncio.Event()
        self._vacant = asyncio.Event()
        """Set once the last lease of this server is released or lost."""
        self.problem: str | None = "not started yet"

    @property
    def leads(self) -> bool:
        return self.leadership.held

    @property
    def role(self) -> str:
        return "leader" if self.leadership.held else "standby"

    @property
    def outage(self) -> Outage | None:
        """The outage that prevents this server from campaigning, if any."""
        return self._election.outage

    @property
    def health(self) -> str:
        """`ok` while this server leads or stands by for the current leader; otherwise the problem."""
        well = self.leadership.held or (self._election.standbys and self.problem is None)
        return "ok" if well else self.problem or "not leading"

    async def resign(self) -> None:
        """Release the lease, then campaign again after giving the other candidates a head start."""
        if not self.leads:
            raise LeadershipLost(f"{self.leadership.holder} does not lead")
        self._resigning.set()
        await self._vacant.wait()

    async def run_pass(self) -> FullPass:
        """Run a pass over all pending workloads now. Raise TimeoutError if it takes too long."""
        async with asyncio.timeout(_PASS_SECONDS):
            asked = self.scheduling.retry_all()
            self._signal.send()
            return await asked

    async def run(self) -> None:
        """Lead until cancelled, or until deposed if the election has no standbys; then close."""
        try:
            await self.keep_leading()
        finally:
            await self.close()

    async def close(self) -> None:
        self.scheduling.close()
        await self._election.close()

    async def keep_leading(self) -> None:
        """Lead whenever this server holds the lease, until cancelled. The rest of the server works without it."""
        try:
            while True:
                lease = await self._stand_by()
                rest_seconds = 0.0
                reason = "stopped"
                try:
                    await self._lead(lease)
                except _Resigned:
                    reason = "resigned"
                    _log.info("This scheduler resigned")
                except LeadershipLost as error:
                    self.problem = reason = error.message
                    _log.error(f"This scheduler stopped: {error.message}")
                    _log.warning("Deployment scheduling may be unavailable")
                    if not self._election.standbys:
                        return
                except Exception as error:
                    self.problem = reason = f"the scheduler failed: {type(error).__name__}: {error}".partition("\n")[0]
                    # The error of an unreachable database says everything; a traceback would add nothing.
                    shown = None if is_temporary(error) else error
                    _log.error("Scheduler initialization failed", reason=reason, exc_info=shown)
                    _log.warning("Deployment scheduling may be unavailable")
                    rest_seconds = _START_AGAIN_SECONDS
                finally:
                    self.scheduling.lose()
                    await lease.resign(f"{self.leadership.holder}: {reason}")
                    self._vacant.set()
                # A standby can take over meanwhile.
                await asyncio.sleep(rest_seconds)
        except asyncio.CancelledError:
            self.problem = "stopped"
            raise
        finally:
            if self._warming is not None:
                self._warming.cancel()
                await asyncio.gather(self._warming, return_exceptions=True)

    async def _stand_by(self) -> Lease:
        """Wait for the lease, and keep the view of the cluster warm meanwhile."""
        if not self._election.standbys:
            return await self._election.campaign()
        self.problem = None
        elected = asyncio.Event()
        self._warming = asyncio.create_task(self._follow_state(elected))
        try:
            if self._resigning.is_set():
                await asyncio.sleep(_FAIR_CHANCE_SECONDS)
            await self._until_reached()
            return await self._election.campaign()
        finally:
            elected.set()
            self._signal.send()

    async def _until_reached(self) -> None:
        """Wait until the database is reachable: a candidate without it leaves the lease to the others."""
        outage = Outage("The database", "this server cannot campaign for leadership")
        while True:
            try:
                async with asyncio.timeout(_START_AGAIN_SECONDS):
                    await self.leadership.ping_database()
            except Exception as error:
                outage.failed(error)
                await asyncio.sleep(_REACH_AGAIN_SECONDS)
            else:
                return outage.over()

    async def _follow_state(self, elected: asyncio.Event) -> None:
        """Follow the cluster's state until elected. A read in progress is completed: a partial one would be wrong."""
        outage = Outage("The database", "this standby cannot follow the cluster's state")
        while not elected.is_set():
            seen = self._signal.count
            try:
                await self.scheduling.stand_by()
            except Exception as error:
                self.scheduling.lose()
                outage.failed(error)
            else:
                outage.over()
            if not elected.is_set():
                await self._signal.wait(self._reconcile_interval, seen)
                await asyncio.sleep(_BURST_SECONDS)

    async def _lead(self, lease: Lease) -> None:
        self.loops.clear()
        self._resigning.clear()
        self._vacant.clear()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep(lease), name="lease")
                group.create_task(self._until_resigned(), name="resignation")
                term = await self.leadership.begin_term(lease.claim)
                if self._warming is not None:
                    await self._warming
                await self.scheduling.take_over()
                self.problem = None
                metrics.leading.set(1)
                _log.info(f"Deployment scheduler started successfully (term {term})")
                self._manager.start(group)
        except BaseExceptionGroup as failed:
            lost = failed.subgroup(LeadershipLost)
            raise (lost or failed).exceptions[0] from None
        finally:
            metrics.leading.set(0)
            self.leadership.end_term()

    async def _until_resigned(self) -> None:
        await self._resigning.wait()
        raise _Resigned

    async def _keep(self, lease: Lease) -> None:
        """Renew the lease, and stop the loops before another server can acquire it."""
        await lease.until_lost(self.leadership.ping_database)
        raise LeadershipLost(f"the lease of leadership could not be renewed in time: {lease.problem}")
