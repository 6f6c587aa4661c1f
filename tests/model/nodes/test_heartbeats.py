"""The more nodes there are, the less often each speaks and the longer it may be silent."""

import pytest

from mooring.model.nodes.heartbeats import Pace


@pytest.mark.parametrize(
    ("nodes", "interval", "suspect", "lost"),
    [
        pytest.param(0, 5, 15, 30, id="nobody"),
        pytest.param(250, 5, 15, 30, id="as many as speak at the shortest pause"),
        # 1,000 / 50 per second; 2 * 20 + 5; 3 * 20 is more than the timeout.
        pytest.param(1_000, 20, 45, 60, id="a thousand"),
        pytest.param(5_000, 100, 205, 300, id="five thousand"),
    ],
)
def test_silence_counts_by_the_size_of_the_cluster(nodes: int, interval: float, suspect: float, lost: float):
    pace = Pace(least_seconds=5, most_per_second=50, grace_seconds=5, timeout_seconds=30)
    assert pace.interval_seconds(nodes) == interval
    assert pace.suspect_seconds(nodes) == suspect
    assert pace.lost_seconds(nodes) == lost


@pytest.mark.parametrize("nodes", [1, 10, 300, 7_777, 100_000])
def test_the_sum_of_all_heartbeats_stays_below_the_bound(nodes: int):
    assert nodes / Pace(most_per_second=50).interval_seconds(nodes) <= 50
