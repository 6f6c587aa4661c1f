"""Policies as people write them: read exactly, written back the same, and rejected if invalid."""

from typing import Any

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.tenancy.policies import (
    NO_POLICY,
    Policy,
    Right,
    Unspecified,
    parse_policy,
    policy_rules,
)

RULES: dict[str, Any] = {
    "limits": {"cpu": "8", "memory": "64Gi", "sessions": "5"},
    "unspecified": "limited",
    "max_sessions": 10,
    "max_private_sessions": None,
    "max_pending_slots": {"gpu": "500m"},
    "max_priority": 50,
    "default_time_seconds": 3600,
    "max_time_seconds": 86400,
    "rights": ["designate", "private"],
}


def test_a_policy_is_read_in_base_units():
    policy = parse_policy(RULES)
    assert policy.limits == {"cpu": 8000, "memory": 64 * 2**30, "sessions": 5}
    assert policy.max_pending_slots == {"gpu": 500}
    assert policy.unspecified is Unspecified.LIMITED
    assert policy.rights == {Right.PRIVATE, Right.DESIGNATE}
    assert policy.max_private_sessions is None


def test_a_policy_that_is_written_back_reads_the_same():
    policy = parse_policy(RULES)
    assert parse_policy(policy_rules(policy)) == policy
    assert policy_rules(NO_POLICY) == {}
    assert parse_policy({}) == Policy()


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ({"max_cpus": 4}, "knows no 'max_cpus'; it knows: limits, unspecified, max_sessions"),
        ({"max_sessions": "5"}, "max_sessions: write a whole number"),
        ({"max_sessions": True}, "max_sessions: write a whole number"),
        ({"max_sessions": -1}, "max_sessions: write a whole number"),
        ({"max_sessions": 2**40}, "max_sessions: write a whole number"),
        ({"limits": []}, "limits: write slots with their amounts"),
        ({"limits": {"cpu": 1.5}}, "limits: write amounts"),
        ({"limits": {"cpu": "0.0001"}}, "cpu"),
        ({"limits": {"CPU!": 1}}, "not a slot name"),
        ({"rights": ["everything"]}, "'everything' is not one of private, system, designate"),
        ({"rights": "private"}, "rights: write a list"),
        ({"unspecified": None}, "not one of unlimited, limited"),
        ({"default_time_seconds": 60, "max_time_seconds": 30}, "60 is more than max_time_seconds, 30"),
    ],
)
def test_an_invalid_policy_is_rejected(rules: dict[str, Any], problem: str):
    with pytest.raises(InvalidInput, match=problem):
        parse_policy(rules)
