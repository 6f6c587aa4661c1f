"""What a failure says about what to do next."""

import pytest

from mooring.cli.exits import report
from mooring.model.errors import MooringError, NotAllowed, NotFound


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (NotAllowed("you may not change users; your role is user"), "mooring whoami"),
        (
            NotAllowed("the right 'private' is needed for private sessions", code="right-missing"),
            "a policy with that right",
        ),
        (NotAllowed("priority 90 is above the 50", code="priority-too-high"), "--priority"),
        (NotAllowed("pool 'lab' is for others", code="pool-not-allowed"), "mooring free"),
        (NotAllowed("this keypair is good for looking only", code="keypair-scope"), None),
        (NotFound("there is no workload 'train'"), "mooring ps -a"),
        (NotFound("there is no policy 'small'"), "mooring policy list"),
        (NotFound("there is no pool 'lab'"), "mooring pool list"),
        (NotFound("there is no record of version 3 of pool 'lab'"), None),
        (NotFound("workload 'train' has no task 7", code="unknown-task"), None),
    ],
)
def test_the_hint_fits_the_error(error: MooringError, hint: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    report(error)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"error: {error}"
    assert (len(said) == 1) if hint is None else (hint in said[1])
