"""Log lines and metrics of what a transaction changed, told after it committed."""

from __future__ import annotations

import structlog

from mooring import metrics
from mooring.model.lifecycle import is_workload_end
from mooring.model.names import shown
from mooring.store.changes import Applied

_log = structlog.get_logger(__name__)


def narrate(applied: Applied) -> None:
    """Tasks at debug, workloads at info."""
    for change, _ in applied.tasks:
        _log.debug(f"Replica {change.task_id} transitioned to {change.new}")
    for workload in applied.workloads:
        if is_workload_end(workload.new):
            metrics.ended.labels(workload.new).inc()
        _log.info(
            f"{workload.kind.capitalize()} {workload.workload_id} status: "
            f"{workload.old.lower()} -> {workload.new.lower()}"
            + (f" (reason: {shown(workload.reason)})" if workload.reason else "")
        )
