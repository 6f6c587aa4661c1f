"""Login throttling by account and address: guessing is slow, and no user can lock out another account.

Three counts of failures, each with a wait that doubles:

- of one account from one address: the usual guessing, slowed after 5 failures;
- of one address, whatever the account: trying one password on many accounts;
- of one account from all addresses: guessing from many machines. This wait is short, and never holds for an address
  that the account has logged in from before, so that an attack on an account does not keep its owner out.

Waits hold for the attempts that caused them only. Refused attempts cost no hashing and are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mooring.api.middleware.client_address import address_key
from mooring.api.middleware.load_shedding.failure_waits import FailureRule, FailureWaits
from mooring.api.middleware.load_shedding.open_counts import OpenCounts
from mooring.api.middleware.load_shedding.rates import MAX_KEYS, too_many
from mooring.model.errors import TooManyAttempts

_AT_ONCE = 4
"""Attempts from one address that are hashed or wait for it."""
_PAIR = FailureRule(5, 60.0)
_ADDRESS = FailureRule(20, 60.0)
_ACCOUNT = FailureRule(50, 10.0)


class LoginThrottle:
    """In the memory of one process."""

    def __init__(self, *, max_keys: int = MAX_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._pairs = FailureWaits(_PAIR, max_keys, clock)
        self._addresses = FailureWaits(_ADDRESS, max_keys, clock)
        self._accounts = FailureWaits(_ACCOUNT, max_keys, clock)
        self._attempts = OpenCounts()

    @contextmanager
    def attempt(self, address: str | None) -> Iterator[None]:
        """Count an attempt while it is made: one address cannot fill the queue that all others wait in."""
        close = self._attempts.open(address_key(address), _AT_ONCE)
        if close is None:
            raise _refused(1.0)
        try:
            yield
        finally:
            close()

    def check(self, account: str, address: str | None) -> None:
        """Raise TooManyAttempts while this account from this address, or the address at all, has to wait."""
        pair, of_address = self._pairs.missing_seconds(_pair(account, address)), self._address_seconds(address)
        if (left := max(pair, of_address)) > 0:
            raise _refused(left)

    def check_address(self, address: str | None) -> None:
        """Raise TooManyAttempts while the address has to wait, for attempts that name no account."""
        if (left := self._address_seconds(address)) > 0:
            raise _refused(left)

    def failed_address(self, address: str | None) -> None:
        """Count a failure that names no account."""
        self._addresses.failed(address_key(address))

    def is_attacked(self, account: str) -> bool:
        """Return whether the account is throttled; an address that it has logged in from before is exempt."""
        return self._accounts.missing_seconds(account) > 0

    def check_account(self, account: str) -> None:
        """Raise TooManyAttempts while the account is throttled, for an address that it has not logged in from."""
        if (left := self._accounts.missing_seconds(account)) > 0:
            raise _refused(left)

    def failed(self, account: str, address: str | None) -> None:
        self._pairs.failed(_pair(account, address))
        self._addresses.failed(address_key(address))
        self._accounts.failed(account)

    def succeeded(self, account: str, address: str | None) -> None:
        """Reset the pair. The address is not reset: an own account must not allow further guesses at others."""
        self._pairs.succeeded(_pair(account, address))

    def __len__(self) -> int:
        return len(self._pairs) + len(self._addresses) + len(self._accounts)

    def _address_seconds(self, address: str | None) -> float:
        return self._addresses.missing_seconds(address_key(address))


def _pair(account: str, address: str | None) -> str:
    return f"{account} {address_key(address)}"


def _refused(missing_seconds: float) -> TooManyAttempts:
    return too_many("failed logins", missing_seconds, code="too-many-attempts")
