"""The tasks that a request asks for: its rate is charged by them, and one batch has a bounded number of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mooring.api.services import Services
from mooring.model.errors import InvalidInput
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.arrays import parse_array
from mooring.wire.fields import MAX_ARRAY, MAX_BATCH_TASKS

_TASK_COST = 0.05
"""Of a request's share: to write 20 tasks takes about as long as a request otherwise does."""
_BATCHED_COST = 0.1
"""Of a request's share: one workload of a batch."""


def charge_tasks(services: Services, principal: Principal, *, replicas: int, array: str | None = None) -> None:
    """Charge a request, which is charged as such already, for its tasks."""
    more = tasks_of({"replicas": replicas, "array": array}) * _TASK_COST - 1
    if more > 0:
        _charge(services, principal, more)


def charge_batch(services: Services, principal: Principal, workloads: Sequence[object], tasks: int) -> None:
    """Charge a batch for its workloads, or for its tasks where they cost more; refuse one of too many."""
    if tasks > MAX_BATCH_TASKS:
        raise InvalidInput(
            f"a batch has at most {MAX_BATCH_TASKS:,} tasks, and this has {tasks:,}; submit it in several",
            code="batch-too-large",
            details={"requested": tasks, "limit": MAX_BATCH_TASKS},
        )
    _charge(services, principal, max(len(workloads) * _BATCHED_COST, tasks * _TASK_COST))


def _charge(services: Services, principal: Principal, cost: float) -> None:
    # Two seconds' worth can be saved up, of which the request itself took one: more could never be asked for.
    services.rates.request(principal, min(cost, max(0.0, 2 * services.rates.limits.requests - 1)))


def tasks_of(request: object) -> int:
    """The tasks of a workload as it was sent. One that its schema refuses has none: it is never written."""
    if not isinstance(request, Mapping):
        return 0
    array, replicas = request.get("array"), request.get("replicas", 1)
    if isinstance(array, str):
        try:
            return min(parse_array(array).count, MAX_ARRAY)
        except InvalidInput:
            return 0
    return replicas if type(replicas) is int and replicas > 0 else 0
