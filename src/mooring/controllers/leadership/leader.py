"""The leader: campaigns for the seat, takes office, and runs the loops until it is stopped or the seat is lost."""

from __future__ import annotations

import asyncio

import structlog

from mooring import metrics
from mooring.controllers.deliveries import ResourceController
from mooring.controllers.duties import Duties
from mooring.controllers.retention import Retention
from mooring.controllers.scheduling import FullPass
from mooring.coordination.election import Election, Seat
from mooring.coordination.leadership import Office
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.model.heartbeats import Pace
from mooring.model.suspicion import USUAL, Suspicion
from mooring.store.engine import Database

_log = structlog.get_logger(__name__)
_BURST_SECONDS = 0.02
_START_AGAIN_SECONDS = 5.0
_REACH_AGAIN_SECONDS = 1.0
_FAIR_CHANCE_SECONDS = 3.0
"""The head start of the others for a seat that was given back: they look for it twice a second."""
_PASS_SECONDS = 20.0


class _Resigned(Exception):
    """The seat is to be given back."""


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
        """`controller`: who is asked for more nodes; nobody if there is none."""
        self._signal = signal
        self._election = election
        self._reconcile_interval = reconcile_interval
        self.office = Office(database, holder)
        self._duties = Duties(
            database,
            signal,
            self.office,
            reconcile_interval=reconcile_interval,
            pace=pace,
            retention=retention,
            accounting_interval_seconds=accounting_interval_seconds,
            audit_interval_seconds=audit_interval_seconds,
            suspicion=suspicion,
            controller=controller,
        )
        self.scheduling = self._duties.scheduling
        self.loops = self._duties.states
        self._warming: asyncio.Task[None] | None = None
        self._resigning = asyncio.Event()
        self._vacant = asyncio.Event()
        """The seat that was held last is given back, or lost."""
        self.problem: str | None = "not started yet"

    @property
    def leads(self) -> bool:
        return self.office.held

    @property
    def role(self) -> str:
        return "leader" if self.office.held else "standby"

    @property
    def standing(self) -> str:
        """What /ready says of it: `ok` while it leads, or waits for the seat of another."""
        well = self.office.held or (self._election.standbys and self.problem is None)
        return "ok" if well else self.problem or "not leading"

    async def resign(self) -> None:
        """Give the seat back, and campaign for it again when the others had their chance."""
        if not self.leads:
            raise LeadershipLost(f"{self.office.holder} does not lead")
        self._resigning.set()
        await self._vacant.wait()

    async def run_pass(self) -> FullPass:
        """Try everything that waits at once; TimeoutError where that takes very long."""
        async with asyncio.timeout(_PASS_SECONDS):
            asked = self.scheduling.ask_for_all()
            self._signal.send()
            return await asked

    async def run(self) -> None:
        """Lead whenever the seat is ours, until cancelled. While it is not, the rest of the server goes on."""
        try:
            while True:
                seat = await self._stand_by()
                rest_seconds = 0.0
                try:
                    await self._lead(seat)
                except _Resigned:
                    _log.info("This scheduler resigned")
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
                    rest_seconds = _START_AGAIN_SECONDS
                finally:
                    self.scheduling.lose()
                    await seat.resign()
                    self._vacant.set()
                # Whoever stands by can begin meanwhile.
                await asyncio.sleep(rest_seconds)
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
            if self._resigning.is_set():
                await asyncio.sleep(_FAIR_CHANCE_SECONDS)
            await self._until_reached()
            return await self._election.campaign()
        finally:
            elected.set()
            self._signal.send()

    async def _until_reached(self) -> None:
        """A candidate that cannot reach the database leaves the seat to those who can."""
        while True:
            try:
                async with asyncio.timeout(_START_AGAIN_SECONDS):
                    return await self.office.reach()
            except Exception as error:
                _log.warning("This standby cannot reach the database", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(_REACH_AGAIN_SECONDS)

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
        self._resigning.clear()
        self._vacant.clear()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep(seat), name="seat")
                group.create_task(self._until_resigned(), name="resignation")
                term = await self.office.take(seat.claim)
                if self._warming is not None:
                    await self._warming
                await self.scheduling.take_over()
                self.problem = None
                metrics.leading.set(1)
                _log.info(f"Deployment scheduler started successfully (term {term})")
                self._duties.start(group)
        except BaseExceptionGroup as failed:
            lost = failed.subgroup(LeadershipLost)
            raise (lost or failed).exceptions[0] from None
        finally:
            metrics.leading.set(0)
            self.office.lose()

    async def _until_resigned(self) -> None:
        await self._resigning.wait()
        raise _Resigned

    async def _keep(self, seat: Seat) -> None:
        """Renew the seat, and end the loops before anybody else can have it."""
        await seat.until_lost(self.office.reach)
        raise LeadershipLost("the lease of leadership could not be renewed in time, or the database did not answer")
