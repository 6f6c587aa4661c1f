"""The duties of a leader: its loops, how often each turns, and what wakes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mooring import hooks
from mooring.binding.binder import Binder
from mooring.controllers.accounting import AccountingLoop
from mooring.controllers.audit import AuditLoop
from mooring.controllers.deliveries import DeliveryLoop, ResourceController
from mooring.controllers.draining import DrainingLoop
from mooring.controllers.holds import HoldsLoop
from mooring.controllers.idleness import IdlenessLoop
from mooring.controllers.lifecycle import LifecycleLoop
from mooring.controllers.limits import LimitsLoop
from mooring.controllers.loops import Work, keep_running
from mooring.controllers.nodes import NodesLoop
from mooring.controllers.quarantine import QuarantineLoop
from mooring.controllers.reports import ReportLoop
from mooring.controllers.retention import Retention, RetentionLoop
from mooring.controllers.rollouts import RolloutsLoop
from mooring.controllers.scaling import ScalingLoop
from mooring.controllers.scheduling import SchedulingLoop
from mooring.controllers.simulation import SimulationLoop
from mooring.controllers.suspicion import SuspicionLoop
from mooring.controllers.timeslots import TimeslotsLoop
from mooring.coordination.leadership import Office
from mooring.coordination.signals import Signal
from mooring.mirror.mirror import Mirror
from mooring.model.heartbeats import Pace
from mooring.model.loops import LoopState
from mooring.model.suspicion import Suspicion
from mooring.store.engine import Database

_BURST_SECONDS = 0.02
_RETENTION_SECONDS = 3600.0
_REPORT_SECONDS = 5.0
_SUSPICION_SECONDS = 10.0
_IDLENESS_SECONDS = 10.0
_UNHURRIED_SECONDS = 0.2
"""What is due by time is found in time all the same, and a look at who has to leave goes over all nodes."""
_LATER_SECONDS = 10.0
"""What goes through whole tables begins when the work that was left lying is placed."""


class Duties:
    """The loops, made once and started with every term."""

    def __init__(
        self,
        database: Database,
        signal: Signal,
        office: Office,
        *,
        reconcile_interval: float,
        pace: Pace,
        retention: Retention,
        accounting_interval_seconds: float,
        audit_interval_seconds: float,
        suspicion: Suspicion,
        controller: ResourceController | None,
    ) -> None:
        self._database = database
        self._signal = signal
        self._reconcile_interval = reconcile_interval
        self._pace = pace
        self._node_check_seconds = min(reconcile_interval, max(0.2, pace.timeout_seconds / 5))
        self._office = office
        self.scheduling = SchedulingLoop(
            Mirror(database, accounting_interval_seconds),
            Binder(database),
            office,
            reconcile_interval=reconcile_interval,
        )
        self._scaling = ScalingLoop(database, office, self.scheduling)
        told = hooks.with_method(hooks.discovered(), "scale_up")
        self._deliveries = DeliveryLoop(database, office, controller, told)
        self._lifecycle = LifecycleLoop(database, office)
        self._rollouts = RolloutsLoop(database, office)
        self._limits = LimitsLoop(database, office)
        self._timeslots = TimeslotsLoop(database, office)
        self._draining = DrainingLoop(database, office)
        self._suspicion = SuspicionLoop(database, office, suspicion)
        self._holds = HoldsLoop(database, office)
        self._idleness = IdlenessLoop(database, office)
        self._quarantine = QuarantineLoop(database, office)
        self._simulation = SimulationLoop(database, office)
        self._retention = RetentionLoop(database, office, retention)
        self._accounting_seconds = accounting_interval_seconds
        self._accounting = AccountingLoop(database, office)
        self._audit = AuditLoop(database)
        self._audit_seconds = audit_interval_seconds
        self.states: list[LoopState] = []
        self._reports = ReportLoop(database, office, self.states)

    def start(self, group: asyncio.TaskGroup) -> None:
        longest = self._reconcile_interval
        wait = self.scheduling.wait_seconds
        self._start(group, "scheduling", self.scheduling.once, lambda: wait(longest))
        until_held = self._holds.alarm.wait_seconds
        self._start(group, "holds", self._holds.once, lambda: until_held(longest), _BURST_SECONDS)
        self._start(group, "lifecycle", self._lifecycle.once, lambda: longest, _BURST_SECONDS)
        until_retired = self._rollouts.alarm.wait_seconds
        self._start(group, "rollouts", self._rollouts.once, lambda: until_retired(longest), _BURST_SECONDS)
        until_due = self._limits.alarm.wait_seconds
        self._start(group, "limits", self._limits.once, lambda: until_due(longest), _UNHURRIED_SECONDS)
        until_turn = self._timeslots.alarm.wait_seconds
        self._start(group, "timeslots", self._timeslots.once, lambda: until_turn(longest), _UNHURRIED_SECONDS)
        until_over = self._quarantine.alarm.wait_seconds
        self._start(group, "quarantine", self._quarantine.once, lambda: until_over(longest), _UNHURRIED_SECONDS)
        self._start(group, "simulation", self._simulation.once, lambda: longest, _BURST_SECONDS)
        nodes = NodesLoop(self._database, self._office, self._pace)
        self._start(group, "nodes", nodes.once, lambda: self._node_check_seconds, _BURST_SECONDS)
        until_left = self._draining.alarm.wait_seconds
        self._start(group, "draining", self._draining.once, lambda: until_left(longest), _UNHURRIED_SECONDS)
        until_rested = self._scaling.wait_seconds
        self._start(group, "scaling", self._scaling.once, lambda: until_rested(longest), _BURST_SECONDS)
        until_again = self._deliveries.alarm.wait_seconds
        self._start(group, "deliveries", self._deliveries.once, lambda: until_again(longest), _BURST_SECONDS)
        suspecting = min(longest, _SUSPICION_SECONDS)
        self._start(group, "suspicion", self._suspicion.once, lambda: suspecting, by_time=True)
        resting = min(longest, _IDLENESS_SECONDS)
        self._start(group, "idleness", self._idleness.once, lambda: resting, by_time=True)
        counting = self._accounting_seconds
        self._start(group, "accounting", self._accounting.once, lambda: counting, by_time=True)
        self._start(group, "retention", self._retention.once, lambda: _RETENTION_SECONDS, by_time=True)
        if self._audit_seconds:
            self._start(group, "audit", self._audit.once, lambda: self._audit_seconds, by_time=True)
        self._start(group, "reports", self._reports.once, lambda: _REPORT_SECONDS, by_time=True)

    def _start(
        self,
        group: asyncio.TaskGroup,
        name: str,
        work: Work,
        interval: Callable[[], float],
        pause_seconds: float = 0.0,
        *,
        by_time: bool = False,
    ) -> None:
        """`by_time`: no signal announces its work, and there is no hurry with it."""
        state = LoopState(name)
        self.states.append(state)
        signal = Signal() if by_time else self._signal
        first_seconds = min(_LATER_SECONDS, interval()) if by_time else 0.0

        async def turn() -> None:
            await asyncio.sleep(first_seconds)
            await keep_running(work, signal, interval=interval, state=state, pause_seconds=pause_seconds)

        group.create_task(turn(), name=name)
