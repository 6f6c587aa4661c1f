"""Records of administrative actions, for admins."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from mooring.api.auth.request_access import Served, needs
from mooring.api.middleware.errors import problems
from mooring.model.errors import InvalidInput
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.store.tenancy import admin_actions
from mooring.wire.fields import Name, ShortText
from mooring.wire.tenancy.tenants import ActionList, ActionView

router = APIRouter(prefix="/api/actions", tags=["tenants"], responses=problems(401, 403, 422, 503))


@router.get("", operation_id="list_actions")
async def list_actions(
    services: Served,
    _reader: Annotated[Principal, needs(Action.SEE_ACTIONS)],
    noun: Annotated[Name | None, Query(description="Kind of the changed object: user, pool, policy, …")] = None,
    object: Annotated[ShortText | None, Query(description="Name of the changed object")] = None,
    since: Annotated[datetime | None, Query(description="Only those from this time on")] = None,
    before: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="Only those before the action with this id")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ActionList:
    """List administrative changes with their user, address and content, newest first."""
    if since is not None and (since.tzinfo is None or not 1 < since.year < 9999):
        raise InvalidInput("since: write an instant with its zone, such as 2026-01-31T12:00:00Z")
    async with services.database.read() as connection:
        found = await admin_actions.page(
            connection, noun=noun, object=object, since=since, before_id=before, limit=limit + 1
        )
    views = [
        ActionView(
            id=action.id,
            at=action.at,
            username=action.username,
            address=action.address,
            action=action.action,
            noun=action.noun,
            object=action.object,
            version=action.version,
            before=None if action.before is None else dict(action.before),
            after=None if action.after is None else dict(action.after),
        )
        for action in found[:limit]
    ]
    return ActionList(actions=views, next=views[-1].id if len(found) > limit else None)
