"""Logins, one per server, in a file of the user's configuration folder that only the user can read."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mooring.model.errors import InvalidInput

FILE_NAME = "credentials.json"


@dataclass(frozen=True, slots=True)
class Login:
    """A token and its origin. Times are seconds since the epoch."""

    username: str
    token: str = field(repr=False)
    obtained_at: float
    expires_at: float
    data_folder: str | None = None
    """Set if the password came from a server's data folder: it is used again when the token is refused."""
    ca_file: str | None = None
    keypair: bool = False
    """A keypair instead of a password login: the username is the access key, the token its secret; never renewed."""

    def renewal_due(self, now: float) -> bool:
        return now - self.obtained_at > (self.expires_at - self.obtained_at) / 2


class CredentialStore:
    """The file of logins. Every change reads it afresh under a lock and replaces it whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_user(cls) -> CredentialStore:
        base = os.environ.get("XDG_CONFIG_HOME")
        root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".config"
        return cls(root / "mooring" / FILE_NAME)

    def get(self, server: str) -> Login | None:
        entry = self._read()["servers"].get(server)
        return _login(entry) if isinstance(entry, dict) else None

    def last_server(self) -> str | None:
        """The server of the last login."""
        last = self._read()["last"]
        return last if isinstance(last, str) else None

    def servers(self) -> list[str]:
        return list(self._read()["servers"])

    def save(self, server: str, login: Login, *, make_last: bool = False) -> None:
        entry = {name: value for name, value in asdict(login).items() if value is not None}

        def change(content: dict[str, Any]) -> None:
            content["servers"][server] = entry
            if make_last:
                content["last"] = server

        self._change(change)

    def forget(self, server: str) -> bool:
        """Delete the login of a server. Return whether there was one."""
        if server not in self._read()["servers"]:
            return False

        def change(content: dict[str, Any]) -> None:
            content["servers"].pop(server, None)
            if content["last"] == server:
                content["last"] = None

        self._change(change)
        return True

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {"last": None, "servers": {}}
        except (OSError, ValueError) as problem:
            raise InvalidInput(
                f"the logins in {self.path} cannot be read ({problem}); remove the file and log in again",
                code="invalid-credentials-file",
            ) from problem
        if not isinstance(content, dict) or not isinstance(content.get("servers"), dict):
            raise InvalidInput(
                f"{self.path} contains no logins; remove the file and log in again", code="invalid-credentials-file"
            )
        content.setdefault("last", None)
        return content

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                content = self._read()
                change(content)
                self._replace(json.dumps(content, indent=2).encode() + b"\n")
        except OSError as problem:
            raise InvalidInput(
                f"the login cannot be stored in {self.path}: {problem.strerror}", code="credentials-not-written"
            ) from problem

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _replace(self, content: bytes) -> None:
        # mkstemp makes the file 0600 from its first moment; a reader sees the old whole or the new whole.
        descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{FILE_NAME}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise


def _login(entry: dict[str, Any]) -> Login | None:
    known = {field.name for field in fields(Login)}
    try:
        login = Login(**{name: value for name, value in entry.items() if name in known})
        return login if login.token and login.expires_at >= login.obtained_at else None
    except TypeError:
        return None
