"""The controllers under fault schedules.

Whatever crashes, freezes, is cut off or gets no response: no work is lost or runs twice, no node is over capacity, no
deposed leader writes, and once the faults end all work that fits runs.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.fault_schedules import schedules
from tests.fault_schedules.gate import Fate
from tests.fault_schedules.world import Prepared

PART = 25
QUICK_PARTS = range(2)
SLOW_PARTS = range(2, 40)
SOAK_SCHEDULES, SOAK_PART = 1000, 50


@pytest.fixture(scope="session")
def first_seed() -> int:
    """The first of the commit's own seeds: every commit runs other schedules, and each run of it the same ones.

    Without git it is 0.
    """
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(commit, base=16)


def run_all(prepared: Prepared, seeds: Iterable[int]) -> Counter[str]:
    """Return the sums over these schedules. Fail at the first violation, with the command that repeats it."""
    totals: Counter[str] = Counter()
    for seed in seeds:
        outcome = schedules.run(prepared, seed)
        repeat = f"seed {seed}; repeat it with: python -m tests.fault_schedules {seed}"
        assert not outcome.violations, "\n".join([repeat, *outcome.violations])
        totals.update(outcome.injected)
        totals["faults"] += outcome.faults
        totals["terms"] += outcome.terms
    return totals


@pytest.mark.parametrize(
    "part", [*QUICK_PARTS, *(pytest.param(number, marks=pytest.mark.slow) for number in SLOW_PARTS)]
)
def test_every_fault_schedule_keeps_the_invariants(prepared: Prepared, first_seed: int, part: int):
    first = first_seed + part * PART
    totals = run_all(prepared, range(first, first + PART))
    # The schedules did inject faults.
    assert totals["faults"] >= PART
    assert totals["terms"] > PART


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_SCHEDULES // SOAK_PART))
def test_many_more_fault_schedules_keep_the_invariants(prepared: Prepared, part: int):
    first = SOAK_SCHEDULES + part * SOAK_PART
    totals = run_all(prepared, range(first, first + SOAK_PART))
    assert all(totals[fate] for fate in Fate if fate is not Fate.WELL)


def test_the_same_seed_gives_the_same_trace(prepared: Prepared):
    first, second = schedules.run(prepared, 7), schedules.run(prepared, 7)
    assert first.trace == second.trace
    assert first.digest == second.digest
    assert schedules.run(prepared, 8).digest != first.digest


@pytest.mark.slow
def test_another_process_repeats_a_seed(prepared: Prepared):
    """Nothing depends on addresses in memory or on how strings are hashed."""
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    received = subprocess.run(
        [sys.executable, "-m", "tests.fault_schedules", "7"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"digest {schedules.run(prepared, 7).digest}\n" in received
