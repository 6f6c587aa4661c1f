"""Authorisation: every role and action, on own, project, domain and foreign objects."""

from __future__ import annotations

from uuid import UUID

import pytest

from mooring.model.errors import NotAllowed, NotFound
from mooring.model.tenancy.access import (
    Action,
    Sight,
    Target,
    may,
    own,
    require,
    require_visible,
    sight,
)
from mooring.model.tenancy.tenants import KeyScope, Principal, Role

DOMAIN, OTHER_DOMAIN = UUID(int=1), UUID(int=2)
PROJECT, SISTER_PROJECT, FOREIGN_PROJECT = UUID(int=11), UUID(int=12), UUID(int=13)
ME, COLLEAGUE, NEIGHBOUR, STRANGER = UUID(int=21), UUID(int=22), UUID(int=23), UUID(int=24)


def principal(role: Role, *, scope: KeyScope = KeyScope.ALL) -> Principal:
    """A member of one project; as its admin the role is that of the membership."""
    administers = frozenset({PROJECT}) if role is Role.PROJECT_ADMIN else frozenset()
    of_user = Role.USER if role is Role.PROJECT_ADMIN else role
    return Principal(
        ME, "ada", of_user, DOMAIN, PROJECT, "AK", administers=administers, projects=frozenset({PROJECT}), scope=scope
    )


OF_A_USER = {
    "own": Target(DOMAIN, PROJECT, ME),
    "project": Target(DOMAIN, PROJECT, COLLEAGUE),
    "domain": Target(DOMAIN, SISTER_PROJECT, NEIGHBOUR),
    "foreign": Target(OTHER_DOMAIN, FOREIGN_PROJECT, STRANGER),
}
OF_A_PROJECT = {
    "own": Target(DOMAIN, PROJECT),
    "project": Target(DOMAIN, PROJECT),
    "domain": Target(DOMAIN, SISTER_PROJECT),
    "foreign": Target(OTHER_DOMAIN, FOREIGN_PROJECT),
}
OF_A_DOMAIN = {
    "own": Target(DOMAIN),
    "project": Target(DOMAIN),
    "domain": Target(DOMAIN),
    "foreign": Target(OTHER_DOMAIN),
}
OF_NOBODY = dict.fromkeys(OF_A_USER, Target())
ROLES = (Role.ADMIN, Role.DOMAIN_ADMIN, Role.PROJECT_ADMIN, Role.USER)

