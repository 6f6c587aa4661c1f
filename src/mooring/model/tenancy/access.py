"""Authorisation, decided only here. Objects that a principal may not see do not exist for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from mooring.model.errors import NotAllowed, NotFound
from mooring.model.tenancy.tenants import KeyScope, Principal, Role


class Action(StrEnum):
    SEE_WORK = "see work"
    """A workload, its history, output, explanation and events."""
    CHANGE_WORK = "change work"
    ENTER_WORK = "enter work"
    """Run commands in its tasks, reach their ports, read and write their files."""
    SUBMIT = "hand in work"
    BOOK = "book capacity"
    SEE_BOOKING = "see a booking"
    CHANGE_BOOKING = "change or cancel a booking"
    MAINTAIN = "take nodes for maintenance"
    SEE_DOMAIN = "see a domain"
    CHANGE_DOMAIN = "change domains"
    SEE_PROJECT = "see a project"
    CHANGE_PROJECT = "change projects"
    SEE_MEMBERS = "see the members of a project"
    CHANGE_MEMBERS = "change the members of a project"
    SEE_SECRETS = "see which secrets and registry logins a project has"
    CHANGE_SECRETS = "change the secrets and registry logins of a project"
    SEE_VOLUMES = "see volumes"
    CHANGE_VOLUMES = "make and remove volumes"
    SEE_USER = "see users"
    CHANGE_USER = "change users"
    MAP_ACCOUNT = "choose the OS account that a user's processes run as"
    SEE_KEYPAIR = "see a keypair"
    CHANGE_KEYPAIR = "change keypairs"
    SEE_LOGIN = "see a login"
    END_LOGIN = "end logins"
    SEE_QUOTA = "see a quota and its use"
    CHANGE_QUOTA = "change quotas"
    SEE_CLUSTER = "see pools and nodes"
    SEE_POOL_ACCESS = "see who may use a pool"
    SEE_SCALING = "see the scaling of pools"
    CHANGE_POOLS = "change pools and who may use them"
    CHANGE_NODES = "change nodes and let new ones join"
    SEE_QUARANTINE = "see tasks that the database does not know"
    END_QUARANTINED = "end tasks that the database does not know"
    SEE_POLICIES = "see policies"
    CHANGE_POLICIES = "change policies and their assignment"
    SEE_ACTIONS = "see administrative actions"
    SEE_AUDIT = "audit the books"
    REPAIR = "repair the books"
    OPERATE = "change the leader and request a pass"


class _Relation(StrEnum):
    """The relation of a principal to a target."""

    DOMAIN_ADMIN = "admin of its domain"
    PROJECT_ADMIN = "admin of its project"
    OWNER = "its owner"
    MEMBER = "one who belongs to it"
    ANYBODY = "anybody"


_WORK = frozenset({_Relation.DOMAIN_ADMIN, _Relation.PROJECT_ADMIN, _Relation.OWNER})
_NOBODY: frozenset[_Relation] = frozenset()
# Admins may do all of it.
_GRANTED: dict[Action, frozenset[_Relation]] = {
    Action.SEE_WORK: _WORK,
    Action.CHANGE_WORK: _WORK,
    Action.ENTER_WORK: _WORK,
    Action.SUBMIT: frozenset({_Relation.OWNER}),
    Action.BOOK: frozenset({_Relation.OWNER}),
    Action.SEE_BOOKING: _WORK,
    Action.CHANGE_BOOKING: _WORK,
    Action.MAINTAIN: _NOBODY,
    Action.SEE_DOMAIN: frozenset({_Relation.DOMAIN_ADMIN, _Relation.MEMBER}),
    Action.CHANGE_DOMAIN: _NOBODY,
    Action.SEE_PROJECT: frozenset({_Relation.DOMAIN_ADMIN, _Relation.PROJECT_ADMIN, _Relation.MEMBER}),
    Action.CHANGE_PROJECT: frozenset({_Relation.DOMAIN_ADMIN}),
    Action.SEE_MEMBERS: frozenset({_Relation.DOMAIN_ADMIN, _Relation.PROJECT_ADMIN}),
    Action.CHANGE_MEMBERS: frozenset({_Relation.DOMAIN_ADMIN, _Relation.PROJECT_ADMIN}),
    Action.SEE_SECRETS: frozenset({_Relation.DOMAIN_ADMIN, _Relation.PROJECT_ADMIN, _Relation.MEMBER}),
    Action.CHANGE_SECRETS: frozenset({_Relation.DOMAIN_ADMIN, _Relation.PROJECT_ADMIN}),
    Action.SEE_VOLUMES: frozenset({_Relation.DOMAIN_ADMIN, _Relation.PROJECT_ADMIN, _Relation.MEMBER}),
    Action.CHANGE_VOLUMES: _WORK,
    Action.SEE_USER: frozenset({_Relation.DOMAIN_ADMIN, _Relation.OWNER}),
    Action.CHANGE_USER: frozenset({_Relation.DOMAIN_ADMIN}),
    # Accounts are those of the machines, which belong to no domain.
    Action.MAP_ACCOUNT: _NOBODY,
    Action.SEE_KEYPAIR: frozenset({_Relation.DOMAIN_ADMIN, _Relation.OWNER}),
    Action.CHANGE_KEYPAIR: frozenset({_Relation.DOMAIN_ADMIN, _Relation.OWNER}),
    Action.SEE_LOGIN: frozenset({_Relation.DOMAIN_ADMIN, _Relation.OWNER}),
    Action.END_LOGIN: frozenset({_Relation.DOMAIN_ADMIN, _Relation.OWNER}),
    Action.SEE_QUOTA: frozenset({_Relation.DOMAIN_ADMIN, _Relation.PROJECT_ADMIN, _Relation.OWNER, _Relation.MEMBER}),
    Action.CHANGE_QUOTA: frozenset({_Relation.DOMAIN_ADMIN}),
    Action.SEE_CLUSTER: frozenset({_Relation.ANYBODY}),
    Action.SEE_POOL_ACCESS: _NOBODY,
    Action.SEE_SCALING: _NOBODY,
    Action.CHANGE_POOLS: _NOBODY,
    Action.CHANGE_NODES: _NOBODY,
    Action.SEE_QUARANTINE: _NOBODY,
    Action.END_QUARANTINED: _NOBODY,
    Action.SEE_POLICIES: _NOBODY,
    Action.CHANGE_POLICIES: _NOBODY,
    Action.SEE_ACTIONS: _NOBODY,
    Action.SEE_AUDIT: _NOBODY,
    Action.REPAIR: _NOBODY,
    Action.OPERATE: _NOBODY,
}
# Without the second there is nothing to refuse: an object that a user may not see does not exist for that user.
_SEEING = {
    Action.CHANGE_WORK: Action.SEE_WORK,
    Action.ENTER_WORK: Action.SEE_WORK,
    Action.CHANGE_BOOKING: Action.SEE_BOOKING,
    Action.CHANGE_DOMAIN: Action.SEE_DOMAIN,
    Action.CHANGE_PROJECT: Action.SEE_PROJECT,
    Action.SEE_MEMBERS: Action.SEE_PROJECT,
    Action.CHANGE_MEMBERS: Action.SEE_PROJECT,
    Action.SEE_SECRETS: Action.SEE_PROJECT,
    Action.CHANGE_SECRETS: Action.SEE_PROJECT,
    Action.CHANGE_USER: Action.SEE_USER,
    Action.CHANGE_KEYPAIR: Action.SEE_KEYPAIR,
    Action.END_LOGIN: Action.SEE_LOGIN,
    Action.CHANGE_QUOTA: Action.SEE_QUOTA,
}
_READING = frozenset(action for action in Action if action.name.startswith("SEE_"))
_WORKING = frozenset(
    {
        Action.SUBMIT,
        Action.CHANGE_WORK,
        Action.ENTER_WORK,
        Action.BOOK,
        Action.CHANGE_BOOKING,
        Action.CHANGE_VOLUMES,
    }
)
"""The actions that a keypair of scope `work` allows on its user's own objects."""
_IMPERSONATING = frozenset({Action.CHANGE_USER, Action.CHANGE_KEYPAIR})


