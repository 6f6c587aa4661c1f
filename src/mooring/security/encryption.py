"""Encryption of secrets in the database with keys that are not stored there but in a file, each with an id.

The first key of the file encrypts, all of them decrypt. A ciphertext is bound to its project and name, so that a row
copied to another name or project cannot be decrypted there.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mooring.model.errors import Conflict
from mooring.security.private_files import is_private, locked, write_private

SETTING = "MOORING_SEALING_KEYS_FILE"
_KEY_BYTES = 32
_NONCE_BYTES = 12
OVERHEAD_BYTES = _NONCE_BYTES + 16
"""Bytes that encryption adds."""
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class CannotOpen(Conflict):
    """A secret cannot be decrypted; the message names what is missing."""

    code = "cannot-open"


@dataclass(frozen=True, slots=True)
class Sealed:
    """Nonce, ciphertext and tag, and the id of the key."""

    key_id: str
    data: bytes


class SecretBox:
    """The keys of a file, which is read again whenever it changed: keys rotate while servers run."""

    def __init__(self, file: Path | None) -> None:
        """None: there are no keys, and nothing can be sealed."""
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self._keys: Mapping[str, bytes] = {}

    def check(self) -> None:
        """Conflict where the file cannot be used."""
        self._current()

    @property
    def key_ids(self) -> list[str]:
        """Return the id of the key that encrypts, then the others."""
        return list(self._current())

    def seal(self, value: bytes, *purpose: str) -> Sealed:
        keys = self._current()
        if not keys:
            raise Conflict(
                "this server has no key to encrypt secrets: an operator creates a file with one, which only the server"
                f" can read, and names it in {SETTING} on every server of the database",
                code="no-sealing-keys",
            )
        key_id, key = next(iter(keys.items()))
        nonce = os.urandom(_NONCE_BYTES)
        return Sealed(key_id, nonce + AESGCM(key).encrypt(nonce, value, _bound(purpose)))

    def open(self, sealed: Sealed, *purpose: str) -> bytes:
        key = self._current().get(sealed.key_id)
        if key is None:
            raise CannotOpen(
                f"it was encrypted with the key {sealed.key_id!r}, which this server does not have: an operator adds it"
                f" to the file that {SETTING} names",
                code="sealing-key-missing",
                details={"key": sealed.key_id},
            )
        nonce, rest = sealed.data[:_NONCE_BYTES], sealed.data[_NONCE_BYTES:]
        try:
            return AESGCM(key).decrypt(nonce, rest, _bound(purpose))
        except (InvalidTag, ValueError):
            raise CannotOpen(
                f"it cannot be decrypted with the key {sealed.key_id!r}: it was changed or moved, or"
                " another key has this id",
                code="seal-broken",
                details={"key": sealed.key_id},
            ) from None

    def _current(self) -> Mapping[str, bytes]:
        if self._file is not None and (seen := _version(self._file)) != self._seen:
            self._keys, self._seen = _read(self._file), seen
        return self._keys


def open_keys(file: Path | None, *, create: bool) -> SecretBox:
    """Return the keys of a server. Raise `Conflict` if the file is not usable; `create` creates a missing one."""
    if file is not None and create:
        ensure(file)
    found = SecretBox(file)
    found.check()
    return found


def ensure(file: Path) -> None:
    """A file with a first key, unless there is one."""
    with locked(file.parent):
        if not file.exists():
            write_private(file, _new_line())


def add_key(file: Path) -> str:
    """A new key in front of those that are there; its id."""
    with locked(file.parent):
        old = file.read_text() if file.exists() else ""
        if old:
            _read(file)
        new = _new_line()
        write_private(file, new + old)
        return new.partition(":")[0]


def _new_line() -> str:
    return f"{secrets.token_hex(4)}:{base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()}\n"


def _version(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        raise _unusable(file, error.strerror or "cannot be read") from None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(file: Path) -> Mapping[str, bytes]:
    try:
        if not is_private(file):
            raise _unusable(file, f"can be read by other users of this machine; run: chmod 600 {file}")
        lines = file.read_text("ascii").splitlines()
    except OSError as error:
        raise _unusable(file, error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise _unusable(file, "does not consist of lines `id:key`") from None
    keys: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        key_id, _, written = line.strip().partition(":")
        try:
            key = base64.b64decode(written, validate=True)
        except binascii.Error:
            key = b""
        if not _KEY_ID.fullmatch(key_id) or len(key) != _KEY_BYTES:
            raise _unusable(file, f"line {number} is not `id:key` with {_KEY_BYTES} bytes in base64")
        if key_id in keys:
            raise _unusable(file, f"two keys have the id {key_id!r}")
        keys[key_id] = key
    if not keys:
        raise _unusable(file, 'has no key; create one with: echo "$(date +%F):$(openssl rand -base64 32)"')
    return keys


def _unusable(file: Path, why: str) -> Conflict:
    return Conflict(f"the file of sealing keys {file}: {why}", code="invalid-sealing-keys")


def _bound(purpose: tuple[str, ...]) -> bytes:
    return json.dumps(purpose).encode()
