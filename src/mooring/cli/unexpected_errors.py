"""Errors that no command expects: requests that violate their schema, and defects of Mooring itself."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path

from mooring.cli.exits import ExitCode, report, say

_FILE_NAME = "traceback.txt"
_MAX_MESSAGE = 300


def report_unexpected(error: Exception) -> ExitCode:
    """Print an error that is not a MooringError, and return the exit code.

    The user gets a message; the traceback goes to a file that only the user can read.
    """
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        from mooring.client.answers import invalid_request

        return report(invalid_request(error))
    text = "".join(traceback.format_exception(error))
    if os.environ.get("MOORING_DEBUG", "") not in ("", "0"):
        print(text, file=sys.stderr, end="")
    message = str(error)[:_MAX_MESSAGE]
    say(f"error: internal error: {type(error).__name__}{f': {message}' if message else ''}")
    try:
        path = _save(text)
    except (OSError, RuntimeError) as problem:
        say(f"hint: this is a defect of Mooring; please report it. The traceback could not be saved ({problem});")
        say("      MOORING_DEBUG=1 shows it")
    else:
        say(f"hint: this is a defect of Mooring; please report it with the traceback in {path}")
    return ExitCode.INTERNAL_ERROR


def _save(text: str) -> Path:
    """Replace the file of the last traceback; one file, so that repeated errors do not fill the disk."""
    base = os.environ.get("XDG_STATE_HOME")
    folder = (Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state") / "mooring"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A new file with mode 0600, renamed: neither a link nor an open file of that name is written to.
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{_FILE_NAME}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        Path(name).replace(folder / _FILE_NAME)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return folder / _FILE_NAME
