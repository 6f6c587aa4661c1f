"""The outermost layer of the API: an id per request, bounds on bodies and load, and nothing unexpected gets out."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mooring.api.errors import error_answer, refusal
from mooring.api.pressure import RETRY_SECONDS, Pressure, Turn, overloaded
from mooring.model.errors import Outdated, TooManyAttempts
from mooring.model.names import shown
from mooring.store.engine import is_overtaken, is_temporary
from mooring.store.ids import new_id
from mooring.wire.fields import MAX_BODY_BYTES

REQUEST_ID = "X-Request-Id"
_CONTENT_TYPE_OPTIONS = "X-Content-Type-Options"
ALWAYS_ANSWERED = frozenset({"/health", "/ready", "/metrics"})
"""Asked by those who must know how the process is just when it has too much to do."""
TURN = "mooring.turn"
"""Where a request's turn is in its scope: a route that will only wait gives it back."""

_TURNED_AWAY = tuple(refusal(overloaded(seconds)) for seconds in RETRY_SECONDS)
"""Made before they are needed: an answer to one who is turned away has to cost next to nothing."""

log = structlog.get_logger()


class BodyTooLarge(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Place:
    """How a request stands before those who wait for a turn."""

    credential: int
    bounded: bool
    reserved: bool


class Boundary:
    """ASGI middleware around everything that speaks HTTP; WebSockets pass untouched."""

    def __init__(
        self,
        app: ASGIApp,
        pressure: Pressure,
        larger_bodies: Mapping[str, int] | None = None,
        streams: Callable[[Scope], bool] = lambda _scope: False,
        admit: Callable[[Scope], None] | None = None,
    ) -> None:
        """`larger_bodies`: paths whose bodies may have more bytes; `streams`: whose bodies the routes read themselves,
        as they come. `admit` refuses a request before it is read.
        """
        self._app = app
        self._pressure = pressure
        self._larger_bodies = larger_bodies or {}
        self._streams = streams
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        place = self._place(scope)
        request_id = new_id().hex
        if place.bounded and not place.reserved and not self._pressure.has_place(place.credential):
            await _turn_away(send, request_id)
            return
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await self._answer(scope, receive, send, request_id, place)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str, place: _Place) -> None:
        started = False
        turn: Turn | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                # A reader that is slow, or stays for hours, keeps nobody waiting.
                if turn is not None:
                    turn.release()
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                headers[_CONTENT_TYPE_OPTIONS] = "nosniff"
            await send(message)

        most_bytes = self._larger_bodies.get(scope["path"], MAX_BODY_BYTES)
        try:
            if self._admit is not None:
                self._admit(scope)
            # Before the turn: whoever sends slowly keeps nobody waiting.
            body = receive if self._streams(scope) else await _read_body(scope, receive, most_bytes)
            if body is not None:
                if place.bounded:
                    turn = scope[TURN] = await self._pressure.turn(place.credential, reserved=place.reserved)
                await self._app(scope, body, send_with_id)
            return
        except (Outdated, TooManyAttempts) as error:
            answer = refusal(error)
        except BodyTooLarge:
            message = f"a body may have at most {most_bytes} bytes"
            answer = error_answer(413, "body-too-large", message, headers={"Connection": "close"})
        except Exception as error:
            method, path = scope["method"], shown(scope["path"][:200])
            if not started and is_temporary(error):
                log.warning("The database does not answer", method=method, path=path, error=repr(error))
                answer = error_answer(503, "unavailable", "the database does not answer; try again soon")
            elif not started and is_overtaken(error):
                log.warning("A request was overtaken by another", method=method, path=path, error=repr(error))
                message = "what this is about was taken or removed at this very moment; look again, and try again"
                answer = error_answer(409, "overtaken", message)
            else:
                log.exception("A request failed", method=method, path=path)
                if started:
                    raise  # the server cuts the connection, so that half an answer is not taken for a whole one
                answer = error_answer(
                    500,
                    "internal-error",
                    f"the server failed at this; an admin finds it in the log as request {request_id}",
                    {"request_id": request_id},
                )
        finally:
            if turn is not None:
                turn.release()
        await answer(scope, receive, send_with_id)

    def _place(self, scope: Scope) -> _Place:
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        credential = self._pressure.credential(shown)
        reserved = scope["method"] == "GET" and self._pressure.trusts(credential)
        return _Place(credential, bounded=scope["path"] not in ALWAYS_ANSWERED, reserved=reserved)


def only_waits(scope: Scope) -> None:
    """The request has nothing more to do than to wait for something that may take long: others may begin."""
    turn: Turn | None = scope.get(TURN)
    if turn is not None:
        turn.release()


async def _turn_away(send: Send, request_id: str) -> None:
    answer = random.choice(_TURNED_AWAY)
    own = ((REQUEST_ID.encode(), request_id.encode()), (_CONTENT_TYPE_OPTIONS.encode(), b"nosniff"))
    await send({"type": "http.response.start", "status": answer.status_code, "headers": [*answer.raw_headers, *own]})
    await send({"type": "http.response.body", "body": answer.body})


async def _read_body(scope: Scope, receive: Receive, most_bytes: int) -> Receive | None:
    """What gives the whole body, however it was sent; None where the client has gone."""
    announced = Headers(scope=scope).get("content-length", "")
    if announced.isascii() and announced.isdigit() and len(announced) < 20 and int(announced) > most_bytes:
        raise BodyTooLarge
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > most_bytes:
            raise BodyTooLarge
        if not message.get("more_body", False):
            return _first(bytes(body), receive)


def _first(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives this body first."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
