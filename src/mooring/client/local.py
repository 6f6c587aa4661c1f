"""The server on this machine: its data folder holds its address, and the initial password for its owner."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mooring.security.data_folder import default_data

ADDRESS_FILE = "server.json"
PASSWORD_FILE = "admin-password"
ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class LocalServer:
    url: str
    data: Path
    ca_file: str | None = None


def default_data_folder() -> Path:
    """Return the default data folder of `mooring up`."""
    given = os.environ.get("MOORING_DATA")
    return Path(given).expanduser() if given else default_data()


def find_local_server(data: Path | None = None) -> LocalServer | None:
    """Return the server that last started with this data folder, if recorded."""
    folder = data or default_data_folder()
    try:
        record = json.loads((folder / ADDRESS_FILE).read_bytes())
        url = record["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(url, str) or not url:
        return None
    ca_file = record.get("ca_file")
    return LocalServer(url=url, data=folder, ca_file=ca_file if isinstance(ca_file, str) else None)


def admin_password(data: Path) -> str | None:
    """The password in the data folder, if this user owns the file and nobody else may read it."""
    path = data / PASSWORD_FILE
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            if state.st_uid != os.geteuid() or stat.S_IMODE(state.st_mode) & 0o077:
                return None
            password = file.read(4096).decode()
    except (OSError, UnicodeDecodeError):
        return None
    return password.strip() or None
