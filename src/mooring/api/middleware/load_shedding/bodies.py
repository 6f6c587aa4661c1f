"""Reading request bodies within bounds: bytes of one body, bytes of all bodies together, and time."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from mooring.api.middleware.load_shedding.byte_budget import Reservation

BODY_WITHHELD = "mooring.body-withheld"
"""The scope's key for whether a body was left unread because the credential was not verified."""
_MIN_BYTES_PER_SECOND = 64 * 1024
"""A body that arrives faster than this may take as long as it needs."""


class BodyTooLarge(Exception):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.max_bytes = max_bytes


class BodyTooSlow(Exception):
    def __init__(self, received_bytes: int, seconds: float) -> None:
        super().__init__(received_bytes, seconds)
        self.received_bytes = received_bytes
        self.seconds = seconds


async def read_body(
    scope: Scope, receive: Receive, max_bytes: int, seconds: float, reservation: Reservation
) -> Receive | None:
    """Read the whole body and return a `receive` that gives it; None where the client has gone."""
    announced = Headers(scope=scope).get("content-length", "")
    if announced.isascii() and announced.isdigit() and (len(announced) >= 20 or int(announced) > max_bytes):
        raise BodyTooLarge(max_bytes)
    body = bytearray()
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(seconds) as deadline:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if len(body) > max_bytes:
                    raise BodyTooLarge(max_bytes)
                reservation.resize(len(body))
                if not message.get("more_body", False):
                    return _first(bytes(body), receive)
                deadline.reschedule(began + seconds + len(body) / _MIN_BYTES_PER_SECOND)
    except TimeoutError:
        raise BodyTooSlow(len(body), loop.time() - began) from None


def streamed_body(receive: Receive, seconds: float) -> Receive:
    """A `receive` for a route that reads the body as it arrives: no part may take longer than this."""
    received_bytes, complete = 0, False

    async def next_part() -> Message:
        nonlocal received_bytes, complete
        if complete:
            return await receive()
        try:
            async with asyncio.timeout(seconds):
                message = await receive()
        except TimeoutError:
            raise BodyTooSlow(received_bytes, seconds) from None
        received_bytes += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        return message

    return next_part


def has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def without_body(receive: Receive) -> Receive:
    """A `receive` for a request whose body nobody reads."""
    return _first(b"", receive)


def _first(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
