"""Metrics of the queue agree with each other and with the queue, and only the leader reports them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mooring.binding.binder import Binder
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.telemetry import metrics
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

pytestmark = on_sqlite


@pytest.fixture
async def loop(harness: Harness) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    yield loop
    loop.lose()
    loop.close()


def value(name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def test_length_ages_and_oldest_agree_with_the_queue_after_every_pass(harness: Harness, loop: SchedulingLoop):
    await harness.node("n", cpu=2)
    work = [await harness.submit(f"w{number}") for number in range(5)]
    await loop.once()
    assert [await harness.statuses(each) for each in work].count(["SCHEDULED"]) == 2
    assert value("mooring_queue_length") == 3
    assert value("mooring_queue_age", pool="default", le="+Inf") == 3
    oldest = value("mooring_queue_oldest_seconds")
    assert oldest is not None
    assert oldest > 0
    assert value("mooring_queue_age", pool="simulated", le="+Inf") == 0
    await harness.node("m", cpu=8)
    await loop.once()
    assert (value("mooring_queue_length"), value("mooring_queue_oldest_seconds")) == (0, 0)
    assert value("mooring_queue_age", pool="default", le="+Inf") == 0


async def test_a_pool_shows_what_is_allocated_of_what_is_allocatable(harness: Harness, loop: SchedulingLoop):
    await harness.node("n", cpu=8)
    await harness.submit("w", cpu=3)
    await loop.once()
    assert value("mooring_pool_allocatable", pool="default", slot="cpu") == 8000
    assert value("mooring_pool_allocated", pool="default", slot="cpu") == 3000


async def test_a_scrape_during_a_pass_shows_none_of_its_trials(
    harness: Harness, loop: SchedulingLoop, monkeypatch: pytest.MonkeyPatch
):
    await harness.node("n", cpu=8)
    await harness.submit("w", cpu=3)
    await loop.once()
    assert value("mooring_pool_allocated", pool="default", slot="cpu") == 3000
    taken, run, seen = loop._mirror.cluster.taken, loop._run, []

    def with_a_trial(*arguments: Any) -> Any:
        """A pass that removes all tasks for a moment, as the search for victims does."""
        before = taken.copy()
        taken[:] = 0
        seen.append(value("mooring_pool_allocated", pool="default", slot="cpu"))
        taken[:] = before
        return run(*arguments)

    monkeypatch.setattr(loop, "_run", with_a_trial)
    await loop.once()
    assert seen == [3000]


async def test_every_phase_of_an_iteration_is_timed(harness: Harness, loop: SchedulingLoop):
    phases = ("follow", "reserve", "place", "bind", "explain", "write")
    before = {phase: value("mooring_phase_seconds_count", phase=phase) or 0.0 for phase in phases}
    await harness.node("n", cpu=8)
    await harness.submit("w")
    await loop.once()
    for phase in phases:
        assert (value("mooring_phase_seconds_count", phase=phase) or 0.0) > before[phase], phase


async def test_a_server_that_no_longer_leads_reports_no_queue(harness: Harness, loop: SchedulingLoop):
    await harness.submit("w")
    await loop.once()
    assert value("mooring_queue_length") == 1
    loop.lose()
    assert value("mooring_queue_length") is None
