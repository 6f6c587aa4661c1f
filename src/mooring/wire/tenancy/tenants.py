"""Tenants as they travel: domains, projects, members, keypairs, policies, access to pools, and what admins did."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mooring.wire.fields import INT32_MAX, UNSHOWN, Answer, Name, Request, ShortText

PolicyName = Name | Literal[""]
"""A policy's name; "" for none."""
Scope = Literal["all", "work", "read"]


class DomainRequest(Request):
    name: Name


class TenantChange(Request):
    """Only what is given changes; `policy` "" takes the policy away."""

    active: bool | None = None
    policy: PolicyName | None = None


class DomainView(Answer):
    name: str
    active: bool
    policy: str | None
    created_at: datetime
    version: int


class ProjectRequest(Request):
    name: Name
    domain: Name | None = None
    """None: the domain of the one who asks."""


class ProjectView(Answer):
    name: str
    domain: str
    active: bool
    policy: str | None
    members: int
    created_at: datetime
    version: int


class MemberRequest(Request):
    username: Name
    role: Literal["project-admin", "user"] = "user"


class MemberView(Answer):
    username: str
    role: str
    active: bool
    created_at: datetime


class KeypairRequest(Request):
    user: Name | None = None
    """None: the one who asks."""
    project: Name | None = None
    """One that the user is a member of; None: its default project."""
    name: Name | None = None
    scope: Scope = "all"
    """`read`: only looking; `work`: also handing in and ending work of one's own; `all`: whatever the user may do."""
    expires_in_seconds: Annotated[int, Field(ge=60, le=10 * 366 * 86400)] | None = None
    """None: never."""


class KeypairChange(TenantChange):
    scope: Scope | None = None


class KeypairView(Answer):
    access_key: str
    name: str | None
    user: str
    domain: str
    project: str
    active: bool
    scope: str
    has_secret: bool
    """Without one it cannot be used to log in: it carries the work that its user hands in after a login."""
    expires_at: datetime | None
    last_used_at: datetime | None
    policy: str | None
    created_at: datetime
    version: int


class KeypairCreated(KeypairView):
    secret: Annotated[str, UNSHOWN]
    """Shown in this answer only."""


class PolicyRequest(Request):
    name: Name
    rules: Annotated[dict[ShortText, Any], Field(max_length=64)] = {}


class PolicyChange(Request):
    """The rules that are given take the place of those of the same name."""

    rules: Annotated[dict[ShortText, Any], Field(min_length=1, max_length=64)]


class PolicyView(Answer):
    name: str
    rules: dict[str, Any]
    """Those that differ from the default."""
    carriers: int
    """How many keypairs, users, projects and domains carry it."""
    created_at: datetime
    version: int


class RevertRequest(Request):
    version: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    """The version to go back to; None: the one before the present."""


class PoolAccessRequest(Request):
    """One tenant: a keypair, a project (of one's own domain or of `domain`), or a whole domain."""

    keypair: Annotated[ShortText, Field(min_length=1)] | None = None
    project: Name | None = None
    domain: Name | None = None

    @model_validator(mode="after")
    def _one_tenant(self) -> PoolAccessRequest:
        if (self.keypair is None) == (self.project is None and self.domain is None):
            raise ValueError("name a keypair, a project or a domain")
        return self


class PoolAccessView(Answer):
    scope: Literal["keypair", "user", "project", "domain"]
    tenant: str
    name: str


class ActionView(Answer):
    """One change by an administrator, as it was recorded with it."""

    id: int
    at: datetime
    username: str
    address: str | None
    action: str
    noun: str
    object: str
    version: int | None
    """Of the object after the change."""
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ActionList(Answer):
    actions: list[ActionView]
    """The newest first."""
    next: int | None
    """Where older ones go on (`before`); None at the end."""
