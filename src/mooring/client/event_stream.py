"""A stream of server-sent events over many connections. Performs no I/O."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.client.answers import read_error
from mooring.concurrency import backoff
from mooring.model.errors import MooringError, TooManyAttempts, Unavailable
from mooring.wire.cluster.events import EventView

_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 10.0
_GONE = 410
_REVOKED = "access-revoked"


class EventReader:
    """The position of the stream, so that it continues without a gap after a broken connection."""

    def __init__(self, server: str, since: str | None) -> None:
        self.cursor = since
        self._server = server
        self._rest = b""
        self._connected_once = False
        self._pauses = _new_pauses()

    def begin(self) -> None:
        """Begin a new connection; discard a partial message of the old one."""
        self._rest = b""

    def read(self, piece: bytes) -> Iterator[EventView]:
        """Yield the events that this piece completes. The cursor moves when the next one is requested."""
        self._connected_once, self._pauses = True, _new_pauses()
        *messages, self._rest = (self._rest + piece).split(b"\n\n")
        for message in messages:
            fields = dict(_field(line) for line in message.split(b"\n") if line and not line.startswith(b":"))
            if fields.get("event") == "end":
                problem = read_error(_GONE, fields.get("data", "").encode(), self._server)
                if problem.code == _REVOKED:
                    return  # the server closes the stream; the next connection says what is left of the access
                raise problem
            if "data" in fields:
                yield EventView.model_validate_json(fields["data"])
            self.cursor = fields.get("id", self.cursor)

    def pause_seconds(self, problem: MooringError | None) -> float:
        """Return the pause before the next connection; raise an error that a new connection would not cure."""
        if problem is not None:
            curable = isinstance(problem, Unavailable | TooManyAttempts)
            if not curable or not self._connected_once:
                raise problem
            if isinstance(problem, TooManyAttempts):
                return float(problem.details.get("retry_after_seconds", _MAX_PAUSE_SECONDS))
        return next(self._pauses)


def _new_pauses() -> Iterator[float]:
    return backoff.delays(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, jitter=0)


def _field(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("utf-8", "replace").partition(":")
    return name, value.removeprefix(" ")
