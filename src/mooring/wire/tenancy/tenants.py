"""Schemas of tenants: domains, projects, members, keypairs, policies, access to pools, and admin actions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, model_validator

from mooring.wire.fields import (
    INT32_MAX,
    TAKES_AWAY,
    UNSHOWN,
    Answer,
    Name,
    Quantity,
    Request,
    ShortText,
    SlotName,
)

PolicyName = Name | Literal[""]
"""A policy's name; "" for none."""
Scope = Literal["all", "work", "read"]
RuleNumber = Annotated[int, Field(ge=0, le=INT32_MAX)]


class DomainRequest(Request):
    name: Name


class TenantChange(Request):
    """Only the given fields change; `policy` null or "" removes the policy."""

    active: bool | None = None
    policy: Annotated[PolicyName | None, TAKES_AWAY] = None


class DomainView(Answer):
    name: str
    active: bool
    policy: str | None
    created_at: datetime
    version: int


class ProjectRequest(Request):
    name: Name
    domain: Name | None = None
    """None: the domain of the caller."""


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
    """None: the caller."""
    project: Name | None = None
    """One that the user is a member of; None: its default project."""
    name: Name | None = None
    scope: Scope = "all"
    """`read`: read only; `work`: also submit and end the user's own work; `all`: everything the user may do."""
    expires_in_seconds: Annotated[int, Field(ge=60, le=10 * 366 * 86400)] | None = None
    """None: never, or with the keypair that created it, if that one expires."""


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
    """Without one it cannot be used to log in: it only owns the work that its user submits after a login."""
    expires_at: datetime | None
    last_used_at: datetime | None
    unused_since: datetime | None = None
    """The last use, or the creation if it was never used; None without a secret."""
    parent_key: str | None = None
    """The keypair that created it: it allows no more than that one, and ends with it."""
    policy: str | None
    created_at: datetime
    version: int


class KeypairCreated(KeypairView):
    secret: Annotated[str, UNSHOWN]
    """Shown in this answer only."""


class PolicyRules(Request):
    """The rules that a policy can set. A rule that is not set is inherited; null is no limit.

    Requests carry rules as a mapping, which the server checks, so that an unknown rule is answered with the known ones.
    """

    limits: dict[SlotName, Quantity] | None = Field(
        None, description="Maximum amount of a slot in use at once; replaces all limits."
    )
    unspecified: Literal["unlimited", "limited"] | None = Field(
        None, description="Meaning of a slot without a limit: any amount, or none (default unlimited)."
    )
    max_sessions: RuleNumber | None = Field(
        None, description="Maximum number of workloads on nodes at once; 0 is no limit."
    )
    max_private_sessions: RuleNumber | None = Field(
        None, description="Maximum number of private workloads on nodes at once; 0 is no limit."
    )
    max_pending_tasks: RuleNumber | None = Field(
        None,
        description=(
            "Maximum number of pending tasks; 0 is no limit (default 50000 for a user, 100000 for a project)."
        ),
    )
    max_pending: RuleNumber | None = Field(None, description="Maximum number of pending workloads; 0 is no limit.")
    max_pending_slots: dict[SlotName, Quantity] | None = Field(
        None, description="Maximum amount of a slot that pending workloads request."
    )
    max_priority: RuleNumber | None = Field(None, description="Maximum priority; 0 is no limit.")
    max_tasks: RuleNumber | None = Field(
        None, description="Maximum number of tasks of a workload that is not an array; 0 is no limit."
    )
    max_array_size: RuleNumber | None = Field(
        None, description="Maximum number of tasks of an array; 0 is no limit (default 10000)."
    )
    default_time_seconds: RuleNumber | None = Field(
        None, description="Time limit of work that does not set one; 0 is no limit."
    )
    max_time_seconds: RuleNumber | None = Field(None, description="Maximum time limit; 0 is no limit.")
    booking_horizon_seconds: RuleNumber | None = Field(
        None, description="Maximum time until the start of a booking; 0 is no limit."
    )
    max_booking_seconds: RuleNumber | None = Field(None, description="Maximum duration of a booking; 0 is no limit.")
    max_bookings: RuleNumber | None = Field(
        None, description="Maximum number of unfinished bookings of a user; 0 is no limit (default 20000)."
    )
    max_booking_slot_hours: dict[SlotName, Quantity] | None = Field(
        None, description="Maximum amount of a slot times hours in unfinished bookings of a user."
    )
    rights: list[Literal["private", "system", "designate"]] | None = Field(
        None, description="Right to submit private or system sessions or to designate nodes; replaces all rights."
    )


class PolicyRequest(Request):
    name: Name
    rules: Annotated[
        dict[ShortText, Any], Field(max_length=64), WithJsonSchema(PolicyRules.model_json_schema(), mode="validation")
    ] = {}


class PolicyChange(Request):
    """The given rules replace those of the same name; the value `inherit` unsets a rule."""

    rules: Annotated[dict[ShortText, Any], Field(min_length=1, max_length=64)]


class PolicyView(Answer):
    name: str
    rules: dict[str, Any]
    """Those that it sets; all others are inherited."""
    carriers: int
    """The number of keypairs, users, projects and domains that have it."""
    created_at: datetime
    version: int


class RevertRequest(Request):
    version: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    """The version to revert to; None: the previous one."""


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
    """One recorded change by an administrator."""

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
    """The value of `before` for the next page of older actions; None on the last page."""
