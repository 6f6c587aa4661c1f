"""Agents that lose their server at the same moment do not come back at the same moment."""

from itertools import islice
from random import Random

import pytest

from mooring.agent.connection import backoff


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.concurrency.backoff.random", Random(7))


@pytest.mark.parametrize(
    ("heartbeat_seconds", "first_limit"),
    [pytest.param(5, 1.0, id="small cluster"), pytest.param(100, 20.0, id="5,000 nodes")],
)
def test_two_hundred_agents_spread_evenly_after_a_common_loss(heartbeat_seconds: float, first_limit: float):
    first = [next(backoff.delays(heartbeat_seconds)) for _ in range(200)]
    per_tenth = [sum(int(delay / first_limit * 10) == tenth for delay in first) for tenth in range(10)]
    assert sum(per_tenth) == 200
    # 20 on the average: none of them empty, none with more than double its share.
    assert min(per_tenth) >= 5
    assert max(per_tenth) <= 40


@pytest.mark.parametrize(("heartbeat_seconds", "longest"), [(5, 5.0), (100, 100.0)])
def test_the_limit_doubles_up_to_one_pause_between_heartbeats(heartbeat_seconds: float, longest: float):
    tries = [list(islice(backoff.delays(heartbeat_seconds), 12)) for _ in range(200)]
    widest = [max(delays) for delays in zip(*tries, strict=True)]
    assert widest[0] < widest[1] < widest[2]
    assert max(widest) <= longest
    assert widest[-1] > longest * 0.9
