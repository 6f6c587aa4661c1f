"""The simulation can fail: each of these takes one safeguard away, and some schedule soon tells of it."""

from collections.abc import Iterable
from typing import Any

import pytest

from mooring.store import leadership, submissions, workloads
from tests.simulation import schedules
from tests.simulation.world import Prepared

MOST = 200
"""Schedules that are tried: one of about thirty leads where a safeguard is needed."""


def first_violation(prepared: Prepared) -> str:
    for seed in range(MOST):
        if violations := schedules.run(prepared, seed).violations:
            return violations[0]
    return "none"


def test_a_deposed_leader_that_may_write_is_found(prepared: Prepared, monkeypatch: pytest.MonkeyPatch):
    async def unchecked(_connection: Any, _term: int) -> None:
        return None

    monkeypatch.setattr(leadership, "check_term", unchecked)
    assert "wrote with term" in first_violation(prepared)


def test_a_submission_that_counts_anew_when_its_answer_was_lost_is_found(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
):
    async def forgotten(_connection: Any, _keys: Iterable[Any]) -> dict[Any, Any]:
        return {}

    monkeypatch.setattr(submissions, "answered", forgotten)
    assert first_violation(prepared) != "none"


def test_silence_that_counts_as_proof_of_an_end_is_found(prepared: Prepared, monkeypatch: pytest.MonkeyPatch):
    losing = workloads.losing

    def freeing(*task: Any, freed: bool) -> Any:
        return losing(*task, freed=True)

    monkeypatch.setattr(workloads, "losing", freeing)
    assert "is free and still there" in first_violation(prepared)
