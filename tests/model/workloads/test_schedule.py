"""The signal before the end, as people write it."""

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.workloads.schedule import Notice, parse_notice


@pytest.mark.parametrize(
    ("written", "notice"),
    [
        ("USR1@300", Notice("USR1", 300)),
        ("SIGTERM@5", Notice("TERM", 5)),
        ("usr2", Notice("USR2", 60)),
    ],
)
def test_a_signal_is_read(written: str, notice: Notice):
    assert parse_notice(written) == notice


@pytest.mark.parametrize("written", ["", "KILL@5", "USR1@", "USR1@-5", "10@5", "USR1 @5"])
def test_an_invalid_signal_is_refused_with_the_valid_ones(written: str):
    with pytest.raises(InvalidInput, match="HUP, INT") as refused:
        parse_notice(written)
    assert refused.value.code == "invalid-signal"