@dataclass(frozen=True, slots=True)
class Target:
    """The object of an action, by the tenants that it belongs to; None if it belongs to no single one."""

    domain_id: UUID | None = None
    project_id: UUID | None = None
    user_id: UUID | None = None
    role: Role | None = None
    """The present or the new role of the user that is changed."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The work that lists and feeds may show: all, or that of a domain, of some projects or of one user."""

    everything: bool = False
    domain_id: UUID | None = None
    project_ids: frozenset[UUID] = frozenset()
    user_id: UUID | None = None
    within: UUID | None = None
    """Only the user's work in this project."""

    def shows(self, target: Target) -> bool:
        own = self.user_id is not None and target.user_id == self.user_id
        return (
            self.everything
            or (self.domain_id is not None and target.domain_id == self.domain_id)
            or target.project_id in self.project_ids
            or (own and self.within in (None, target.project_id))
        )

    @property
    def of_others(self) -> bool:
        return self.everything or self.domain_id is not None or bool(self.project_ids)


EVERYTHING = Sight(everything=True)


def sight(principal: Principal) -> Sight:
    """Return the visible work as one filter, equivalent to `may` for each workload."""
    if principal.by_keypair:
        of_others = principal.role is not Role.USER or principal.project_id in principal.administers
        projects = frozenset({principal.project_id}) if of_others else frozenset()
        return replace(own_work(principal), project_ids=projects)
    if principal.is_admin:
        return EVERYTHING
    domain_id = principal.domain_id if principal.role is Role.DOMAIN_ADMIN else None
    return Sight(False, domain_id, principal.administers, principal.user_id)


