"""Log lines and metrics of a committed transaction."""

from __future__ import annotations

import logging

import structlog

from mooring.model.lifecycle import is_workload_end
from mooring.model.names import shown
from mooring.store.commit.status_changes import Applied
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)


def log_applied(applied: Applied) -> None:
    """Log changed tasks at debug level and changed workloads at info level, and count ended workloads."""
    if _log.is_enabled_for(logging.DEBUG):
        for change, _ in applied.tasks:
            _log.debug(f"Replica {change.task_id} transitioned to {change.new}")
    logs = _log.is_enabled_for(logging.INFO)
    for workload in applied.workloads:
        if is_workload_end(workload.new):
            metrics.ended.labels(workload.new).inc()
        if logs:
            _log.info(
                f"{workload.kind.capitalize()} {shown(workload.name)} ({workload.workload_id}) status: "
                f"{workload.old.lower()} -> {workload.new.lower()}"
                + (f" (reason: {shown(workload.reason)})" if workload.reason else "")
            )
