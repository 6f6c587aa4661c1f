"""A stream of server-sent events as a client follows it over many connections. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.client.answers import read_error
from mooring.model.errors import MooringError, TooManyAttempts, Unavailable
from mooring.wire.api import EventView

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
_GONE = 410


class EventReader:
    """Where the stream is, so that after a break it goes on with exactly what was missed."""

    def __init__(self, server: str, since: str | None) -> None:
        self.cursor = since
        self._server = server
        self._rest = b""
        self._connected_once = False
        self._pause = _FIRST_PAUSE_SECONDS

    def begin(self) -> None:
        """A new connection; half a message of the old one is worth nothing."""
        self._rest = b""

    def read(self, piece: bytes) -> Iterator[EventView]:
        """The events that are complete with this piece. The cursor moves when the next one is asked for."""
        self._connected_once, self._pause = True, _FIRST_PAUSE_SECONDS
        *messages, self._rest = (self._rest + piece).split(b"\n\n")
        for message in messages:
            fields = dict(_field(line) for line in message.split(b"\n") if line and not line.startswith(b":"))
            if fields.get("event") == "end":
                raise read_error(_GONE, fields.get("data", "").encode(), self._server)
            if "data" in fields:
                yield EventView.model_validate_json(fields["data"])
            self.cursor = fields.get("id", self.cursor)

    def pause_seconds(self, problem: MooringError | None) -> float:
        """How long to wait before the next connection; raises what another connection would not cure."""
        if problem is not None:
            curable = isinstance(problem, Unavailable | TooManyAttempts)
            if not curable or not self._connected_once:
                raise problem
            if isinstance(problem, TooManyAttempts):
                return float(problem.details.get("retry_after_seconds", _LONGEST_PAUSE_SECONDS))
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return pause


def _field(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("utf-8", "replace").partition(":")
    return name, value.removeprefix(" ")
