"""Removal of secrets from the command line, which every user can read with `ps`.

The process replaces itself with one whose arguments have `***` instead of each secret, and passes the values through
a pipe.
"""

from __future__ import annotations

import json
import os
import re
import sys

_VARIABLE = "MOORING_ARGV_DESCRIPTOR"
_REDACTED = "***"
_SECRET_OPTIONS = frozenset({"--token"})
# Greedy up to the last @: a password that was not percent-encoded may hold any character.
_PASSWORD_IN_URL = re.compile(r"(://[^/?#\s:@]*:).+(@)")
_PASSWORD_IN_QUERY = re.compile(r"(://\S*?[?&](?:password|passwd|sslpassword|token|secret)=)[^&\s]+", re.IGNORECASE)

_ADVICE = {
    "agent": "put the token into MOORING_JOIN_TOKEN, a file (MOORING_JOIN_TOKEN_FILE) or a systemd credential",
    "up": "put the URL into MOORING_DATABASE, a file (MOORING_DATABASE_FILE), a systemd credential or --config",
    "db": "put the URL into MOORING_DATABASE, a file (MOORING_DATABASE_FILE) or the settings file (--config)",
}
_OTHER_ADVICE = "give it to tasks as a secret (`mooring secret set`)"


def scrub() -> None:
    """Remove secrets from /proc/PID/cmdline. `sys.argv` still holds them when this returns."""
    descriptor = os.environ.pop(_VARIABLE, None)
    if descriptor is not None:
        _restore(int(descriptor))
        return
    shown = redacted(sys.argv[1:])
    if shown == sys.argv[1:]:
        return
    advice = _ADVICE.get(sys.argv[1], _OTHER_ADVICE)
    print(
        "warning: the command line contained a password or token that every user of this machine could read; "
        f"it is now removed. Next time, {advice}.",
        file=sys.stderr,
        flush=True,
    )
    prefix_length = len(sys.orig_argv) - len(shown)
    reader, writer = os.pipe()
    # The data must fit into the pipe, since nobody reads it yet. An argument has at most 128 KiB.
    data = json.dumps(sys.argv[1:]).encode()
    _widen(writer, len(data))
    os.write(writer, data)
    os.close(writer)
    os.set_inheritable(reader, True)
    environment = {**os.environ, _VARIABLE: str(reader)}
    os.execve(sys.executable, [*sys.orig_argv[:prefix_length], *shown], environment)


def redacted(arguments: list[str]) -> list[str]:
    """Return the arguments with `***` instead of secrets. A task's command after `--` is unchanged."""
    shown: list[str] = []
    secret_follows = False
    for position, argument in enumerate(arguments):
        if argument == "--":
            return [*shown, *arguments[position:]]
        name, assigned, _ = argument.partition("=")
        if secret_follows:
            shown.append(_REDACTED)
        elif assigned and name in _SECRET_OPTIONS:
            shown.append(f"{name}={_REDACTED}")
        else:
            hidden = _PASSWORD_IN_URL.sub(rf"\1{_REDACTED}\2", argument)
            shown.append(_PASSWORD_IN_QUERY.sub(rf"\1{_REDACTED}", hidden))
        secret_follows = not secret_follows and argument in _SECRET_OPTIONS
    return shown


def _restore(descriptor: int) -> None:
    with os.fdopen(descriptor, "rb") as file:
        sys.argv[1:] = json.loads(file.read())


def _widen(pipe: int, size: int) -> None:
    import fcntl

    if size > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)
