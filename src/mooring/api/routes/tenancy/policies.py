"""Policies, for admins: rights and limits of tenants."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from mooring.api.auth.request_access import Served, named, needs
from mooring.api.middleware.errors import problems
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.policies import parse_policy, policy_rules
from mooring.model.tenancy.tenants import Principal
from mooring.store.core.engine import Connection
from mooring.store.tenancy import policies
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.policies import NamedPolicy
from mooring.wire.tenancy.tenants import (
    PolicyChange,
    PolicyRequest,
    PolicyView,
    RevertRequest,
)

router = APIRouter(prefix="/api/policies", tags=["tenants"], responses=problems(401, 403, 422, 503))

Reader = Annotated[Principal, needs(Action.SEE_POLICIES)]
Admin = Annotated[Principal, needs(Action.CHANGE_POLICIES)]


@router.post("", status_code=201, operation_id="create_policy", responses=problems(409))
async def create_policy(services: Served, admin: Admin, new: PolicyRequest) -> PolicyView:
    """Create a policy. It applies to the tenants that have it."""
    policy = parse_policy(new.rules)
    made = await services.database.write(
        lambda c: policies.create(c, new.name, policy, actor=Actor.of(admin), now=services.now())
    )
    return _view(made)


@router.get("", operation_id="list_policies")
async def list_policies(services: Served, _reader: Reader) -> list[PolicyView]:
    async with services.database.read() as connection:
        return [_view(policy) for policy in await policies.every(connection)]


@router.get("/{name}", operation_id="get_policy", responses=problems(404))
async def get_policy(services: Served, _reader: Reader, name: str) -> PolicyView:
    async with services.database.read() as connection:
        return _view(await policies.find(connection, named("policy", name)))


@router.patch("/{name}", operation_id="change_policy", responses=problems(404, 409))
async def change_policy(services: Served, admin: Admin, name: str, change: PolicyChange) -> PolicyView:
    """Change some rules of a policy. Lowering a limit below the current usage stops nothing."""
    named("policy", name)

    async def work(connection: Connection) -> NamedPolicy:
        await policies.lock(connection, name)
        present = await policies.find(connection, name)
        policy = parse_policy({**policy_rules(present.policy), **change.rules})
        return await policies.change(connection, name, policy, actor=Actor.of(admin), now=services.now())

    return _view(await services.database.write(work))


@router.post("/{name}/revert", operation_id="revert_policy", responses=problems(404, 409))
async def revert_policy(services: Served, admin: Admin, name: str, request: RevertRequest) -> PolicyView:
    """Restore the rules of an earlier version of a policy, as a new version."""
    named("policy", name)
    reverted = await services.database.write(
        lambda c: policies.revert(c, name, request.version, actor=Actor.of(admin), now=services.now())
    )
    return _view(reverted)


@router.delete("/{name}", status_code=204, operation_id="remove_policy", responses=problems(404, 409))
async def remove_policy(services: Served, admin: Admin, name: str) -> None:
    """Remove a policy that no tenant has."""
    named("policy", name)
    await services.database.write(lambda c: policies.remove(c, name, actor=Actor.of(admin), now=services.now()))


def _view(found: NamedPolicy) -> PolicyView:
    return PolicyView(
        name=found.name,
        rules=policy_rules(found.policy),
        carriers=found.carriers,
        created_at=found.created_at,
        version=found.version,
    )
