"""Delivery of scale requests to the resource controller; failed deliveries are retried with exponential backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from mooring.clock import now
from mooring.concurrency import backoff
from mooring.controllers.leadership.loops import Alarm
from mooring.coordination.fenced_database import FencedDatabase
from mooring.extensions.hooks import Hook
from mooring.model.errors import MooringError, Unavailable
from mooring.model.nodes.node_templates import (
    NodeTemplate,
    ScaleRequest,
    ScaleRequestStatus,
    late_at,
)
from mooring.model.resources.slots import format_amounts
from mooring.store.core.engine import Connection
from mooring.store.scaling import node_templates, scale_requests
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
_AT_ONCE = 8
_FIRST_SECONDS, _MAX_SECONDS = 2.0, 300.0


class ResourceController(Protocol):
    """A service that provisions nodes."""

    async def scale_up(self, key: str, facts: Mapping[str, Any]) -> None:
        """Request nodes. Raise Unavailable if a later attempt may succeed, another MooringError if refused."""
        ...


class ScaleRequestDeliveryLoop:
    """A separate loop, because the resource controller may respond slowly."""

    def __init__(
        self, database: FencedDatabase, controller: ResourceController | None, hooks: Sequence[Hook] = ()
    ) -> None:
        """Hooks are notified once per request. Without a controller and hooks, requests are only stored and shown."""
        self._database = database
        self._controller = controller
        self._hooks = hooks
        self.alarm = Alarm()

    async def once(self) -> bool:
        if self._controller is None and not self._hooks:
            return False
        at = now()
        async with self._database.read() as connection:
            waiting = await scale_requests.to_deliver(connection)
            templates = await node_templates.by_pool(connection)
        due = [request for request in waiting if request.next_attempt_at is not None and request.next_attempt_at <= at]
        self.alarm.set(*(request.next_attempt_at for request in waiting[len(due) :]))
        known = {(template.pool, template.name): template for own in templates.values() for template in own}
        now_due = due[:_AT_ONCE]
        await asyncio.gather(*(self._deliver(each, known.get((each.pool, each.template))) for each in now_due))
        return bool(due)

    async def _deliver(self, request: ScaleRequest, template: NodeTemplate | None) -> None:
        facts = facts_of(request, template)
        if request.attempts == 0:
            await asyncio.gather(*(hook.notify(facts) for hook in self._hooks))
        problem: MooringError | None = None
        try:
            if self._controller is not None:
                await self._controller.scale_up(str(request.id), facts)
        except MooringError as error:
            problem = error

        async def write(connection: Connection, term: int) -> None:
            at = now()
            [present] = await scale_requests.locked(connection, [request.id])
            changed = _after_attempt(present, template, problem, at)
            await scale_requests.save(connection, [changed], now=at, term=term)

        await self._database.write(write)
        _log_delivery(request, problem)


def _after_attempt(
    request: ScaleRequest, template: NodeTemplate | None, problem: MooringError | None, at: datetime
) -> ScaleRequest:
    tried = replace(request, attempts=request.attempts + 1, error=None if problem is None else problem.message)
    if request.status is not ScaleRequestStatus.REQUESTED:
        # Its nodes joined, or it expired, before the controller responded.
        return replace(tried, delivered_at=at if problem is None else None)
    if problem is None:
        # The nodes boot from now on, so the deadline starts here.
        expires_at = request.expires_at if template is None else late_at(at, template)
        return replace(
            tried,
            status=ScaleRequestStatus.DELIVERED,
            delivered_at=at,
            next_attempt_at=None,
            expires_at=expires_at,
        )
    if isinstance(problem, Unavailable):
        pause = backoff.delay(tried.attempts, _FIRST_SECONDS, _MAX_SECONDS, jitter=0.5)
        return replace(tried, next_attempt_at=at + timedelta(seconds=pause))
    return replace(tried, status=ScaleRequestStatus.REFUSED, next_attempt_at=None)


def _log_delivery(request: ScaleRequest, problem: MooringError | None) -> None:
    what = f"The request of pool {request.pool} for nodes of template {request.template} ({len(request.wanted)})"
    if problem is None:
        metrics.scale_requests.labels("delivered").inc()
        _log.info(f"{what} was delivered")
    elif isinstance(problem, Unavailable):
        _log.warning(f"{what} could not be delivered and is retried: {problem.message}")
    else:
        metrics.scale_requests.labels("refused").inc()
        _log.error(f"{what} was refused: {problem.message}")


def facts_of(request: ScaleRequest, template: NodeTemplate | None) -> dict[str, Any]:
    """Return a request as passed to controllers and hooks; a template removed meanwhile appears by name only."""
    facts: dict[str, Any] = {
        "id": str(request.id),
        "pool": request.pool,
        "template": request.template,
        "nodes": len(request.wanted),
        "workloads": sorted({str(workload) for node in request.wanted for workload in node}),
        "requested_at": request.created_at.isoformat(),
    }
    if template is not None:
        facts["node"] = {
            "resources": format_amounts(template.allocatable),
            "labels": dict(template.labels),
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect.value} for t in template.taints],
            "architecture": template.architecture,
            "runtimes": sorted(template.runtimes),
            "region": template.region,
            "licence": template.licence,
            "machine_image": template.machine_image,
            "machine_image_version": template.machine_image_version,
            "max_tasks": template.max_tasks,
            "cost": template.cost,
            "boot_seconds": template.boot_seconds,
        }
    return facts
