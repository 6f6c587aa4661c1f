"""Exit codes, in one place, and how a failure is told."""

from __future__ import annotations

import sys
from enum import IntEnum

from mooring.model.errors import (
    InvalidInput,
    MooringError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    TooManyAttempts,
    Unavailable,
)
from mooring.model.names import shown


class ExitCode(IntEnum):
    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    UNREACHABLE = 5
    TIMEOUT = 124
    INTERRUPTED = 130
    TERMINATED = 143


# Blank lines between, since the help joins the lines of a paragraph.
EPILOG = "\n\n".join(
    (
        "Exit codes: 0 done, 1 failure, 2 wrong usage, 3 not found, 4 not authenticated or not allowed,"
        " 5 server unreachable, 124 out of time, 130 interrupted.",
        "`mooring run` and `mooring wait` exit with the code of the task (128 + signal where it was killed).",
        "Environment: MOORING_SERVER, MOORING_TOKEN, MOORING_ACCESS_KEY and MOORING_SECRET_KEY, MOORING_CA_FILE,"
        " MOORING_DATA, NO_COLOR.",
    )
)


class TimedOut(MooringError):
    """What was waited for did not happen in time; nothing is wrong with it otherwise."""

    code = "timeout"


# Others say themselves what would help.
_NOT_ALLOWED = {
    "not-allowed": "`mooring whoami` shows who you are here; an administrator can do it, or change your role",
    "right-missing": "ask an administrator for a policy with that right (`mooring policy create NAME --right RIGHT`)",
    "priority-too-high": "ask for less with --priority, or an administrator for a policy that allows more",
    "pool-not-allowed": "`mooring free` lists the pools that you may use; an administrator can give you access",
}
_THERE_IS_NO = "there is no "
_LISTS = {
    "workload": "ps -a",
    "session": "session list",
    "deployment": "ps -a",
    "timeslot": "bookings",
    "lab": "lab list",
    "node": "nodes",
    "pool": "pool list",
    "domain": "domain list",
    "project": "project list",
    "user": "user list",
    "keypair": "keypair list",
    "policy": "policy list",
}

_BY_ERROR: tuple[tuple[type[MooringError], ExitCode], ...] = (
    (InvalidInput, ExitCode.USAGE),
    (NotFound, ExitCode.NOT_FOUND),
    (NotAuthenticated, ExitCode.NOT_ALLOWED),
    (NotAllowed, ExitCode.NOT_ALLOWED),
    (TooManyAttempts, ExitCode.NOT_ALLOWED),
    (Unavailable, ExitCode.UNREACHABLE),
    (TimedOut, ExitCode.TIMEOUT),
)


def exit_code(error: MooringError) -> ExitCode:
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILURE)


def report(error: MooringError) -> ExitCode:
    """Say what went wrong and what to do, and with which code to leave."""
    say(f"error: {error}")
    if hint := _hint(error):
        say(f"hint: {hint}")
    return exit_code(error)


def say(text: str) -> None:
    """One line for the person at the terminal; never mixed into the output."""
    print(shown(text), file=sys.stderr, flush=True)


def _hint(error: MooringError) -> str | None:
    given = error.details.get("hint")
    if isinstance(given, str):
        return given
    if isinstance(error, NotAuthenticated) and error.code != "wrong-credentials":
        return "log in with `mooring login`"
    if isinstance(error, NotAllowed):
        return _NOT_ALLOWED.get(error.code)
    if isinstance(error, NotFound) and error.message.startswith(_THERE_IS_NO):
        lists = _LISTS.get(error.message.removeprefix(_THERE_IS_NO).partition(" ")[0])
        return f"`mooring {lists}` lists those that you may see" if lists else None
    return None
