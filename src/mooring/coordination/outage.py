"""Outages of a service that a server depends on: logged once when they begin and once when they end."""

from __future__ import annotations

from datetime import datetime

import structlog

from mooring.clock import monotonic, now

_log = structlog.get_logger(__name__)


class Outage:
    """The availability of one service; during an outage, its start and reason."""

    def __init__(self, service: str, consequence: str) -> None:
        """`consequence`: appended to the warning, for operators."""
        self._service = service
        self._consequence = consequence
        self._began: float | None = None
        self._since: datetime | None = None
        self._reason = ""

    @property
    def since(self) -> datetime | None:
        """Start of the outage; None while the service answers."""
        return self._since

    @property
    def seconds(self) -> float:
        """Duration so far; 0 while the service answers."""
        return 0.0 if self._began is None else monotonic() - self._began

    @property
    def reason(self) -> str | None:
        """Reason of the outage; None while the service answers."""
        return None if self._since is None else f"{self._service} does not answer ({self._reason})"

    def failed(self, error: Exception) -> None:
        self._reason = in_short(error)
        if self._began is None:
            self._began, self._since = monotonic(), now()
            _log.warning(f"{self._service} does not answer; {self._consequence}", error=str(error))

    def over(self) -> None:
        if self._began is not None:
            _log.info(f"{self._service} answers again after {self.seconds:.1f} s")
            self._began = self._since = None


def in_short(error: Exception) -> str:
    """Return the kind of an error only: every user may read it, and the message may contain addresses and rows."""
    return str(getattr(error, "status", None) or type(error).__name__)
