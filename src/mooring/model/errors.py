"""Errors that speak to the person who can act. Every one has a stable code; the API maps codes to HTTP in one place."""

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
    """What was asked cannot be meant; asking again unchanged will fail again."""

    code = "invalid-input"


class NotFound(MooringError):
    code = "not-found"


class Conflict(MooringError):
    """What was asked contradicts the present state."""

    code = "conflict"


class NotAuthenticated(MooringError):
    code = "not-authenticated"


class NotAllowed(MooringError):
    code = "not-allowed"


class TooManyAttempts(MooringError):
    code = "too-many-attempts"


class EventsPurged(MooringError):
    """A reader of the feed was away for longer than events are kept."""

    code = "events-purged"


class Unavailable(MooringError):
    """A part that is needed does not answer at the moment; asking again later may work."""

    code = "unavailable"


class LeadershipLost(MooringError):
    """Another scheduler holds a newer term; nothing of the transaction was written."""

    code = "leadership-lost"


class Outdated(MooringError):
    """Who asks is of a version that this one does not work with any more."""

    code = "client-too-old"
