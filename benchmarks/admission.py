"""Admission of 50,000 waiting workloads of 1,000 tenants in one pass, with their order; half of them exceed a limit.

The same workloads are also placed on 1,000 nodes in the order of `drf`, which depends on every placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import perf_counter, process_time
from uuid import UUID

from mooring.model.nodes.node import Node
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.admission import Admission, AdmissionContext, Rejection
from mooring.scheduling.plugins.ordering.bands import ordered
from mooring.scheduling.plugins.ordering.drf import DrfSequencer
from mooring.scheduling.plugins.ordering.fifo import FifoSequencer
from mooring.scheduling.plugins.protocols import OrderingContext
from mooring.scheduling.tenant_usage import Usage, tenants_of

WORKLOADS = 50_000
USERS = 1_000
PROJECTS = 100
DOMAINS = 10
NODES = 1_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EACH = {"cpu": 1000, "memory": 2**30}


def run() -> dict[str, float]:
    waiting = [_workload(number) for number in range(WORKLOADS)]
    share = WORKLOADS // USERS // 2
    figures: dict[str, float] = {"workloads": WORKLOADS, "tenants": USERS}
    for name, usage, expected in (
        ("no_limits", Usage(), WORKLOADS),
        ("limits_at_every_level", _limited(waiting, share), USERS * share),
    ):
        wall, processor, admitted = _measure(waiting, usage)
        assert admitted == expected
        figures |= {
            f"{name}_admitted": admitted,
            f"{name}_seconds": wall,
            f"{name}_processor_seconds": processor,
            f"{name}_processor_us_per_workload": processor / WORKLOADS * 1e6,
        }
    figures["drf_processor_seconds"] = _placed_by_drf(waiting, Usage(), WORKLOADS)
    limited = _limited(waiting, share)
    figures["drf_limits_at_every_level_processor_seconds"] = _placed_by_drf(waiting, limited, USERS * share)
    return figures


def _placed_by_drf(waiting: Sequence[Workload], usage: Usage, expected: int) -> float:
    """Processor seconds of a pass in the order of dominant resource fairness."""
    nodes = [Node(name=f"n{number}", allocatable={"cpu": 64_000, "memory": 2**36}) for number in range(NODES)]
    scheduler = Scheduler(nodes, sequencer=DrfSequencer(), compiled=True)
    used = process_time()
    result = scheduler.place(waiting, NOW, admission=Admission(AdmissionContext(NOW, usage)))
    took = process_time() - used
    assert result.placements == expected
    return took


def _measure(waiting: Sequence[Workload], usage: Usage) -> tuple[float, float, int]:
    """Seconds of ordering and admission, by the clock and of the processor, and how many were admitted."""
    started, used = perf_counter(), process_time()
    admission = Admission(AdmissionContext(NOW, usage))
    in_order = ordered(FifoSequencer(), waiting, OrderingContext())
    admitted = sum(not isinstance(admission.admit(each), Rejection) for each in in_order)
    return perf_counter() - started, process_time() - used, admitted


def _workload(number: int) -> Workload:
    user = number % USERS
    return Workload(
        id=UUID(int=number + 1),
        name=f"work-{number}",
        access_key=f"MK{user}",
        user_id=UUID(int=1_000_000 + user),
        project_id=UUID(int=2_000_000 + user % PROJECTS),
        domain_id=UUID(int=3_000_000 + user % DOMAINS),
        request=EACH,
        created_at=NOW - timedelta(seconds=number),
    )


def _limited(waiting: Sequence[Workload], share: int) -> Usage:
    """Limits on sessions, CPU and memory at every level; only those of users are reached."""
    usage = Usage()
    members = {Scope.KEYPAIR: 2, Scope.USER: 1, Scope.PROJECT: 2 * USERS // PROJECTS, Scope.DOMAIN: USERS}
    tenants: set[Tenant] = {tenant for each in waiting[:USERS] for tenant in tenants_of(each)}
    for tenant in tenants:
        number = share * members[tenant.scope]
        amounts = {slot: amount * number for slot, amount in EACH.items()}
        usage.update(tenant, limits={**amounts, "sessions": number}, name=tenant.id)
    return usage
