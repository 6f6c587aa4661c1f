"""What is done to the work of others is an administrative change, and is recorded as one."""

from __future__ import annotations

from mooring.clock import now
from mooring.model.tenants import Principal
from mooring.store import actions
from mooring.store.actions import Actor, State
from mooring.store.engine import Connection
from mooring.store.loading import LoadedWorkload
from mooring.store.types import as_uuid


async def record(
    connection: Connection, principal: Principal, workload: LoadedWorkload, action: str, before: State, after: State
) -> None:
    """One's own work is left out."""
    if as_uuid(workload.user_id) != principal.user_id:
        object = f"{workload.name} ({workload.id})"
        await actions.record(
            connection, Actor.of(principal), action, "workload", object, now=now(), before=before, after=after
        )
