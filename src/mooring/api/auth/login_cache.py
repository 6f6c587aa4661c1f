"""Logins of credentials that were verified a moment ago, so that most requests need no query for theirs.

A login is used again only if no commit has touched the configuration since the query that found it began. A revocation
therefore counts from the next request on at the server that commits it, and at other servers when its signal arrives; a
lost signal delays it by at most a second.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from hashlib import blake2b

from mooring.api.auth.logins import Login
from mooring.concurrency.keyed_locks import KeyedLocks
from mooring.store.control.configuration_version import ConfigurationVersion

_LIFETIME = timedelta(seconds=1)
_MAX_LOGINS = 10_000


class LoginCache:
    def __init__(self, version: ConfigurationVersion | None = None) -> None:
        """Without a version nothing is cached."""
        self._version = version
        self._key = secrets.token_bytes(32)
        self._logins: OrderedDict[bytes, tuple[Login, int, datetime]] = OrderedDict()
        """By a keyed digest of the credential, so that no credential is kept; the newest comes last."""
        self._locks: KeyedLocks[bytes] = KeyedLocks()

    @property
    def version(self) -> int:
        """The version of the configuration, to be read before the query for a login."""
        return 0 if self._version is None else self._version.number

    def lookup(self, authorization: bytes) -> AbstractAsyncContextManager[None]:
        """Return a context in which no other request looks up this credential; check the cache again inside it."""
        return self._locks.hold(self._digest(authorization))

    def find(self, authorization: bytes, now: datetime) -> Login | None:
        found = self._logins.get(self._digest(authorization)) if self._logins else None
        if found is None:
            return None
        login, version, until = found
        # A clock that was set back must not extend a login.
        return login if version == self.version and until - _LIFETIME <= now < until else None

    def add(self, authorization: bytes, login: Login, version: int, now: datetime) -> None:
        """Keep the login of a credential, found by a query that began at this version."""
        if self._version is None:
            return
        digest = self._digest(authorization)
        self._logins.pop(digest, None)
        self._logins[digest] = login, version, now + _LIFETIME
        if len(self._logins) > _MAX_LOGINS:
            self._logins.popitem(last=False)

    def _digest(self, authorization: bytes) -> bytes:
        return blake2b(authorization, key=self._key, digest_size=32).digest()
