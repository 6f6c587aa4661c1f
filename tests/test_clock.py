"""The clocks that system tests give to servers: the date hurries, or is where the test moved it; nothing else does."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from mooring.clock import Faster, Moved


def test_a_date_that_was_moved_is_that_for_all_who_read_the_file(tmp_path: Path):
    mover, reader = Moved(tmp_path / "ahead"), Moved(tmp_path / "ahead")
    for days in (2, -3):
        before = datetime.now(UTC)
        mover.move_to(before + timedelta(days=days))
        said = reader.now()
        after = datetime.now(UTC)
        assert before <= said - timedelta(days=days) <= after


def test_a_date_that_hurries_is_the_true_one_at_its_instant():
    true_at = datetime.now(UTC) + timedelta(hours=1)
    clock = Faster(f"20@{true_at.isoformat()}")
    before = datetime.now(UTC)
    said = clock.now()
    after = datetime.now(UTC)
    assert true_at - (true_at - before) * 20 <= said <= true_at - (true_at - after) * 20
