"""A short run under faults; `make faults SECONDS=600` is a long one."""

from __future__ import annotations

from tests.system.faults.run import run

SEED, SECONDS = 1181, 16.0


def test_nothing_that_was_accepted_is_lost_or_runs_twice_whatever_dies() -> None:
    told: list[str] = []
    report = run(SEED, SECONDS, told.append)
    assert not report.violations, "\n".join([*told, *report.lines()])
    assert report.accepted
    assert report.terms > 1
