"""The controllers under fault schedules: whatever dies, freezes, is cut off or not answered, nothing is lost, nothing
runs twice, nothing is over capacity, no deposed leader writes, and when faults end all that fits runs."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.simulation import schedules
from tests.simulation.gate import Fate
from tests.simulation.world import Prepared

SCHEDULES, PART = 1000, 25
SOAKED, SOAKED_PART = 1000, 50


def run_all(prepared: Prepared, seeds: Iterable[int]) -> Counter[str]:
    """What was done to them all together. The first that fails is told with the command that repeats it."""
    totals: Counter[str] = Counter()
    for seed in seeds:
        outcome = schedules.run(prepared, seed)
        repeat = f"seed {seed}; repeat it with: python -m tests.simulation {seed}"
        assert not outcome.violations, "\n".join([repeat, *outcome.violations])
        totals.update(outcome.injected)
        totals["faults"] += outcome.faults
        totals["terms"] += outcome.terms
    return totals


@pytest.mark.parametrize("part", range(SCHEDULES // PART))
def test_every_fault_schedule_keeps_what_was_promised(prepared: Prepared, part: int):
    totals = run_all(prepared, range(part * PART, (part + 1) * PART))
    # Something did go wrong.
    assert totals["faults"] >= PART
    assert totals["terms"] > PART


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAKED // SOAKED_PART))
def test_many_more_fault_schedules_keep_it(prepared: Prepared, part: int):
    first = SCHEDULES + part * SOAKED_PART
    totals = run_all(prepared, range(first, first + SOAKED_PART))
    assert all(totals[fate] for fate in Fate if fate is not Fate.WELL)


def test_the_same_seed_gives_the_same_trace(prepared: Prepared):
    first, second = schedules.run(prepared, 7), schedules.run(prepared, 7)
    assert first.told == second.told
    assert first.digest == second.digest
    assert schedules.run(prepared, 8).digest != first.digest


def test_another_process_repeats_a_seed(prepared: Prepared):
    """Nothing depends on addresses in memory or on how strings are hashed."""
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "7"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert f"digest {schedules.run(prepared, 7).digest}\n" in told
