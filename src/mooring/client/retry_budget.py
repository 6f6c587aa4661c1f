"""Retries of requests that an overloaded server refused, after the time that it asks for."""

from __future__ import annotations

from mooring.concurrency import backoff
from mooring.model.errors import TooManyAttempts

_RETRIABLE = frozenset({"overloaded", "too-many-requests"})
"""The server did nothing, so any request may be sent again. Failed logins and stream limits are not retried."""
_MAX_JITTER = 1.25
"""Longest pause as a multiple of the requested one, so that clients refused together do not return together."""


class RetryBudget:
    """The total time for which one request may be delayed."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def pause_seconds(self, error: TooManyAttempts) -> float:
        """Return the pause before the next attempt; raise the error if it is not retriable or the pause too long."""
        asked = error.details.get("retry_after_seconds")
        if error.code not in _RETRIABLE or not isinstance(asked, int | float) or asked > self._left:
            raise error
        self._left -= asked
        return backoff.jittered(asked * _MAX_JITTER, 1 - 1 / _MAX_JITTER)