# What each role may do it to: o(wn), p(roject), d(omain), f(oreign).
TABLE = """
    action           admin  domain-admin  project-admin  user
    SEE_WORK         opdf   opd           op             o
    CHANGE_WORK      opdf   opd           op             o
    ENTER_WORK       opdf   opd           op             o
    SUBMIT           opdf   o             o              o
    BOOK             opdf   o             o              o
    SEE_BOOKING      opdf   opd           op             o
    CHANGE_BOOKING   opdf   opd           op             o
    CHANGE_VOLUMES   opdf   opd           op             o
    MAINTAIN         opdf   -             -              -
    SEE_USER         opdf   opd           o              o
    CHANGE_USER      opdf   opd           -              -
    MAP_ACCOUNT      opdf   -             -              -
    SEE_KEYPAIR      opdf   opd           o              o
    CHANGE_KEYPAIR   opdf   opd           o              o
    SEE_LOGIN        opdf   opd           o              o
    END_LOGIN        opdf   opd           o              o
    SEE_QUOTA        opdf   opd           op             o
    CHANGE_QUOTA     opdf   opd           -              -
    SEE_PROJECT      opdf   opd           op             op
    SEE_VOLUMES      opdf   opd           op             op
    CHANGE_PROJECT   opdf   opd           -              -
    SEE_MEMBERS      opdf   opd           op             -
    CHANGE_MEMBERS   opdf   opd           op             -
    SEE_SECRETS      opdf   opd           op             op
    CHANGE_SECRETS   opdf   opd           op             -
    SEE_DOMAIN       opdf   opd           opd            opd
    CHANGE_DOMAIN    opdf   -             -              -
    SEE_CLUSTER      opdf   opdf          opdf           opdf
    SEE_POOL_ACCESS  opdf   -             -              -
    CHANGE_POOLS     opdf   -             -              -
    CHANGE_NODES     opdf   -             -              -
    SEE_SCALING      opdf   -             -              -
    SEE_QUARANTINE   opdf   -             -              -
    END_QUARANTINED  opdf   -             -              -
    SEE_POLICIES     opdf   -             -              -
    CHANGE_POLICIES  opdf   -             -              -
    SEE_ACTIONS      opdf   -             -              -
    SEE_AUDIT        opdf   -             -              -
    REPAIR           opdf   -             -              -
    OPERATE          opdf   -             -              -
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()[1:]]
_PROJECTS = {Action.SEE_PROJECT, Action.CHANGE_PROJECT, Action.SEE_MEMBERS, Action.CHANGE_MEMBERS}
_PROJECTS |= {Action.SEE_SECRETS, Action.CHANGE_SECRETS, Action.SEE_VOLUMES}
_WORKING = {Action.SUBMIT, Action.CHANGE_WORK, Action.ENTER_WORK, Action.BOOK, Action.CHANGE_BOOKING}
_WORKING |= {Action.CHANGE_VOLUMES}
_DOMAINS = {Action.SEE_DOMAIN, Action.CHANGE_DOMAIN}


def targets(action: Action) -> dict[str, Target]:
    if action in _PROJECTS:
        return OF_A_PROJECT
    if action in _DOMAINS:
        return OF_A_DOMAIN
    of_the_cluster = action.name.endswith(
        ("CLUSTER", "POOLS", "NODES", "SCALING", "POLICIES", "ACTIONS", "AUDIT", "REPAIR", "OPERATE")
    )
    return OF_NOBODY if of_the_cluster else OF_A_USER


def test_the_table_names_every_action():
    assert [row[0] for row in ROWS if row[0] in Action.__members__] == [row[0] for row in ROWS]
    assert {row[0] for row in ROWS} == set(Action.__members__)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_role_may_do_what_the_table_says(row: list[str]):
    action = Action[row[0]]
    for role, letters in zip(ROLES, row[1:], strict=True):
        who = principal(role)
        allowed = "".join(name[0] for name, target in targets(action).items() if may(who, action, target))
        assert (role, allowed or "-") == (role, letters)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_keypair_for_looking_only_looks_and_one_for_work_works_for_its_owner_only(row: list[str]):
    action = Action[row[0]]
    for role in ROLES:
        for name, target in targets(action).items():
            allowed = may(principal(role), action, target)
            reads = action.name.startswith("SEE_")
            works = action in _WORKING and name == "own"
            assert may(principal(role, scope=KeyScope.READ), action, target) is (allowed and reads)
            assert may(principal(role, scope=KeyScope.WORK), action, target) is (allowed and (reads or works))


@pytest.mark.parametrize("role", ROLES)
def test_lists_show_exactly_the_work_that_may_be_seen(role: Role):
    who = principal(role)
    for target in (*OF_A_USER.values(), Target()):
        assert sight(who).shows(target) is may(who, Action.SEE_WORK, target)


def test_a_sight_of_nothing_shows_nothing_that_belongs_to_nobody():
    assert not Sight().shows(Target())
    assert not Sight(project_ids=frozenset({PROJECT}), user_id=ME).shows(Target())


@pytest.mark.parametrize("action", [Action.CHANGE_USER, Action.CHANGE_KEYPAIR])
def test_the_admin_of_a_domain_cannot_become_an_admin(action: Action):
    who = principal(Role.DOMAIN_ADMIN)
    assert may(who, action, Target(DOMAIN, user_id=COLLEAGUE, role=Role.DOMAIN_ADMIN))
    assert not may(who, action, Target(DOMAIN, user_id=COLLEAGUE, role=Role.ADMIN))


def test_the_admin_of_a_domain_does_not_set_the_quota_of_the_domain():
    who = principal(Role.DOMAIN_ADMIN)
    assert may(who, Action.CHANGE_QUOTA, Target(DOMAIN, PROJECT))
    assert not may(who, Action.CHANGE_QUOTA, Target(DOMAIN))


def test_invisible_objects_do_not_exist_and_forbidden_actions_are_refused():
    who = principal(Role.USER)
    with pytest.raises(NotFound, match="there is no project 'x'"):
        require_visible(who, Action.CHANGE_MEMBERS, OF_A_PROJECT["domain"], "project 'x'")
    with pytest.raises(NotAllowed, match="your role is user"):
        require_visible(who, Action.CHANGE_MEMBERS, OF_A_PROJECT["project"], "project 'x'")
    require_visible(principal(Role.PROJECT_ADMIN), Action.CHANGE_MEMBERS, OF_A_PROJECT["project"], "project 'x'")


def test_a_keypair_that_is_good_for_less_says_so():
    who = principal(Role.ADMIN, scope=KeyScope.READ)
    with pytest.raises(NotAllowed, match="has the scope 'read'") as refused:
        require(who, Action.SUBMIT, own(who))
    assert refused.value.code == "keypair-scope"
