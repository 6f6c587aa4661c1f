"""The log lines of scheduling decisions."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import structlog

from mooring.model.decisions import SCORE_ONE, Decision, Outcome
from mooring.model.names import shown
from mooring.model.resources.slots import describe_amounts
from mooring.model.workloads.workload import Kind

_log = structlog.get_logger(__name__)


def log_decision(decision: Decision) -> None:
    """Log the steps of a decision, unless the workload is pending for the same reason as before."""
    workload = decision.workload
    if decision.outcome is Outcome.WAITING and decision.reason is not None and not decision.has_new_reason:
        return
    failed = decision.outcome in (Outcome.IMPOSSIBLE, Outcome.ERROR)
    # The lines are built only if they are written: a pass may decide on thousands of workloads.
    if not failed and not _log.is_enabled_for(logging.INFO):
        return
    what = f"{workload.kind} {shown(workload.name)} ({workload.id})"
    asked = describe_amounts(workload.request)
    _log.info(f"Scheduling {what}: {counted(len(workload.tasks), workload.kind)}, {asked}")
    _log.info(f"Found {decision.feasible_nodes} nodes with capacity: >={asked}")
    if decision.placements:
        verbose = _log.is_enabled_for(logging.DEBUG)
        if verbose:
            best = sorted(decision.placements, key=lambda p: -p.score)
            top = ", ".join(f"{p.node_name}={p.score / SCORE_ONE:.2f}" for p in best[:3])
            _log.debug(f"Node scoring complete. Top {min(3, len(best))}: {top}")
        names = ", ".join(p.node_name for p in decision.placements)
        _log.info(f"Selected {len(decision.placements)} nodes for {workload.kind}: [{names}]")
        for placement in decision.placements if verbose else ():
            _log.debug(
                f"Created replica {placement.task_id} on node {placement.node_name} "
                f"(score: {placement.score / SCORE_ONE:.2f})"
            )
    message = decision.reason.message if decision.reason else ""
    if failed:
        is_short_of_nodes = decision.reason is not None and decision.reason.code == "insufficient-nodes"
        _log.error(f"{message} with capacity" if is_short_of_nodes else message)
        short = "Insufficient capacity" if decision.outcome is Outcome.IMPOSSIBLE else message
        _log.error(f"{what.capitalize()} scheduling failed: {short}")
    elif decision.outcome is Outcome.WAITING:
        _log.info(f"{what.capitalize()} waits: {message}")


def log_bound(bound: Iterable[Decision]) -> None:
    """Log decisions that were committed."""
    if not _log.is_enabled_for(logging.INFO):
        return
    for decision in bound:
        named = f"{shown(decision.workload.name)} ({decision.workload.id})"
        if decision.victims:
            _log.info(f"{counted(len(decision.victims), Kind.SESSION)} leave for {named}")
        _log.info(
            f"Successfully scheduled {decision.workload.kind} {named} "
            f"with {counted(len(decision.placements), decision.workload.kind)}"
        )


def counted(number: int, kind: Kind) -> str:
    """Return a number of replicas or tasks with its noun."""
    noun = "replica" if kind is Kind.DEPLOYMENT else "task"
    return f"{number} {noun}{'s' if number != 1 else ''}"
