"""Lengths of time as people write them."""

import pytest

from mooring.model.calendar.durations import format_duration, parse_duration
from mooring.model.errors import InvalidInput


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d1s", 86_401),
        ("10:00", 600),
        ("1:30:00", 5400),
        ("1-12:00:00", 129_600),
        ("1-12:00", 129_600),
    ],
)
def test_a_length_of_time_is_whole_seconds(written: str, seconds: int):
    assert parse_duration(written) == seconds


@pytest.mark.parametrize("written", ["", "0", "0m", "-5", "1.5h", "5x", "m", "30m2h", "1:2:3:4", "٣m", "9999999999d"])
def test_an_invalid_duration_is_refused_and_quoted(written: str):
    with pytest.raises(InvalidInput) as refused:
        parse_duration(written)
    assert refused.value.code == "invalid-duration"


@pytest.mark.parametrize("seconds", [1, 59, 60, 5400, 86_400, 129_601])
def test_a_formatted_duration_parses_to_the_same_value(seconds: int):
    assert parse_duration(format_duration(seconds)) == seconds


def test_the_shortest_text_is_shown():
    assert [format_duration(n) for n in (0, 90, 5400, 129_600)] == ["0s", "1m30s", "1h30m", "1d12h"]
