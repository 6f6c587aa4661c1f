"""Hints of error messages."""

import pytest

from mooring.cli.exits import report
from mooring.model.errors import MooringError, NotAllowed, NotFound
from mooring.model.tenancy.access import not_there


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (NotAllowed("you may not change users; your role is user"), "mooring whoami"),
        (
            NotAllowed("private sessions need the right 'private'", code="right-missing"),
            "a policy with that right",
        ),
        (NotAllowed("priority 90 exceeds the maximum of 50", code="priority-too-high"), "--priority"),
        (NotAllowed("pool 'lab' is for others", code="pool-not-allowed"), "mooring free"),
        (NotAllowed("this keypair has the scope 'read'", code="keypair-scope"), None),
        (not_there("workload 'train'"), "mooring ps -a"),
        (not_there("policy 'small'"), "mooring policy list"),
        (not_there("pool 'lab'"), "mooring pool list"),
        (not_there("record of version 3 of pool 'lab'"), None),
        (NotFound("workload 'train' has no task 7", code="unknown-task"), None),
    ],
)
def test_the_hint_fits_the_error(error: MooringError, hint: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    report(error)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"error: {error}"
    assert (len(said) == 1) if hint is None else (hint in said[1])
