"""Comparison: paired differences over seeds, in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.simulation.outputs.comparison import compare, interval

SCENARIO = """
cluster: [{count: 2, resources: {cpu: 8}}]
pools: {default: {sequencer: fifo, head_of_line: %s}}
workloads: [{lublin: {jobs: 60, processors: 8}, load: 3}]
"""


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{name}.yaml" for name in ("strict", "backfill", "again")]
    for path, rule in zip(found, ("strict", "backfill", "strict"), strict=True):
        path.write_text(SCENARIO % rule)
    return found


def test_difference_is_that_of_the_same_seeds(paths: list[Path]):
    seen: list[tuple[int, int]] = []
    found = compare(paths, (1, 2, 3), processes=2, progress=lambda done, total: seen.append((done, total)))
    strict, backfill, again = found.scenarios
    assert (strict.name, backfill.name, seen[-1]) == ("strict", "backfill", (9, 9))
    wait = "mean_wait_seconds"
    assert strict.differences == {}
    assert backfill.differences[wait].mean == pytest.approx(backfill.figures[wait].mean - strict.figures[wait].mean)
    assert backfill.differences[wait].mean < 0
    # The same policy on the same jobs: no difference, although the seeds differ.
    assert (again.differences[wait].mean, again.differences[wait].half_width) == (0, 0)
    assert (strict.figures[wait].half_width or 0) > 0
    # Only the pool with planned starts has their error.
    assert ["planned_start_error_seconds" in each.figures for each in found.scenarios] == [False, True, False]


def test_interval_is_that_of_student():
    # Standard deviation 1, 3 values: 4.303 / sqrt(3).
    found = interval([1, 2, 3])
    assert found.mean == 2
    assert found.half_width == pytest.approx(2.4843, abs=1e-4)
    assert not found.is_significant
    assert interval([10, 11, 12]).is_significant
    assert interval([5]).half_width is None
    widths = [interval([0, 1] * number).half_width or 0 for number in range(1, 100)]
    assert widths == sorted(widths, reverse=True)
