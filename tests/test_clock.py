"""The clock that system tests give to servers: its date is where the test moved it, and goes on from there."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from mooring.clock import Moved


def test_a_date_that_was_moved_is_that_for_all_who_read_the_file(tmp_path: Path):
    mover, reader = Moved(tmp_path / "ahead"), Moved(tmp_path / "ahead")
    for days in (2, -3):
        before = datetime.now(UTC)
        mover.move_to(before + timedelta(days=days))
        said = reader.now()
        after = datetime.now(UTC)
        assert before <= said - timedelta(days=days) <= after
