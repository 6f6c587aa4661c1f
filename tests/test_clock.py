"""The clock that system tests give to servers: its date is moved by the test and runs on from there."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from mooring.clock import ShiftedClock


def test_a_moved_date_applies_to_every_reader_of_the_file(tmp_path: Path):
    mover, reader = ShiftedClock(tmp_path / "ahead"), ShiftedClock(tmp_path / "ahead")
    for days in (2, -3):
        before = datetime.now(UTC)
        mover.move_to(before + timedelta(days=days))
        said = reader.now()
        after = datetime.now(UTC)
        assert before <= said - timedelta(days=days) <= after
