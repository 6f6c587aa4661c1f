"""Who may see and do what: the one place that decides. What a principal may not see does not exist for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from mooring.model.errors import NotAllowed, NotFound
from mooring.model.tenants import KeyScope, Principal, Role


class Action(StrEnum):
    SEE_WORK = "see work"
    """A workload, its history, output, explanation and events."""
    CHANGE_WORK = "change work"
    ENTER_WORK = "enter work"
    """Run commands in its tasks, reach their ports, read and write their files."""
    SUBMIT = "hand in work"
    BOOK = "book timeslots"
    SEE_BOOKING = "see a timeslot"
    CHANGE_BOOKING = "change or cancel a timeslot"
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
    MAP_ACCOUNT = "choose the account that a user's processes run as"
    SEE_KEYPAIR = "see a keypair"
    CHANGE_KEYPAIR = "change keypairs"
    SEE_QUOTA = "see a quota and its use"
    CHANGE_QUOTA = "change quotas"
    SEE_CLUSTER = "see pools and nodes"
    SEE_POOL_ACCESS = "see who may use a pool"
    SEE_SCALING = "see how pools grow and shrink"
    CHANGE_POOLS = "change pools and who may use them"
    CHANGE_NODES = "change nodes and let new ones join"
    SEE_QUARANTINE = "see tasks that the database does not know"
    END_QUARANTINED = "end tasks that the database does not know"
    SEE_POLICIES = "see policies"
    CHANGE_POLICIES = "change policies and who carries them"
    SEE_ACTIONS = "see what administrators did"
    SEE_AUDIT = "audit the books"
    REPAIR = "repair the books"
    OPERATE = "change who leads and ask for a pass"


class _Standing(StrEnum):
    """What a principal is to a target."""

    DOMAIN_ADMIN = "admin of its domain"
    PROJECT_ADMIN = "admin of its project"
    OWNER = "its owner"
    MEMBER = "one who belongs to it"
    ANYBODY = "anybody"


_WORK = frozenset({_Standing.DOMAIN_ADMIN, _Standing.PROJECT_ADMIN, _Standing.OWNER})
_NOBODY: frozenset[_Standing] = frozenset()
# Admins may do all of it.
_GRANTED: dict[Action, frozenset[_Standing]] = {
    Action.SEE_WORK: _WORK,
    Action.CHANGE_WORK: _WORK,
    Action.ENTER_WORK: _WORK,
    Action.SUBMIT: frozenset({_Standing.OWNER}),
    Action.BOOK: frozenset({_Standing.OWNER}),
    Action.SEE_BOOKING: _WORK,
    Action.CHANGE_BOOKING: _WORK,
    Action.MAINTAIN: _NOBODY,
    Action.SEE_DOMAIN: frozenset({_Standing.DOMAIN_ADMIN, _Standing.MEMBER}),
    Action.CHANGE_DOMAIN: _NOBODY,
    Action.SEE_PROJECT: frozenset({_Standing.DOMAIN_ADMIN, _Standing.PROJECT_ADMIN, _Standing.MEMBER}),
    Action.CHANGE_PROJECT: frozenset({_Standing.DOMAIN_ADMIN}),
    Action.SEE_MEMBERS: frozenset({_Standing.DOMAIN_ADMIN, _Standing.PROJECT_ADMIN}),
    Action.CHANGE_MEMBERS: frozenset({_Standing.DOMAIN_ADMIN, _Standing.PROJECT_ADMIN}),
    Action.SEE_SECRETS: frozenset({_Standing.DOMAIN_ADMIN, _Standing.PROJECT_ADMIN, _Standing.MEMBER}),
    Action.CHANGE_SECRETS: frozenset({_Standing.DOMAIN_ADMIN, _Standing.PROJECT_ADMIN}),
    Action.SEE_VOLUMES: frozenset({_Standing.DOMAIN_ADMIN, _Standing.PROJECT_ADMIN, _Standing.MEMBER}),
    Action.CHANGE_VOLUMES: _WORK,
    Action.SEE_USER: frozenset({_Standing.DOMAIN_ADMIN, _Standing.OWNER}),
    Action.CHANGE_USER: frozenset({_Standing.DOMAIN_ADMIN}),
    # Accounts are those of the machines, which belong to no domain.
    Action.MAP_ACCOUNT: _NOBODY,
    Action.SEE_KEYPAIR: frozenset({_Standing.DOMAIN_ADMIN, _Standing.OWNER}),
    Action.CHANGE_KEYPAIR: frozenset({_Standing.DOMAIN_ADMIN, _Standing.OWNER}),
    Action.SEE_QUOTA: frozenset({_Standing.DOMAIN_ADMIN, _Standing.PROJECT_ADMIN, _Standing.OWNER, _Standing.MEMBER}),
    Action.CHANGE_QUOTA: frozenset({_Standing.DOMAIN_ADMIN}),
    Action.SEE_CLUSTER: frozenset({_Standing.ANYBODY}),
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
# Without the second there is nothing to refuse: who may not see a thing is told that it does not exist.
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
"""What a keypair for work is good for, as far as it is its user's own."""
_IMPERSONATING = frozenset({Action.CHANGE_USER, Action.CHANGE_KEYPAIR})


