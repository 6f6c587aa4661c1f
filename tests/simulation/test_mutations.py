"""The simulation can fail: each of these takes one safeguard away, and some schedule soon tells of it."""

from collections.abc import Iterable
from typing import Any

import pytest

from mooring.store import leadership, submissions
from tests.simulation import schedules
from tests.simulation.gate import Fate
from tests.simulation.world import Prepared

MOST = 80


def first_violation(prepared: Prepared, harm: str, fate: Fate) -> str:
    for seed in range(MOST):
        if violations := schedules.run(prepared, seed, [harm], [fate]).violations:
            return violations[0]
    return "none"


def test_a_deposed_leader_that_may_write_is_found(prepared: Prepared, monkeypatch: pytest.MonkeyPatch):
    async def unchecked(_connection: Any, _term: int) -> None:
        return None

    monkeypatch.setattr(leadership, "check_term", unchecked)
    assert "wrote with term" in first_violation(prepared, "freeze_server", Fate.SLOW)


def test_a_submission_that_counts_anew_when_its_answer_was_lost_is_found(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
):
    async def forgotten(_connection: Any, _keys: Iterable[Any]) -> dict[Any, Any]:
        return {}

    monkeypatch.setattr(submissions, "answered", forgotten)
    assert first_violation(prepared, "kill_server", Fate.LOST_ANSWER) != "none"
