"""Secrets and logins to registries as they travel: values in requests only."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Annotated

from pydantic import StringConstraints

from mooring.model.errors import InvalidInput
from mooring.wire.fields import UNSHOWN, Answer, Request

MAX_SECRET_BYTES = 64 * 1024
_MAX_WRITTEN_LENGTH = -(-MAX_SECRET_BYTES // 3) * 4

_BASE64 = r"^[A-Za-z0-9+/]+={0,2}$"

Written = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_WRITTEN_LENGTH, pattern=_BASE64)]


class SecretRequest(Request):
    value: Annotated[Written, UNSHOWN]
    """Its bytes in base64, 64 KiB of them at most."""

    @classmethod
    def of(cls, content: bytes) -> SecretRequest:
        """InvalidInput where it is empty or too long."""
        if not 1 <= len(content) <= MAX_SECRET_BYTES:
            raise InvalidInput(f"a secret has 1 to {MAX_SECRET_BYTES:,} bytes, not {len(content):,}")
        return cls(value=base64.b64encode(content).decode())

    @property
    def content(self) -> bytes:
        try:
            found = base64.b64decode(self.value, validate=True)
        except binascii.Error:
            raise InvalidInput("value: write the bytes of the secret in base64") from None
        if len(found) > MAX_SECRET_BYTES:
            raise InvalidInput(f"value: a secret has at most {MAX_SECRET_BYTES:,} bytes")
        return found


class SecretView(Answer):
    """The metadata of a secret. Its value is never returned."""

    name: str
    size: int
    """Bytes."""
    created_at: datetime
    updated_at: datetime


class RegistryLoginRequest(Request):
    username: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f:]+$")]
    password: Annotated[str, StringConstraints(max_length=16 * 1024, pattern=r"^[^\x00\r\n]+$"), UNSHOWN]
    """A password, or a token in its place."""


class RegistryLoginView(Answer):
    registry: str
    username: str
    created_at: datetime
    updated_at: datetime
