"""Exponential backoff: doubling pauses with a limit and jitter."""

from itertools import islice

import pytest

from mooring.concurrency import backoff


def test_pauses_double_up_to_the_longest():
    assert list(islice(backoff.delays(1.0, 5.0, jitter=0), 5)) == [1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize(("attempt", "seconds"), [(0, 2.0), (1, 2.0), (2, 4.0), (8, 256.0), (9, 300.0), (10**6, 300.0)])
def test_pause_of_an_attempt_is_that_of_the_sequence_however_many_there_were(attempt: int, seconds: float):
    assert backoff.delay(attempt, 2.0, 300.0, jitter=0) == seconds


@pytest.mark.parametrize(("jitter", "least"), [(0.2, 8.0), (0.5, 5.0), (1.0, 0.0)])
def test_jitter_takes_away_at_most_its_part(jitter: float, least: float):
    found = {backoff.jittered(10.0, jitter) for _ in range(200)}
    assert len(found) > 1
    assert all(least <= seconds <= 10.0 for seconds in found)
