"""The table of rules in docs/how-to/tenants.md, row by row: which policy speaks, and what holds where none does."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mooring import clock
from mooring.model.tenancy.policies import (
    EACH_LEVEL,
    NO_POLICY,
    PENDING_TASKS,
    RULES,
    Policy,
    max_pending_tasks,
    parse_policy,
)
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.store.core.engine import Database
from mooring.store.tenancy import (
    domains,
    keypairs,
    policies,
    projects,
    quotas,
    users,
)
from tests.store.databases import on_sqlite
from tests.store.harness import Harness
from tests.store.tenant_builders import ACTOR, make_user

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "tenants.md"
NOW = clock.now()
AMOUNTS = {"limits", "max_pending_slots", "max_booking_slot_hours"}
SLOTS = {"max_sessions": "sessions", "max_private_sessions": "private-sessions"}


class Row(NamedTuple):
    rule: str
    holds: str
    default: str


def table() -> list[Row]:
    lines = PAGE.read_text().splitlines()
    start = lines.index("| rule | holds | default | meaning |") + 2
    cells = [line.split("|") for line in lines[start : lines.index("", start)]]
    return [Row(rule.strip(" `"), holds.strip(), default.strip(" `")) for _, rule, holds, default, *_ in cells]


def value(rule: str, number: int) -> Any:
    if rule in AMOUNTS:
        return {"cpu": number}
    if rule == "rights":
        return [["system"], ["designate", "private"]][number % 2]
    return ["limited", "unlimited"][number % 2] if rule == "unspecified" else number


def other(rule: str) -> dict[str, Any]:
    """A rule that has nothing to do with this one."""
    return {"max_priority": 3} if rule != "max_priority" else {"max_bookings": 3}


def shown(rule: str, default: Any) -> str:
    if rule == "max_pending_tasks":
        return ", ".join(f"{limit} of a {scope}" for scope, limit in PENDING_TASKS.items())
    if default in (None, {}):
        return "unlimited"
    return "none" if default == frozenset() else str(default)


def test_the_table_has_every_rule_once():
    assert [row.rule for row in table()] == list(RULES)


@pytest.mark.parametrize("row", table(), ids=lambda row: row.rule)
def test_a_rule_that_no_policy_sets_is_the_default_with_and_without_a_policy(row: Row):
    only_other = parse_policy(other(row.rule))
    assert getattr(only_other, row.rule) == getattr(NO_POLICY, row.rule)
    assert shown(row.rule, getattr(NO_POLICY, row.rule)) == row.default


@pytest.mark.parametrize("row", [row for row in table() if row.holds == "innermost"], ids=lambda row: row.rule)
async def test_the_innermost_policy_that_sets_a_rule_speaks(database: Database, row: Row):
    access_key = await carried(
        database, domain={row.rule: value(row.rule, 1)}, user=other(row.rule), keypair=other(row.rule)
    )

    async def speaking() -> Any:
        async with database.read() as connection:
            return getattr((await policies.policy_of(connection, access_key)).effective, row.rule)

    def as_read(written: Any) -> Any:
        return getattr(parse_policy({row.rule: written}), row.rule)

    assert await speaking() == as_read(value(row.rule, 1))
    await change(database, "of-user", {**other(row.rule), row.rule: value(row.rule, 2)})
    assert await speaking() == as_read(value(row.rule, 2))
    nothing: Any = [] if row.rule == "rights" else {} if row.rule in AMOUNTS else None
    await change(database, "of-keypair", {**other(row.rule), row.rule: nothing})
    assert await speaking() == as_read(nothing)
    await change(database, "of-keypair", {**other(row.rule), row.rule: "inherit"})
    assert await speaking() == as_read(value(row.rule, 2))


@on_sqlite
@pytest.mark.parametrize("row", [row for row in table() if row.holds == "each level"], ids=lambda row: row.rule)
async def test_a_rule_of_each_level_holds_for_the_tenants_whose_policy_sets_it(harness: Harness, row: Row):
    assert row.rule in EACH_LEVEL
    if row.rule == "max_pending_tasks":
        limits = {scope: max_pending_tasks(scope, parse_policy({row.rule: 2})) for scope in Scope}
        assert limits == dict.fromkeys(Scope, 2)
        unset = {scope: max_pending_tasks(scope, parse_policy(other(row.rule))) for scope in Scope}
        assert unset == {scope: PENDING_TASKS.get(scope) for scope in Scope}
        return
    database = harness.database
    await harness.node("n1")  # of which the slots are known that a policy may leave out
    slot = SLOTS.get(row.rule, "cpu")
    expected = 0 if row.rule == "unspecified" else parse_policy({"limits": {slot: 2}}).limits[slot]
    await carried(database, domain={row.rule: value(row.rule, 2)}, user=other(row.rule))
    async with database.read() as connection:
        who = await users.find(connection, "ada")
        of_domain, of_user = Tenant(Scope.DOMAIN, str(who.domain_id)), Tenant(Scope.USER, str(who.id))
        found = await quotas.limits_of(connection, [of_domain, of_user], NOW)
    assert found[of_domain].amounts.get(slot) == expected
    assert found[of_user].amounts == {}


@on_sqlite
async def test_a_policy_that_sets_only_limits_leaves_private_sessions_alone(database: Database):
    await carried(database, user={"limits": {"cpu": 8}})
    async with database.read() as connection:
        of_user = Tenant(Scope.USER, str((await users.find(connection, "ada")).id))
        assert (await quotas.limits_of(connection, [of_user], NOW))[of_user].amounts == {"cpu": 8000}


@on_sqlite
async def test_rules_that_are_set_to_their_default_stay_set(database: Database):
    rules: dict[str, Any] = {"max_array_size": 10_000, "max_sessions": None, "rights": [], "max_pending_slots": {}}
    await carried(database, user=rules)
    async with database.read() as connection:
        stored = (await policies.find(connection, "of-user")).policy
    assert stored == parse_policy(rules)
    assert all(map(stored.sets, rules))
    assert replace(stored, explicit=frozenset()) == Policy()


async def carried(database: Database, **rules: dict[str, Any]) -> str:
    """A keypair of a new user, with a policy for each level that has rules."""
    user_id = await make_user(database, "ada", domain="research", project="vision")
    for level, written in rules.items():
        await create(database, f"of-{level}", written)
    async with database.read() as connection:
        access_key = (await keypairs.every(connection, user_id=user_id))[0].access_key

    async def carry(connection: Any) -> None:
        if "domain" in rules:
            await domains.change(connection, "research", policy="of-domain", actor=ACTOR, now=NOW)
        if "project" in rules:
            await projects.change(connection, "research", "vision", policy="of-project", actor=ACTOR, now=NOW)
        if "user" in rules:
            await users.change(connection, "ada", policy="of-user", actor=ACTOR, now=NOW)
        if "keypair" in rules:
            await keypairs.change(connection, access_key, policy="of-keypair", actor=ACTOR, now=NOW)

    await database.write(carry)
    return access_key


async def change(database: Database, name: str, rules: dict[str, Any]) -> None:
    await database.write(lambda c: policies.change(c, name, parse_policy(rules), actor=ACTOR, now=NOW))


async def create(database: Database, name: str, rules: dict[str, Any]) -> None:
    await database.write(lambda c: policies.create(c, name, parse_policy(rules), actor=ACTOR, now=NOW))