@dataclass(frozen=True, slots=True)
class Target:
    """What something is done to, by the tenants that it belongs to; None where it belongs to no single one."""

    domain_id: UUID | None = None
    project_id: UUID | None = None
    user_id: UUID | None = None
    role: Role | None = None
    """Of the user that is changed, or that it is to get."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The work that lists and feeds may show: everything, or that of a domain, of some projects, of one user."""

    everything: bool = False
    domain_id: UUID | None = None
    project_ids: frozenset[UUID] = frozenset()
    user_id: UUID | None = None

    def shows(self, target: Target) -> bool:
        return (
            self.everything
            or (self.domain_id is not None and target.domain_id == self.domain_id)
            or target.project_id in self.project_ids
            or (self.user_id is not None and target.user_id == self.user_id)
        )

    @property
    def of_others(self) -> bool:
        return self.everything or self.domain_id is not None or bool(self.project_ids)


EVERYTHING = Sight(everything=True)


def sight(principal: Principal) -> Sight:
    """What `may` says of seeing work, for a whole list at once."""
    if principal.is_admin:
        return EVERYTHING
    domain_id = principal.domain_id if principal.role is Role.DOMAIN_ADMIN else None
    return Sight(False, domain_id, principal.administers, principal.user_id)


def own_work(principal: Principal) -> Sight:
    return Sight(user_id=principal.user_id)


def own(principal: Principal) -> Target:
    """What belongs to the principal itself."""
    return Target(principal.domain_id, principal.project_id, principal.user_id)


def may(principal: Principal, action: Action, target: Target) -> bool:
    granted = principal.is_admin or not _GRANTED[action].isdisjoint(_standings(principal, action, target))
    if principal.scope is KeyScope.READ:
        return granted and action in _READING
    if principal.scope is KeyScope.WORK and action not in _READING:
        return granted and action in _WORKING and target.user_id == principal.user_id
    return granted


def require(principal: Principal, action: Action, target: Target | None = None) -> None:
    """NotAllowed where the principal may not do it; without a target, to what is its own."""
    if not may(principal, action, target or own(principal)):
        raise _refused(principal, action)


def require_seen(principal: Principal, action: Action, target: Target, what: str) -> None:
    """As `require`, but NotFound where the principal may not even see `what` it would be done to."""
    if not may(principal, _SEEING.get(action, action), target):
        raise not_there(what)
    require(principal, action, target)


def not_there(what: str) -> NotFound:
    """The same words for what does not exist and for what may not be seen."""
    return NotFound(f"there is no {what}")


def _standings(principal: Principal, action: Action, target: Target) -> set[_Standing]:
    found = {_Standing.ANYBODY}
    if principal.role is Role.DOMAIN_ADMIN and target.domain_id == principal.domain_id:
        # To reset the password of an admin, or to make it a keypair, would be to become one.
        impersonates = action in _IMPERSONATING and target.role is Role.ADMIN
        of_the_domain_itself = action is Action.CHANGE_QUOTA and target.project_id is None and target.user_id is None
        if not impersonates and not of_the_domain_itself:
            found.add(_Standing.DOMAIN_ADMIN)
    if target.project_id in principal.administers:
        found.add(_Standing.PROJECT_ADMIN)
    if target.user_id is not None:
        if target.user_id == principal.user_id:
            found.add(_Standing.OWNER)
    elif target.project_id is not None:
        if target.project_id in principal.projects:
            found.add(_Standing.MEMBER)
    elif target.domain_id == principal.domain_id:
        found.add(_Standing.MEMBER)
    return found


def _refused(principal: Principal, action: Action) -> NotAllowed:
    if principal.scope is not KeyScope.ALL:
        good_for = "looking" if principal.scope is KeyScope.READ else "work of one's own"
        return NotAllowed(
            f"this keypair is good for {good_for} only, not to {action}; use one with the scope 'all', or log in",
            code="keypair-scope",
        )
    return NotAllowed(f"you may not {action}; your role is {principal.role}")
