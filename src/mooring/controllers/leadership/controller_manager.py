"""The controller manager: the leader's loops, their intervals, and the signals that start them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mooring.binding.binder import Binder
from mooring.controllers.leadership.loop_reports import ReportLoop
from mooring.controllers.leadership.loops import Work, keep_running
from mooring.controllers.leadership.topics import CHARGED, PLACED, ROUTINE, STARTED, SUBMITTED, UNSCHEDULABLE, Group
from mooring.controllers.nodes.defragmentation import DefragmentationLoop
from mooring.controllers.nodes.draining import DrainingLoop
from mooring.controllers.nodes.node_health import NodeHealthLoop
from mooring.controllers.nodes.quarantine import QuarantineLoop
from mooring.controllers.nodes.scale_request_delivery import ResourceController, ScaleRequestDeliveryLoop
from mooring.controllers.nodes.scaling import ScalingLoop
from mooring.controllers.nodes.simulation import SimulationLoop
from mooring.controllers.nodes.suspicion import SuspicionLoop
from mooring.controllers.scheduling.estimates import EstimatesLoop
from mooring.controllers.scheduling.holds import HoldsLoop
from mooring.controllers.scheduling.learned_demand import LearnedDemandLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.controllers.scheduling.timeslots import TimeslotsLoop
from mooring.controllers.upkeep.accounting import AccountingLoop
from mooring.controllers.upkeep.audit import AuditLoop
from mooring.controllers.upkeep.planner_statistics import PlannerStatisticsLoop
from mooring.controllers.upkeep.retention import Retention, RetentionLoop
from mooring.controllers.workloads.expiry import ExpiryLoop
from mooring.controllers.workloads.idleness import IdlenessLoop
from mooring.controllers.workloads.lifecycle import LifecycleLoop
from mooring.controllers.workloads.rollouts import RolloutsLoop
from mooring.coordination.fenced_database import FencedDatabase
from mooring.coordination.leadership import Leadership
from mooring.coordination.signals import Signal, Subscription
from mooring.extensions import hooks
from mooring.mirror.mirror import Mirror
from mooring.model.loops import LoopState
from mooring.model.nodes.heartbeats import Pace
from mooring.model.nodes.suspicion import Suspicion
from mooring.store.core.engine import Database

_PASS_SECONDS = 0.005
"""Pause between signalled passes, so that one decides on all that arrives together."""
_BURST_SECONDS = 0.02
_DEMAND_SECONDS = 60.0
_RETENTION_SECONDS = 3600.0
_REPORT_SECONDS = 5.0
_STATISTICS_SECONDS = 2.0
"""Pause between looks at how much tables have grown."""
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
        self._defragmentation = DefragmentationLoop(fenced, self.scheduling)
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
        self._learned_demand = LearnedDemandLoop(fenced)
        self._audit = AuditLoop(fenced)
        self._audit_seconds = audit_interval_seconds
        self._statistics = PlannerStatisticsLoop(fenced) if database.dialect == "postgresql" else None
        self.states: list[LoopState] = []
        self._reports = ReportLoop(fenced, self.states)
        # The view follows placements and starts of its own term without haste: no pending work waits for them.
        self._passes = self._concerned(UNSCHEDULABLE, can_wait=PLACED | STARTED)
        self._changes = self._concerned(ROUTINE)
        # A start changes the usage of its tenants; no other commit only does that.
        self._placements = self._concerned(SUBMITTED | UNSCHEDULABLE | STARTED | CHARGED)
        arrivals = SUBMITTED | UNSCHEDULABLE
        self._occupancy = signal.subscribe(Subscription(lambda: arrivals if self._draining.watching else ROUTINE))
        self._deadlines = self._concerned(UNSCHEDULABLE | PLACED)
        rolling = ROUTINE - STARTED
        self._replicas = signal.subscribe(Subscription(lambda: rolling if self._rollouts.rolling else ROUTINE))

    def _concerned(self, ignored: Group, *, can_wait: Group = frozenset()) -> Subscription:
        return self._signal.subscribe(Subscription(lambda: ignored, can_wait=can_wait, wait_seconds=_UNHURRIED_SECONDS))

    def start(self, group: asyncio.TaskGroup) -> None:
        max_seconds = self._reconcile_interval

        def at_least(wait: Callable[[float], float]) -> Callable[[], float]:
            return lambda: wait(max_seconds)

        until_pass = at_least(self.scheduling.wait_seconds)
        self._start(group, "scheduling", self.scheduling.once, until_pass, self._passes, _PASS_SECONDS)
        until_held = at_least(self._holds.alarm.wait_seconds)
        self._start(group, "holds", self._holds.once, until_held, self._changes, _BURST_SECONDS)
        self._start(group, "lifecycle", self._lifecycle.once, lambda: max_seconds, self._changes, _BURST_SECONDS)
        until_retired = at_least(self._rollouts.alarm.wait_seconds)
        self._start(group, "rollouts", self._rollouts.once, until_retired, self._replicas, _BURST_SECONDS)
        until_due = at_least(self._limits.alarm.wait_seconds)
        self._start(group, "limits", self._limits.once, until_due, self._deadlines, _UNHURRIED_SECONDS)
        until_timeslot = at_least(self._timeslots.alarm.wait_seconds)
        self._start(group, "timeslots", self._timeslots.once, until_timeslot, self._deadlines, _UNHURRIED_SECONDS)
        until_over = at_least(self._quarantine.alarm.wait_seconds)
        self._start(group, "quarantine", self._quarantine.once, until_over, self._changes, _UNHURRIED_SECONDS)
        until_end = at_least(self._simulation.alarm.wait_seconds)
        self._start(group, "simulation", self._simulation.once, until_end, self._placements, _BURST_SECONDS)
        nodes = NodeHealthLoop(self._database, self._pace)
        self._start(group, "nodes", nodes.once, lambda: self._node_check_seconds, self._changes, _BURST_SECONDS)
        until_left = at_least(self._draining.alarm.wait_seconds)
        self._start(group, "draining", self._draining.once, until_left, self._occupancy, _UNHURRIED_SECONDS)
        until_rested = at_least(self._scaling.wait_seconds)
        self._start(group, "scaling", self._scaling.once, until_rested, self._signal, _UNHURRIED_SECONDS)
        until_again = at_least(self._deliveries.alarm.wait_seconds)
        self._start(group, "deliveries", self._deliveries.once, until_again, self._changes, _BURST_SECONDS)
        self._start(group, "estimates", self._estimates.once, at_least(self._estimates.wait_seconds))
        until_moved = at_least(self._defragmentation.alarm.wait_seconds)
        self._start(group, "defragmentation", self._defragmentation.once, until_moved)
        suspecting = min(max_seconds, _SUSPICION_SECONDS)
        self._start(group, "suspicion", self._suspicion.once, lambda: suspecting)
        resting = min(max_seconds, _IDLENESS_SECONDS)
        self._start(group, "idleness", self._idleness.once, lambda: resting)
        self._start(group, "accounting", self._accounting.once, lambda: self._accounting_seconds)
        self._start(group, "demand", self._learned_demand.once, lambda: _DEMAND_SECONDS)
        self._start(group, "retention", self._retention.once, lambda: _RETENTION_SECONDS)
        if self._audit_seconds:
            self._start(group, "audit", self._audit.once, lambda: self._audit_seconds)
        if self._statistics is not None:
            self._start(
                group, "statistics", self._statistics.once, lambda: max_seconds, self._signal, _STATISTICS_SECONDS
            )
        self._start(group, "reports", self._reports.once, lambda: _REPORT_SECONDS)

    def _start(
        self,
        group: asyncio.TaskGroup,
        name: str,
        work: Work,
        interval: Callable[[], float],
        signal: Signal | None = None,
        pause_seconds: float = 0.0,
    ) -> None:
        """Start one loop. Without `signal` only its timer runs it: no commit announces its work, and none is urgent."""
        state = LoopState(name)
        self.states.append(state)
        started = Signal() if signal is None else signal
        first_seconds = min(_LATER_SECONDS, interval()) if signal is None else 0.0

        async def iterate() -> None:
            await asyncio.sleep(first_seconds)
            await keep_running(work, started, interval=interval, state=state, pause_seconds=pause_seconds)

        group.create_task(iterate(), name=name)
