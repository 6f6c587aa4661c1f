"""A short run under faults; `make faults SECONDS=600` is a long one."""

from __future__ import annotations

import pytest

from tests.system.faults.run import run

SEED, SECONDS = 1181, 16.0


@pytest.mark.slow
def test_accepted_work_is_neither_lost_nor_run_twice_under_faults() -> None:
    received: list[str] = []
    report = run(SEED, SECONDS, received.append)
    assert not report.violations, "\n".join([*received, *report.lines()])
    assert report.accepted
    assert report.terms > 1
