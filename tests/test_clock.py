"""The clock that system tests give to servers: its date hurries, and nothing else."""

from datetime import UTC, datetime, timedelta

from mooring.clock import Faster


def test_a_date_that_hurries_is_the_true_one_at_its_instant():
    true_at = datetime.now(UTC) + timedelta(hours=1)
    clock = Faster(f"20@{true_at.isoformat()}")
    before = datetime.now(UTC)
    said = clock.now()
    after = datetime.now(UTC)
    assert true_at - (true_at - before) * 20 <= said <= true_at - (true_at - after) * 20
