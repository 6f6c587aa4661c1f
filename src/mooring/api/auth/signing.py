"""The keys that tokens are signed with: the newest signs, older ones still verify.

They live in a file of the data folder, or in the environment; every server of one database must share them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mooring import clock
from mooring.model.errors import Conflict, InvalidInput
from mooring.security.private_files import is_private, locked, write_private
from mooring.store.core.engine import Database
from mooring.store.tenancy import signing_keys

FILE_NAME = "signing-keys.json"
VARIABLE = "MOORING_SIGNING_KEY"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class SigningKey:
    secret: bytes

    @property
    def id(self) -> str:
        """Names the key without telling anything about it."""
        return hashlib.sha256(self.secret).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"SigningKey(id={self.id!r})"


class SigningKeys:
    """One or more keys, the newest first."""

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        if not keys:
            raise InvalidInput("there is no signing key", code="invalid-signing-key")
        self._by_id = {key.id: key for key in keys}
        self.newest = keys[0]

    @property
    def ids(self) -> list[str]:
        return list(self._by_id)

    def find(self, key_id: str) -> SigningKey | None:
        return self._by_id.get(key_id)


def from_text(text: str) -> SigningKeys:
    """The keys of the environment variable: one, or several with commas between them, the newest first."""
    parts = [part.strip() for part in text.split(",")]
    if any(len(part.encode()) < _KEY_BYTES for part in parts):
        raise InvalidInput(
            f"{VARIABLE} must have at least {_KEY_BYTES} characters per key; create one with: openssl rand -hex 32",
            code="invalid-signing-key",
        )
    return SigningKeys([SigningKey(part.encode()) for part in parts])


def load(folder: Path) -> SigningKeys:
    """The keys of the data folder; a first one is made if there are none."""
    with locked(folder):
        path = folder / FILE_NAME
        return _read(path) if path.exists() else _write(path, [SigningKey(secrets.token_bytes(_KEY_BYTES))])


def present(folder: Path) -> SigningKeys | None:
    """The keys of the data folder, if it has some."""
    path = folder / FILE_NAME
    return _read(path) if path.exists() else None


def rotate(folder: Path) -> SigningKeys:
    """A new key in front of those that are there; tokens signed with the old ones stay valid until they expire."""
    with locked(folder):
        path = folder / FILE_NAME
        old = _read(path) if path.exists() else None
        retained = [key for key_id in old.ids if (key := old.find(key_id))] if old else []
        return _write(path, [SigningKey(secrets.token_bytes(_KEY_BYTES)), *retained])


async def check_shared(
    database: Database, keys: SigningKeys, now: datetime | None = None, *, signs: bool = True
) -> None:
    """Refuse to start with keys that the other servers of the database do not have: no token would be valid on both.

    `signs`: the newest one will sign, and must not have been revoked.
    """
    others = await database.write(lambda c: signing_keys.register(c, keys.ids, now or clock.now()))
    async with database.read() as connection:
        revoked = await signing_keys.revoked(connection)
    if others:
        raise Conflict(
            f"this server's signing key ({', '.join(keys.ids)}) is not the one that the servers of this database share"
            f" ({', '.join(others)}): copy {FILE_NAME} from the data folder of another server, or set {VARIABLE} to"
            " the same value everywhere; if the old key is lost, delete the rows of the table signing_keys,"
            " and everybody logs in again",
            code="signing-key-not-shared",
        )
    if signs and keys.newest.id in revoked:
        raise Conflict(
            f"this server would sign tokens with the key {keys.newest.id}, which was revoked: run `mooring keys"
            f" rotate`, or copy {FILE_NAME} from a server that has a newer key, or put one in front of {VARIABLE}",
            code="signing-key-revoked",
        )


def _read(path: Path) -> SigningKeys:
    if not is_private(path):
        raise InvalidInput(
            f"{path} can be read by other users of this machine; run: chmod 600 {path}", code="invalid-signing-key"
        )
    try:
        entries = json.loads(path.read_bytes())
        return SigningKeys([SigningKey(base64.b64decode(entry["key"], validate=True)) for entry in entries])
    except (ValueError, TypeError, KeyError, binascii.Error) as problem:
        raise InvalidInput(f"{path} is not a list of signing keys: {problem}", code="invalid-signing-key") from problem


def _write(path: Path, keys: Sequence[SigningKey]) -> SigningKeys:
    entries = [{"id": key.id, "key": base64.b64encode(key.secret).decode()} for key in keys]
    write_private(path, json.dumps(entries, indent=2))
    return SigningKeys(keys)
