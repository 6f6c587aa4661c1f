"""Percentiles, rates and ratios of the comparison with other schedulers, and its table."""

import pytest

from benchmarks.peers import figures
from benchmarks.peers.figures import Span


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        pytest.param(0.50, 50.0, id="half of a hundred values do not exceed the fiftieth"),
        pytest.param(0.99, 99.0, id="99 of them do not exceed the 99th"),
        pytest.param(0.0, 1.0, id="the smallest"),
        pytest.param(1.0, 100.0, id="the largest"),
    ],
)
def test_a_percentile_follows_the_nearest_rank(share: float, expected: float):
    assert figures.percentile([float(value) for value in range(100, 0, -1)], share) == expected


def test_every_percentile_of_one_value_is_that_value():
    assert [figures.percentile([7.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [7.0] * 4


def test_a_rate_counts_from_the_first_request_to_the_last_task():
    assert figures.per_second([Span(10.0, 10.5), Span(11.0, 12.0), Span(10.5, 11.0)]) == 1.5


def test_waits_count_from_the_request_of_each_task():
    result = figures.singly("slurm", [Span(10.0, 10.5), Span(11.0, 12.0)])
    assert result == {"slurm_single_per_second": 1.0, "slurm_single_p50_ms": 500.0, "slurm_single_p99_ms": 1000.0}


def test_a_ratio_above_one_means_better_for_rates_and_for_waits():
    assert figures.ratio(600.0, 200.0, more_is_better=True) == 3.0
    assert figures.ratio(20.0, 60.0, more_is_better=False) == 3.0


def test_the_table_leaves_cells_of_missing_parts_empty():
    lines = figures.table({"sqlite_single_per_second": 600.0, "kubernetes_single_per_second": 200.0})
    cells = [cell.strip() for cell in lines[2].split("|")[1:-1]]
    assert cells[:5] == ["one by one to bound, per second", "200", "", "600", ""]
    assert cells[5:] == ["3 ×", "", "", ""]
    assert {len(line.split("|")) for line in lines} == {len(lines[0].split("|"))}
