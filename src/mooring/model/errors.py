"""Errors with a message for the reader and a stable code, which the API maps to HTTP in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class MooringError(Exception):
    """The base of every error that Mooring raises on purpose."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class InvalidInput(MooringError):
    """The request is invalid; repeating it unchanged fails again."""

    code = "invalid-input"


class NotFound(MooringError):
    code = "not-found"


class Conflict(MooringError):
    """The request conflicts with the present state."""

    code = "conflict"


class NotAuthenticated(MooringError):
    code = "not-authenticated"


class NotAllowed(MooringError):
    code = "not-allowed"


class TooManyAttempts(MooringError):
    code = "too-many-attempts"


class EventsPurged(MooringError):
    """A reader of the feed was away for longer than events are retained."""

    code = "events-purged"


class Unavailable(MooringError):
    """A required component does not answer at the moment; a later attempt may succeed."""

    code = "unavailable"


class LeadershipLost(MooringError):
    """Another scheduler has a newer term; nothing of the transaction was written."""

    code = "leadership-lost"


class Outdated(MooringError):
    """The caller's version is no longer supported."""

    code = "client-too-old"
