"""A workload that waiting cannot start says what has to change."""

from typing import Any

import pytest

from mooring.model.workloads.needed_change import needed_change


def reason(code: str, cure: str = "change", **details: Any) -> dict[str, Any]:
    return {"code": code, "message": "no", "by": "x", "cure": cure, "details": details}


def violation(requested: int, limit: int) -> dict[str, Any]:
    return {"slot": "cpu", "requested": requested * 1000, "limit": limit * 1000}


def test_a_request_above_its_limit_names_the_limit_once():
    found = reason("user-quota-exceeded", violations=[violation(5, 4), violation(5, 4)])
    assert needed_change(found) == "its cpu limit is raised, or it asks for less"


def test_a_request_above_every_node_names_the_slot():
    found = reason("insufficient-resources", lacking={"cpu": {"needs": 128_000, "largest": 64_000}})
    assert needed_change(found) == "its pool gets a node with more cpu, or it asks for less"


@pytest.mark.parametrize(
    "found",
    [
        None,
        reason("insufficient-resources", "release", lacking={"cpu": {"needs": 4000, "largest": 8000}}),
        reason("user-quota-exceeded", "release", violations=[violation(3, 4)]),
        reason("backing-off"),
        reason("dependencies-not-met"),
    ],
)
def test_a_reason_that_waiting_cures_needs_no_change(found: dict[str, Any] | None):
    assert needed_change(found) is None


def test_every_other_reason_names_a_change():
    assert needed_change(reason("node-not-ready")) == "a node of its pool becomes ready"
    assert needed_change(reason("a-plugin-of-ours", "never")) == "its request or the nodes of its pool change"
