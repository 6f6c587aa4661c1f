"""Records changes to the work of others as administrative actions."""

from __future__ import annotations

from mooring.clock import now
from mooring.model.tenancy.tenants import Principal
from mooring.store.commit.locked_workloads import LoadedWorkload
from mooring.store.core.engine import Connection
from mooring.store.core.types import as_uuid
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor, State


async def record(
    connection: Connection, principal: Principal, workload: LoadedWorkload, action: str, before: State, after: State
) -> None:
    """Record the change, unless the work is the principal's own."""
    if as_uuid(workload.user_id) != principal.user_id:
        object = f"{workload.name} ({workload.id})"
        await admin_actions.record(
            connection, Actor.of(principal), action, "workload", object, now=now(), before=before, after=after
        )
