"""Operations on tenants: domains, projects, keypairs, policies, access to pools, admin actions."""

from __future__ import annotations

from datetime import datetime

from mooring.client.operations.operation import Operation, given, segment
from mooring.wire.tenancy import tenants

# --- domains and projects -----------------------------------------------------------------------------------------


def domains() -> Operation[list[tenants.DomainView]]:
    """Those that the user may see."""
    return Operation("GET", "/api/domains", list[tenants.DomainView])


def domain(name: str) -> Operation[tenants.DomainView]:
    return Operation("GET", f"/api/domains/{segment(name)}", tenants.DomainView)


def create_domain(name: str) -> Operation[tenants.DomainView]:
    return Operation("POST", "/api/domains", tenants.DomainView, body=tenants.DomainRequest(name=name))


def change_domain(name: str, change: tenants.TenantChange) -> Operation[tenants.DomainView]:
    return Operation("PATCH", f"/api/domains/{segment(name)}", tenants.DomainView, body=change)


def remove_domain(name: str) -> Operation[None]:
    return Operation("DELETE", f"/api/domains/{segment(name)}", type(None))


def projects(*, domain: str | None = None) -> Operation[list[tenants.ProjectView]]:
    """Those that the user may see."""
    return Operation("GET", "/api/projects", list[tenants.ProjectView], query=given(domain=domain))


def project(name: str, *, domain: str | None = None) -> Operation[tenants.ProjectView]:
    """Of the user's own domain by default."""
    return Operation("GET", f"/api/projects/{segment(name)}", tenants.ProjectView, query=given(domain=domain))


def create_project(request: tenants.ProjectRequest) -> Operation[tenants.ProjectView]:
    return Operation("POST", "/api/projects", tenants.ProjectView, body=request)


def change_project(
    name: str, change: tenants.TenantChange, *, domain: str | None = None
) -> Operation[tenants.ProjectView]:
    path = f"/api/projects/{segment(name)}"
    return Operation("PATCH", path, tenants.ProjectView, query=given(domain=domain), body=change)


def remove_project(name: str, *, domain: str | None = None) -> Operation[None]:
    return Operation("DELETE", f"/api/projects/{segment(name)}", type(None), query=given(domain=domain))


def members(project: str, *, domain: str | None = None) -> Operation[list[tenants.MemberView]]:
    path = f"/api/projects/{segment(project)}/members"
    return Operation("GET", path, list[tenants.MemberView], query=given(domain=domain))


def add_member(
    project: str, request: tenants.MemberRequest, *, domain: str | None = None
) -> Operation[list[tenants.MemberView]]:
    """Also gives a member another role; the members afterwards."""
    path = f"/api/projects/{segment(project)}/members"
    return Operation("POST", path, list[tenants.MemberView], query=given(domain=domain), body=request)


def remove_member(project: str, username: str, *, domain: str | None = None) -> Operation[None]:
    path = f"/api/projects/{segment(project)}/members/{segment(username)}"
    return Operation("DELETE", path, type(None), query=given(domain=domain))


# --- keypairs -----------------------------------------------------------------------------------------------------


def keypairs(
    *, user: str | None = None, everyone: bool = False, unused_days: int | None = None
) -> Operation[list[tenants.KeypairView]]:
    """Return own keypairs, another user's, or all visible ones; with a duration, only those unused for that long."""
    query = given(user=user, everyone=everyone or None, unused_days=unused_days)
    return Operation("GET", "/api/keypairs", list[tenants.KeypairView], query=query)


def keypair(access_key: str) -> Operation[tenants.KeypairView]:
    return Operation("GET", f"/api/keypairs/{segment(access_key)}", tenants.KeypairView)


def create_keypair(request: tenants.KeypairRequest) -> Operation[tenants.KeypairCreated]:
    """The answer has the secret, which is shown this once."""
    return Operation("POST", "/api/keypairs", tenants.KeypairCreated, body=request)


def change_keypair(access_key: str, change: tenants.KeypairChange) -> Operation[tenants.KeypairView]:
    return Operation("PATCH", f"/api/keypairs/{segment(access_key)}", tenants.KeypairView, body=change)


def remove_keypair(access_key: str) -> Operation[None]:
    return Operation("DELETE", f"/api/keypairs/{segment(access_key)}", type(None))


# --- policies, access to pools, actions ---------------------------------------------------------------------------


def policies() -> Operation[list[tenants.PolicyView]]:
    return Operation("GET", "/api/policies", list[tenants.PolicyView])


def policy(name: str) -> Operation[tenants.PolicyView]:
    return Operation("GET", f"/api/policies/{segment(name)}", tenants.PolicyView)


def create_policy(request: tenants.PolicyRequest) -> Operation[tenants.PolicyView]:
    return Operation("POST", "/api/policies", tenants.PolicyView, body=request)


def change_policy(name: str, change: tenants.PolicyChange) -> Operation[tenants.PolicyView]:
    """Change the given rules of a policy."""
    return Operation("PATCH", f"/api/policies/{segment(name)}", tenants.PolicyView, body=change)


def revert_policy(name: str, *, version: int | None = None) -> Operation[tenants.PolicyView]:
    """Restore a version, by default the previous one."""
    body = tenants.RevertRequest(version=version)
    return Operation("POST", f"/api/policies/{segment(name)}/revert", tenants.PolicyView, body=body)


def remove_policy(name: str) -> Operation[None]:
    return Operation("DELETE", f"/api/policies/{segment(name)}", type(None))


def revert_pool(name: str, *, version: int | None = None) -> Operation[None]:
    """Restore the policy of a version, by default the previous one."""
    body = tenants.RevertRequest(version=version)
    return Operation("POST", f"/api/pools/{segment(name)}/revert", type(None), body=body)


def pool_access(pool: str) -> Operation[list[tenants.PoolAccessView]]:
    """The tenants with access to a pool that is not public."""
    return Operation("GET", f"/api/pools/{segment(pool)}/access", list[tenants.PoolAccessView])


def grant_pool_access(pool: str, request: tenants.PoolAccessRequest) -> Operation[None]:
    return Operation("POST", f"/api/pools/{segment(pool)}/access", type(None), body=request)


def revoke_pool_access(pool: str, request: tenants.PoolAccessRequest) -> Operation[None]:
    query = given(**request.model_dump())
    return Operation("DELETE", f"/api/pools/{segment(pool)}/access", type(None), query=query)


def actions(
    *,
    noun: str | None = None,
    object: str | None = None,
    since: datetime | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> Operation[tenants.ActionList]:
    """The actions of administrators, newest first."""
    at = None if since is None else since.isoformat()
    query = given(noun=noun, object=object, since=at, before=before, limit=limit)
    return Operation("GET", "/api/actions", tenants.ActionList, query=query)
