"""Exit codes, and error messages with hints."""

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
    WOULD_WAIT = 2
    """Of a dry run: the request is valid, and would not start at once."""
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    UNREACHABLE = 5
    INTERNAL_ERROR = 70
    TIMEOUT = 124
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILURE: "failure",
    ExitCode.USAGE: "wrong usage, or a dry run that would wait",
    ExitCode.NOT_FOUND: "not found",
    ExitCode.NOT_ALLOWED: "not authenticated or not allowed",
    ExitCode.UNREACHABLE: "server unreachable",
    ExitCode.INTERNAL_ERROR: "internal error",
    ExitCode.TIMEOUT: "timed out",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "terminated",
}
"""For the help and the reference."""

# Blank lines separate paragraphs, whose lines the help joins.
EPILOG = "\n\n".join(
    (
        f"Exit codes: {', '.join(f'{code.value} {meaning}' for code, meaning in MEANINGS.items())}.",
        "`mooring run` and `mooring wait` exit with the code of the task (128 + signal if it was killed).",
        "Environment: MOORING_SERVER, MOORING_TOKEN, MOORING_ACCESS_KEY and MOORING_SECRET_KEY, MOORING_CA_FILE,"
        " MOORING_DATA, MOORING_DEBUG (1 shows the traceback of an internal error), NO_COLOR.",
    )
)


class TimedOut(MooringError):
    """A wait timed out. The workload itself is not affected."""

    code = "timeout"


# Other messages contain their own advice.
_NOT_ALLOWED = {
    "not-allowed": "`mooring whoami` shows your role; an administrator can do this or change your role",
    "right-missing": "ask an administrator for a policy with that right (`mooring policy create NAME --right RIGHT`)",
    "priority-too-high": "use a lower --priority, or ask an administrator for a policy that allows more",
    "pool-not-allowed": "`mooring free` lists the pools that you may use; an administrator can grant you access",
}
_LISTS = {
    "workload": "ps -a",
    "session": "session list",
    "deployment": "ps -a",
    "booking": "bookings",
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
    """Print an error and a hint, and return the exit code."""
    say(f"error: {_message(error)}")
    if hint := _hint(error):
        say(f"hint: {hint}")
    return exit_code(error)


def say(text: str) -> None:
    """Print a line to stderr, so that it never mixes with output."""
    print(shown(text), file=sys.stderr, flush=True)


def say_if_simulated(name: str, simulated: bool | None, *, chosen: bool) -> None:
    """Say that work runs on simulated nodes, unless its pool or booking was chosen."""
    if simulated and not chosen:
        say(f"{name} runs on simulated nodes, since the cluster has no others: nothing is executed")


def _message(error: MooringError) -> str:
    """Return the message. That of the API names an HTTP header, which is not for a user of commands."""
    if isinstance(error, NotAuthenticated) and error.code == NotAuthenticated.code:
        return f"{error.code}: you are not logged in"
    return str(error)


def _hint(error: MooringError) -> str | None:
    given = error.details.get("hint")
    if isinstance(given, str):
        return given
    if isinstance(error, NotAuthenticated) and error.code != "wrong-credentials":
        return "log in with `mooring login`"
    if isinstance(error, NotAllowed):
        return _NOT_ALLOWED.get(error.code)
    if isinstance(error, NotFound):
        from mooring.cli.suggestions import suggestion

        if near := suggestion(error):
            return near
        lists = _LISTS.get(str(error.details.get("noun")))
        return f"`mooring {lists}` lists those that you may see" if lists else None
    return None
