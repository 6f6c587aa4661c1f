"""The simulation can fail: each test removes one safeguard, and a schedule soon detects it."""

import re
from collections.abc import Iterable
from typing import Any

import pytest

from mooring.model.workloads.lifetime import retries
from mooring.store.commit import exit_policy
from mooring.store.control import leadership
from mooring.store.workloads import idempotency, stopping
from tests.fault_schedules import schedules
from tests.fault_schedules.world import Prepared

MOST = 200
"""The number of schedules to try. About one in thirty needs a given safeguard."""


def first_violation(prepared: Prepared) -> str:
    for seed in range(MOST):
        if violations := schedules.run(prepared, seed).violations:
            return violations[0]
    return "none"


def test_a_deposed_leader_that_may_write_is_found(prepared: Prepared, monkeypatch: pytest.MonkeyPatch):
    async def unchecked(_connection: Any, _term: int) -> None:
        return None

    monkeypatch.setattr(leadership, "fence", unchecked)
    assert "wrote with term" in first_violation(prepared)


@pytest.mark.slow
def test_a_repeated_submission_that_is_not_idempotent_is_found(prepared: Prepared, monkeypatch: pytest.MonkeyPatch):
    def forgotten(_keys: Iterable[Any], _rows: Iterable[Any]) -> dict[Any, Any]:
        return {}

    monkeypatch.setattr(idempotency, "by_key", forgotten)
    assert first_violation(prepared) != "none"


def test_freeing_the_tasks_of_a_silent_node_is_found(prepared: Prepared, monkeypatch: pytest.MonkeyPatch):
    mark_lost = stopping.mark_lost

    def freeing(*task: Any, freed: bool) -> Any:
        return mark_lost(*task, freed=True)

    monkeypatch.setattr(stopping, "mark_lost", freeing)
    assert "is free and still there" in first_violation(prepared)


@pytest.mark.slow
def test_a_retry_too_many_is_found(prepared: Prepared, monkeypatch: pytest.MonkeyPatch):
    def lenient(*end: Any, max_retries: int, **task: Any) -> bool:
        return retries.is_retried(*end, max_retries=max_retries + 1, **task)

    monkeypatch.setattr(exit_policy, "is_retried", lenient)
    assert re.search(r"failed \d+ times, with \d+ retries", first_violation(prepared))
