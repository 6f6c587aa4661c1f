"""Prometheus metrics. No label holds the name of a user, workload or task."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.registry import Collector

registry = CollectorRegistry()

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)

passes = Counter("mooring_passes_total", "Scheduling passes", registry=registry)
pass_seconds = Histogram("mooring_pass_seconds", "Time of a scheduling pass", buckets=_FAST, registry=registry)
decisions = Counter("mooring_decisions_total", "Decisions by outcome", ["outcome"], registry=registry)
bind_seconds = Histogram("mooring_bind_seconds", "Time to commit a pass's decisions", buckets=_FAST, registry=registry)
bind_conflicts = Counter("mooring_bind_conflicts_total", "Workloads returned to placement", registry=registry)
preempted = Counter("mooring_preempted_total", "Tasks that were preempted", registry=registry)
phase_seconds = Histogram(
    "mooring_phase_seconds",
    "Time of the phases of a scheduling iteration: follow, reserve, place, bind, explain, write",
    ["phase"],
    buckets=_FAST,
    registry=registry,
)
waited_seconds = Histogram(
    "mooring_waited_seconds", "Time from submission to the first bind", buckets=_SLOW, registry=registry
)
start_error_seconds = Histogram(
    "mooring_start_error_seconds",
    "Distance between the first predicted start of a workload and its placement, by early or late",
    ["start"],
    buckets=_SLOW,
    registry=registry,
)
ended = Counter("mooring_workloads_ended_total", "Workloads that ended, by status", ["status"], registry=registry)
requests_in_progress = Gauge("mooring_requests_in_progress", "Requests in progress", registry=registry)
requests_refused = Counter(
    "mooring_requests_refused_total", "Requests refused because of too much load", registry=registry
)
connections = Gauge("mooring_connections", "Open connections to the API", registry=registry)
connections_closed = Counter(
    "mooring_connections_closed_total", "Connections closed because of too many connections", registry=registry
)
agents_connected = Gauge("mooring_agents_connected", "Agents with an open stream to this server", registry=registry)
agent_reports = Counter("mooring_agent_reports_total", "Task reports of agents", ["status"], registry=registry)
quarantined = Counter(
    "mooring_quarantined_total", "Tasks found on nodes that the database does not know", registry=registry
)
measured = Gauge(
    "mooring_measured",
    "Measured use of the tasks on a node, in base units of the slot; for agents connected to this server",
    ["pool", "node", "slot"],
    registry=registry,
)
nodes = Gauge("mooring_nodes", "Nodes by status", ["status"], registry=registry)
loop_runs = Counter(
    "mooring_loop_runs_total", "Iterations of the loops by outcome", ["loop", "outcome"], registry=registry
)
loop_seconds = Histogram("mooring_loop_seconds", "Time of an iteration", ["loop"], buckets=_FAST, registry=registry)
loop_success = Gauge(
    "mooring_loop_last_success_seconds", "End of a loop's last successful iteration", ["loop"], registry=registry
)
found_by_timer = Counter(
    "mooring_found_by_timer_total",
    "Iterations that found work that no signal had announced",
    ["loop"],
    registry=registry,
)
background_failures = Counter(
    "mooring_background_task_failures_total",
    "Background tasks that failed and were restarted",
    ["task"],
    registry=registry,
)
scale_requests = Counter(
    "mooring_scale_requests_total", "Requests for nodes by outcome", ["outcome"], registry=registry
)
defragmentation_moves = Counter(
    "mooring_defragmentation_moves_total",
    "Moves of automatic defragmentation by outcome",
    ["pool", "outcome"],
    registry=registry,
)
nodes_avoided = Gauge("mooring_nodes_avoided", "Nodes on which different work failed", registry=registry)
bad_nodes_drained = Counter("mooring_bad_nodes_drained_total", "Nodes drained because work failed", registry=registry)
audit_findings = Gauge("mooring_audit_findings", "Differences that the last audit found", registry=registry)
view_warm = Gauge(
    "mooring_view_warm",
    "1 while the scheduler of this process follows the cluster's state",
    registry=registry,
)
leading = Gauge("mooring_leading", "1 while this process leads", registry=registry)


class LeaderCollector(Collector):
    """Metrics that are computed when they are scraped, all from one moment; only the leader has a `source`."""

    def __init__(self) -> None:
        self.source: Callable[[], Iterable[Metric]] | None = None

    def collect(self) -> Iterable[Metric]:
        return () if self.source is None else self.source()


of_leader = LeaderCollector()
registry.register(of_leader)


def text() -> bytes:
    return generate_latest(registry)
