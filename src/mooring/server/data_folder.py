"""The data folder of a server: its permissions, the first password and the address for `mooring login`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from mooring.agent.files.safe_files import make_trusted
from mooring.model.errors import InvalidInput
from mooring.security.private_files import write_private
from mooring.settings import Settings


def make_data_folder(data: Path) -> None:
    """Make a folder that only its owner may list; files with secrets in it are readable only by the owner."""
    os.umask(0o077)
    try:
        make_trusted(data, 0o711)
        # Tasks of a root agent run under other users, who must pass through to their own work folders.
        data.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except OSError as error:
        raise InvalidInput(
            f"cannot use {data} as the data folder: {error.strerror}; choose another with --data", code="data-folder"
        ) from None


def keep_password(settings: Settings, password: str | None) -> None:
    """Store the first password for `mooring login` on this machine; remove the file if there is none."""
    path = _password_file(settings)
    if password is None:
        path.unlink(missing_ok=True)
        return
    write_private(path, password + "\n")


def _password_file(settings: Settings) -> Path:
    return settings.data / "admin-password"


def _first_password(password: str, path: Path, *, terminal: bool) -> str:
    """Return a line about the password. Output elsewhere than a terminal ends in logs: there only the path is named."""
    if terminal:
        return f"First start: user admin, password {password}   (also in {path})"
    return f"First start: the password of the user admin is in {path}, which only this user can read"


def announce(settings: Settings, url: str, password: str | None, login_code: str | None = None) -> None:
    """Print the address and the command to log in; store the address for `mooring login` on this machine.

    The console's link logs in by `login_code`, which only a terminal shows.
    """
    address = settings.data / "server.json"
    record = {"url": url} | ({"ca_file": str(settings.tls_cert.absolute())} if settings.tls_cert else {})
    address.write_text(json.dumps(record))
    address.chmod(0o644)
    command = f"{Path(sys.argv[0]).absolute()} login --data {settings.data.absolute()}"
    lines = ["", f"Mooring is at {url}   (API docs: {url}/docs)", f"State is in {settings.data.absolute()}"]
    if settings.role != "scheduler":
        lines += ["", *_console(settings.public_url or url, login_code)]
    if password is not None and settings.admin_password is None:
        lines.append(_first_password(password, _password_file(settings).absolute(), terminal=sys.stdout.isatty()))
    lines += ["", "In a second terminal:", "", f"    {command}", *_next_steps(settings), "", "Ctrl-C stops.", ""]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _console(url: str, login_code: str | None) -> list[str]:
    """Return lines about the web console; the link with a code works once, for minutes."""
    address = url.rstrip("/")
    if login_code is None:
        return [f"Console: {address}/   (mooring console prints a link that logs in)"]
    return [
        "Console, logged in as admin (the link works once, for 10 minutes; mooring console creates another):",
        f"    {address}/login#code={login_code}",
    ]


def _next_steps(settings: Settings) -> list[str]:
    """Return commands to try on this machine; none where the server runs no agent."""
    from mooring.agent.runtimes.container.engine import addresses

    if not settings.agent or settings.role != "all":
        return []
    program = Path(sys.argv[0]).absolute()
    steps = [f"    {program} run -- echo hello"]
    if engines := addresses(settings.engine):
        steps.append(f"    {program} run --image alpine -- echo hello      # with the container engine at {engines[0]}")
        return steps
    if settings.simulate:
        steps.append(f"    {program} deploy web --image nginx --pool simulated      # simulated: nothing is started")
    return [*steps, "", "No container engine was found, so images do not run here: install Podman or Docker."]
