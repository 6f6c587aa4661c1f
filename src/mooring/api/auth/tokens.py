"""Tokens: the signed user and time of a login. Permissions are never in them but looked up at every request.

Servers with the same keys also sign statements for each other, such as the address of a client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import jwt

from mooring import clock
from mooring.api.auth.signing import SigningKeys
from mooring.model.errors import NotAuthenticated

ISSUER = "mooring"
AUDIENCE = "mooring-api"
_FELLOWS = "mooring-servers"
_ALGORITHM = "HS256"
_RENEWABLE = timedelta(days=7)
# Clocks of servers differ a little.
_LEEWAY_SECONDS = 5
_MAX_LENGTH = 4096
_REQUIRED = ["iss", "aud", "exp", "iat", "sub"]
_VOUCHED_SECONDS = 60
_WRONG = (jwt.PyJWTError, KeyError, ValueError, TypeError, OverflowError, OSError, RecursionError)


@dataclass(frozen=True, slots=True)
class Claims:
    user_id: UUID
    epoch: int
    """Epoch of the user when the token was issued; tokens of older epochs are invalid."""
    auth_time: datetime
    """Time of the login by password."""
    key_id: str = ""
    """Of the key that signed the token."""
    login_id: UUID | None = None
    """Of the stored login; None in tokens that older servers issued."""


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

    @property
    def key_id(self) -> str:
        """Of the key that signs."""
        return self._keys.newest.id

    def issue(self, claims: Claims) -> SignedToken:
        """Return a token for this login; raise NotAuthenticated if the login is too old."""
        now = self._now()
        expires = min(now + self._lifetime, claims.auth_time + _RENEWABLE)
        if expires <= now:
            raise NotAuthenticated(
                f"the last login by password is more than {_RENEWABLE.days} days ago; log in again", code="login-again"
            )
        own: dict[str, Any] = {"epoch": claims.epoch, "auth_time": int(claims.auth_time.timestamp())}
        if claims.login_id is not None:
            own["sid"] = str(claims.login_id)
        text = self._encode(AUDIENCE, str(claims.user_id), now, expires, own)
        return SignedToken(text, int(expires.timestamp()) - int(now.timestamp()))

    def verify(self, text: str) -> Claims:
        """Return the claims of a valid token; raise NotAuthenticated with the problem otherwise."""
        try:
            return _claims(*self._decode(text, AUDIENCE))
        except jwt.ExpiredSignatureError:
            raise NotAuthenticated("this token has expired; log in again", code="token-expired") from None
        except _WRONG:
            raise NotAuthenticated("this token is not valid here; log in again", code="token-invalid") from None

    def vouch(self, address: str | None, credential: str) -> str:
        """Return a statement for servers that share the keys: this credential was shown here from that address."""
        now = self._now()
        until = now + timedelta(seconds=_VOUCHED_SECONDS)
        return self._encode(_FELLOWS, _digest(credential), now, until, {"address": address})

    def vouched(self, text: str, credential: str) -> str | None:
        """Return the address that another server vouches for; None if none does, for this credential and now."""
        try:
            decoded, _key_id = self._decode(text, _FELLOWS)
        except _WRONG:
            return None
        address = decoded.get("address")
        return address if decoded["sub"] == _digest(credential) and isinstance(address, str) else None

    def _encode(self, audience: str, subject: str, now: datetime, expires: datetime, own: Mapping[str, Any]) -> str:
        times = {"iat": int(now.timestamp()), "exp": int(expires.timestamp())}
        key = self._keys.newest
        payload = {"iss": ISSUER, "aud": audience, "sub": subject, **times, **own}
        return jwt.encode(payload, key.secret, algorithm=_ALGORITHM, headers={"kid": key.id})

    def _decode(self, text: str, audience: str) -> tuple[dict[str, Any], str]:
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
            audience=audience,
            leeway=_LEEWAY_SECONDS,
            options={"require": _REQUIRED},
        )
        return decoded, key.id


def _digest(credential: str) -> str:
    return hashlib.sha256(credential.encode()).hexdigest()


def _claims(decoded: dict[str, Any], key_id: str) -> Claims:
    epoch, auth_time = decoded["epoch"], decoded["auth_time"]
    if type(epoch) is not int or type(auth_time) is not int:
        raise jwt.InvalidTokenError("a claim has the wrong type")
    login_id = decoded.get("sid")
    return Claims(
        UUID(decoded["sub"]),
        epoch,
        datetime.fromtimestamp(auth_time, UTC),
        key_id,
        None if login_id is None else UUID(login_id),
    )
