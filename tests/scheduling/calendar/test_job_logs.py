"""Backfill on a published job log gives the published slowdown; the benchmark `backfill` runs all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import backfill
from mooring.model.policy.pools import Backfill


@pytest.mark.slow
@pytest.mark.parametrize("machine", [backfill.Machine, backfill.Gangs])
def test_jobs_from_the_pending_queue_start_as_in_passes_over_all_jobs(
    trace: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, machine: type[backfill.Machine]
):
    monkeypatch.setattr(backfill, "FOLDER", trace("swf/KTH-SP2-1996-2.swf.gz").parent.parent)
    jobs = backfill.kth_jobs()[:300]
    queued = backfill.simulated(jobs, 100, Backfill(), machine_of=machine)
    assert queued.starts == backfill.simulated(jobs, 100, Backfill(), machine_of=machine, all_in_every_pass=True).starts


@pytest.mark.slow
def test_a_sequence_of_the_lublin_log_has_the_published_slowdown(
    trace: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backfill, "FOLDER", trace("swf/lublin_256.swf.gz").parent.parent)
    fourth = backfill.lublin_sequences()[3]
    assert round(backfill.lublin(fourth, "SJF", True).slowdown, 2) == 34.96
