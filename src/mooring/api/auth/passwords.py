"""Passwords: hashed by Argon2 in threads, a few at a time, since each takes tens of milliseconds and megabytes.

The queue has no limit of its own: every request that hashes holds a seat of the load shedding until its response.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import cached_property

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

_AT_ONCE = 2


class Passwords:
    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
        self._limit = asyncio.Semaphore(_AT_ONCE)

    async def hash(self, password: str) -> str:
        async with self._limit:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def verify(
        self, password_hash: str | None, password: str, *, still_allowed: Callable[[], None] = lambda: None
    ) -> bool:
        """Return whether the password has this hash. Without a hash it is wrong, after the same amount of work.

        `still_allowed` is called right before the work and may raise: many attempts may have failed meanwhile.
        """
        async with self._limit:
            still_allowed()
            return await asyncio.to_thread(self._verify, password_hash, password)

    def _verify(self, password_hash: str | None, password: str) -> bool:
        try:
            self._hasher.verify(password_hash or self._nobodys, password)
        except (VerificationError, InvalidHashError):
            return False
        return password_hash is not None

    @cached_property
    def _nobodys(self) -> str:
        return self._hasher.hash(secrets.token_urlsafe(32))


def new_password() -> str:
    return secrets.token_urlsafe(12)