def own_work(principal: Principal) -> Sight:
    return Sight(user_id=principal.user_id, within=principal.project_id if principal.by_keypair else None)


def own(principal: Principal) -> Target:
    """Return the filter for the principal's own work."""
    return Target(principal.domain_id, principal.project_id, principal.user_id)


def may(principal: Principal, action: Action, target: Target) -> bool:
    if principal.by_keypair and not _within_keypair(principal, action, target):
        return False
    granted = principal.is_admin or not _GRANTED[action].isdisjoint(_relations(principal, action, target))
    if principal.scope is KeyScope.READ:
        return granted and action in _READING
    if principal.scope is KeyScope.WORK and action not in _READING:
        return granted and action in _WORKING and target.user_id == principal.user_id
    return granted


def _within_keypair(principal: Principal, action: Action, target: Target) -> bool:
    """A keypair acts only in its own project and never obtains a wider credential:
    it cannot set passwords, and manages only keypairs of its own user.
    """
    if target.project_id not in (None, principal.project_id):
        return False
    if action is Action.CHANGE_KEYPAIR:
        return target.user_id == principal.user_id
    return action is not Action.CHANGE_USER


def require(principal: Principal, action: Action, target: Target | None = None) -> None:
    """Raise NotAllowed unless the principal may do it; without a target, to its own objects."""
    if not may(principal, action, target or own(principal)):
        raise _refused(principal, action)


def require_visible(principal: Principal, action: Action, target: Target, what: str) -> None:
    """As `require`, but raise NotFound if the principal may not even see the object."""
    if not may(principal, _SEEING.get(action, action), target):
        raise not_there(what)
    require(principal, action, target)


def not_there(what: str) -> NotFound:
    """Return the same error for objects that do not exist and for those that may not be seen.

    `what` begins with the noun of the object, such as `pool 'main'`; clients find the noun in the details.
    """
    noun, _, name = what.partition(" ")
    return NotFound(f"there is no {what}", details={"noun": noun, "name": name.strip("'\"")})


def _relations(principal: Principal, action: Action, target: Target) -> set[_Relation]:
    found = {_Relation.ANYBODY}
    if principal.role is Role.DOMAIN_ADMIN and target.domain_id == principal.domain_id:
        # To reset the password of an admin, or to make it a keypair, would be to become one; its logins are not theirs.
        over_admin = target.role is Role.ADMIN and (action in _IMPERSONATING or action is Action.END_LOGIN)
        of_the_domain_itself = action is Action.CHANGE_QUOTA and target.project_id is None and target.user_id is None
        if not over_admin and not of_the_domain_itself:
            found.add(_Relation.DOMAIN_ADMIN)
    if target.project_id in principal.administers:
        found.add(_Relation.PROJECT_ADMIN)
    if target.user_id is not None:
        if target.user_id == principal.user_id:
            found.add(_Relation.OWNER)
    elif target.project_id is not None:
        if target.project_id in principal.projects:
            found.add(_Relation.MEMBER)
    elif target.domain_id == principal.domain_id:
        found.add(_Relation.MEMBER)
    return found


def _refused(principal: Principal, action: Action) -> NotAllowed:
    if principal.by_keypair and action in _IMPERSONATING and principal.scope is KeyScope.ALL:
        return NotAllowed(
            f"a keypair may not {action} of others, since it could obtain a wider credential: log in by password",
            code="keypair-scope",
        )
    if principal.scope is not KeyScope.ALL:
        return NotAllowed(
            f"this keypair has the scope '{principal.scope}' and may not {action};"
            " use one with the scope 'all', or log in",
            code="keypair-scope",
        )
    return NotAllowed(f"you may not {action}; your role is {principal.role}")
