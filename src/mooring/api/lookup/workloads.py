"""Workloads as the routes of workloads and of sessions return them."""

from __future__ import annotations

from mooring.api.auth.request_access import as_id, is_name
from mooring.api.serializers import (
    workload_detail,
    workload_view,
)
from mooring.api.services import Services
from mooring.model.tenancy.access import (
    Action,
    not_there,
    require_visible,
)
from mooring.model.tenancy.tenants import Principal
from mooring.store.views import workloads as views
from mooring.store.views.workloads import Order, Selection, WorkloadRow
from mooring.store.workloads import dependencies
from mooring.wire.workloads.workloads import (
    WorkloadDetail,
    WorkloadList,
)


async def listed(
    services: Services, selection: Selection, order: Order, *, limit: int, offset: int, with_positions: bool = True
) -> WorkloadList:
    """Return a page of the selected workloads."""
    async with services.database.read() as connection:
        rows, total = await views.page(
            connection, selection, order, limit=limit, offset=offset, with_positions=with_positions
        )
    return WorkloadList(workloads=[workload_view(row) for row in rows], total=total, limit=limit, offset=offset)


async def detailed(services: Services, principal: Principal, row: WorkloadRow) -> WorkloadDetail:
    async with services.database.read() as connection:
        tasks = await views.tasks_of(connection, row)
        needed = await dependencies.of(connection, [row.id])
    return workload_detail(row, tasks, needed.get(row.id, ()), to_owner=row.user_id == principal.user_id)


async def find_workload(
    services: Services,
    principal: Principal,
    ref: str,
    *,
    action: Action = Action.SEE_WORK,
    kind: str | None = None,
) -> WorkloadRow:
    """Return the workload of this id, or the principal's own of this name, if the principal may do this to it."""
    found: WorkloadRow | None = None
    workload_id = as_id(ref)
    if workload_id is not None:
        async with services.database.read() as connection:
            found = await views.by_id(connection, workload_id)
    elif is_name(ref):
        async with services.database.read() as connection:
            found = await views.by_name(connection, ref, user_id=principal.user_id)
    what = f"{kind or 'workload'} {ref[:63]!r}"
    if found is None or (kind is not None and found.kind != kind):
        raise not_there(what)
    require_visible(principal, action, found.target, what)
    return found
