"""Tokens: who logged in when, signed. What a user may do is never in them but looked up at every request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import jwt

from mooring import clock
from mooring.api.signing import SigningKeys
from mooring.model.errors import NotAuthenticated

ISSUER = "mooring"
AUDIENCE = "mooring-api"
_ALGORITHM = "HS256"
_RENEWABLE = timedelta(days=7)
# Clocks of servers differ a little.
_LEEWAY_SECONDS = 5
_MAX_LENGTH = 4096
_REQUIRED = ["iss", "aud", "exp", "iat", "sub", "epoch", "auth_time"]


@dataclass(frozen=True, slots=True)
class Claims:
    user_id: UUID
    epoch: int
    """Of the user when the token was given out; a token of an older epoch is over."""
    auth_time: datetime
    """When the password was given."""


@dataclass(frozen=True, slots=True)
class SignedToken:
    text: str
    expires_in_seconds: int


class Tokens:
    def __init__(
        self,
        keys: SigningKeys,
        *,
        lifetime_seconds: int = 3600,
        now: Callable[[], datetime] = clock.now,
    ) -> None:
        self._keys = keys
        self._lifetime = timedelta(seconds=lifetime_seconds)
        self._now = now

    def issue(self, claims: Claims) -> SignedToken:
        """A token for this login; NotAuthenticated where the login is too long ago."""
        now = self._now()
        expires = min(now + self._lifetime, claims.auth_time + _RENEWABLE)
        if expires <= now:
            raise NotAuthenticated(
                f"the last login by password is more than {_RENEWABLE.days} days ago; log in again", code="login-again"
            )
        issued_at, expires_at = int(now.timestamp()), int(expires.timestamp())
        payload = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": str(claims.user_id),
            "epoch": claims.epoch,
            "auth_time": int(claims.auth_time.timestamp()),
            "iat": issued_at,
            "exp": expires_at,
        }
        key = self._keys.newest
        text = jwt.encode(payload, key.secret, algorithm=_ALGORITHM, headers={"kid": key.id})
        return SignedToken(text, expires_at - issued_at)

    def verify(self, text: str) -> Claims:
        """What the token says, or NotAuthenticated with what is wrong with it."""
        try:
            return _claims(self._decode(text))
        except jwt.ExpiredSignatureError:
            raise NotAuthenticated("this token has expired; log in again", code="token-expired") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, OSError, RecursionError):
            raise NotAuthenticated("this token is not valid here; log in again", code="token-invalid") from None

    def _decode(self, text: str) -> dict[str, Any]:
        if len(text) > _MAX_LENGTH:
            raise jwt.InvalidTokenError("too long")
        key_id = jwt.get_unverified_header(text).get("kid")
        key = self._keys.find(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise jwt.InvalidTokenError("unknown key")
        decoded: dict[str, Any] = jwt.decode(
            text,
            key.secret,
            algorithms=[_ALGORITHM],
            issuer=ISSUER,
            audience=AUDIENCE,
            leeway=_LEEWAY_SECONDS,
            options={"require": _REQUIRED},
        )
        return decoded


def _claims(decoded: dict[str, Any]) -> Claims:
    epoch, auth_time = decoded["epoch"], decoded["auth_time"]
    if type(epoch) is not int or type(auth_time) is not int:
        raise jwt.InvalidTokenError("a claim has a wrong type")
    return Claims(UUID(decoded["sub"]), epoch, datetime.fromtimestamp(auth_time, UTC))
