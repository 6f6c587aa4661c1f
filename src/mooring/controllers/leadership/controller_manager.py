"""The controller manager: the leader's loops, their intervals, and the signals that start them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mooring.binding.binder import Binder
from mooring.controllers.leadership.loop_reports import ReportLoop
from mooring.controllers.leadership.loops import Work, keep_running
from mooring.controllers.nodes.draining import DrainingLoop
from mooring.controllers.nodes.node_health import NodeHealthLoop
from mooring.controllers.nodes.quarantine import QuarantineLoop
from mooring.controllers.nodes.scale_request_delivery import ResourceController, ScaleRequestDeliveryLoop
from mooring.controllers.nodes.scaling import ScalingLoop
from mooring.controllers.nodes.simulation import SimulationLoop
from mooring.controllers.nodes.suspicion import SuspicionLoop
from mooring.controllers.scheduling.estimates import EstimatesLoop
from mooring.controllers.scheduling.holds import HoldsLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.controllers.scheduling.timeslots import TimeslotsLoop
from mooring.controllers.upkeep.accounting import AccountingLoop
from mooring.controllers.upkeep.audit import AuditLoop
from mooring.controllers.upkeep.retention import Retention, RetentionLoop
from mooring.controllers.workloads.expiry import ExpiryLoop
from mooring.controllers.workloads.idleness import IdlenessLoop
from mooring.controllers.workloads.lifecycle import LifecycleLoop
from mooring.controllers.workloads.rollouts import RolloutsLoop
from mooring.coordination.fenced_database import FencedDatabase
from mooring.coordination.leadership import Leadership
from mooring.coordination.signals import Signal
from mooring.extensions import hooks
from mooring.mirror.mirror import Mirror
from mooring.model.loops import LoopState
from mooring.model.nodes.heartbeats import Pace
from mooring.model.nodes.suspicion import Suspicion
from mooring.store.core.engine import Database

_BURST_SECONDS = 0.02
_RETENTION_SECONDS = 3600.0
_REPORT_SECONDS = 5.0
_SUSPICION_SECONDS = 10.0
_IDLENESS_SECONDS = 10.0
_UNHURRIED_SECONDS = 0.2
"""Pause between signalled iterations of loops whose work is due by time; an iteration of some reads all nodes."""
_LATER_SECONDS = 10.0
"""Delay of the first iteration of loops that scan whole tables, so that the backlog is placed first."""


class ControllerManager:
    """The loops: created once, started in every term."""

    def __init__(
        self,
        database: Database,
        signal: Signal,
        leadership: Leadership,
        *,
        reconcile_interval: float,
        pace: Pace,
        retention: Retention,
        accounting_interval_seconds: float,
        audit_interval_seconds: float,
        suspicion: Suspicion,
        controller: ResourceController | None,
    ) -> None:
        self._database = fenced = FencedDatabase(database, leadership)
        self._signal = signal
        self._reconcile_interval = reconcile_interval
        self._pace = pace
        self._node_check_seconds = min(reconcile_interval, max(0.2, pace.timeout_seconds / 5))
        self.scheduling = SchedulingLoop(
            Mirror(database, accounting_interval_seconds),
            Binder(database),
            leadership,
            reconcile_interval=reconcile_interval,
        )
        self._estimates = EstimatesLoop(fenced, self.scheduling)
        self._scaling = ScalingLoop(fenced, self.scheduling)
        scale_up_hooks = hooks.with_method(hooks.discovered(), "scale_up")
        self._deliveries = ScaleRequestDeliveryLoop(fenced, controller, scale_up_hooks)
        self._lifecycle = LifecycleLoop(fenced)
        self._rollouts = RolloutsLoop(fenced)
        self._limits = ExpiryLoop(fenced)
        self._timeslots = TimeslotsLoop(fenced)
        self._draining = DrainingLoop(fenced)
        self._suspicion = SuspicionLoop(fenced, suspicion)
        self._holds = HoldsLoop(fenced)
        self._idleness = IdlenessLoop(fenced)
        self._quarantine = QuarantineLoop(fenced)
        self._simulation = SimulationLoop(fenced)
        self._retention = RetentionLoop(fenced, retention)
        self._accounting_seconds = accounting_interval_seconds
        self._accounting = AccountingLoop(fenced)
        self._audit = AuditLoop(fenced)
        self._audit_seconds = audit_interval_seconds
        self.states: list[LoopState] = []
        self._reports = ReportLoop(fenced, self.states)

    def start(self, group: asyncio.TaskGroup) -> None:
        max_seconds = self._reconcile_interval
        wait = self.scheduling.wait_seconds
        self._start(group, "scheduling", self.scheduling.once, lambda: wait(max_seconds))
        until_held = self._holds.alarm.wait_seconds
        self._start(group, "holds", self._holds.once, lambda: until_held(max_seconds), _BURST_SECONDS)
        self._start(group, "lifecycle", self._lifecycle.once, lambda: max_seconds, _BURST_SECONDS)
        until_retired = self._rollouts.alarm.wait_seconds
        self._start(group, "rollouts", self._rollouts.once, lambda: until_retired(max_seconds), _BURST_SECONDS)
        until_due = self._limits.alarm.wait_seconds
        self._start(group, "limits", self._limits.once, lambda: until_due(max_seconds), _UNHURRIED_SECONDS)
        until_timeslot = self._timeslots.alarm.wait_seconds
        self._start(group, "timeslots", self._timeslots.once, lambda: until_timeslot(max_seconds), _UNHURRIED_SECONDS)
        until_over = self._quarantine.alarm.wait_seconds
        self._start(group, "quarantine", self._quarantine.once, lambda: until_over(max_seconds), _UNHURRIED_SECONDS)
        until_end = self._simulation.alarm.wait_seconds
        self._start(group, "simulation", self._simulation.once, lambda: until_end(max_seconds), _BURST_SECONDS)
        nodes = NodeHealthLoop(self._database, self._pace)
        self._start(group, "nodes", nodes.once, lambda: self._node_check_seconds, _BURST_SECONDS)
        until_left = self._draining.alarm.wait_seconds
        self._start(group, "draining", self._draining.once, lambda: until_left(max_seconds), _UNHURRIED_SECONDS)
        until_rested = self._scaling.wait_seconds
        self._start(group, "scaling", self._scaling.once, lambda: until_rested(max_seconds), _BURST_SECONDS)
        until_again = self._deliveries.alarm.wait_seconds
        self._start(group, "deliveries", self._deliveries.once, lambda: until_again(max_seconds), _BURST_SECONDS)
        until_portion = self._estimates.wait_seconds
        self._start(group, "estimates", self._estimates.once, lambda: until_portion(max_seconds), by_time=True)
        suspecting = min(max_seconds, _SUSPICION_SECONDS)
        self._start(group, "suspicion", self._suspicion.once, lambda: suspecting, by_time=True)
        resting = min(max_seconds, _IDLENESS_SECONDS)
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
        """Start one loop. `by_time`: only its timer runs it, since no signal announces its work and none is urgent."""
        state = LoopState(name)
        self.states.append(state)
        signal = Signal() if by_time else self._signal
        first_seconds = min(_LATER_SECONDS, interval()) if by_time else 0.0

        async def iterate() -> None:
            await asyncio.sleep(first_seconds)
            await keep_running(work, signal, interval=interval, state=state, pause_seconds=pause_seconds)

        group.create_task(iterate(), name=name)
