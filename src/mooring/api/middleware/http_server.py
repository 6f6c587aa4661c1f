"""uvicorn with the bounds that it does not offer: time and size of headers, connections, pipelining, stalled clients,
and the bytes of unfinished WebSocket messages.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import TimerHandle
from functools import partial
from http import HTTPStatus
from socket import socket
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from mooring.api.middleware.errors import error_answer
from mooring.api.middleware.load_shedding.byte_budget import Reservation
from mooring.api.middleware.load_shedding.connections import CONNECTION, Connection, Connections
from mooring.api.middleware.load_shedding.shedding import Flow
from mooring.model.errors import TooManyAttempts

_READ_BYTES = 64 * 1024
_SLICE_BYTES = 2 * 1024
_MAX_FRAGMENTS = 1024
_TLS_HANDSHAKE_SECONDS = 10.0
_STALLED_BYTES = 256 * 1024
_TRY_AGAIN_LATER = 1013
_CLOSE_SECONDS = 2.0
"""For a client to close a WebSocket after the server has."""
_MESSAGE_SECONDS = 0.0001
"""Approximate cost of a message besides parsing it."""

# One for all connections: the event loop reads into it and hands it over before it reads again.
_read_buffer = bytearray(_READ_BYTES)


class HeadersTooLarge(Exception):
    pass


class ApiServer(uvicorn.Server):
    """A server for one listener, with a bound on TLS handshakes too."""

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await self.lifespan.startup()
        config = self.config
        factory = partial(
            config.http_protocol_class,  # type: ignore[call-arg]
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                factory,
                sock=listener,
                ssl=config.ssl,
                ssl_handshake_timeout=_TLS_HANDSHAKE_SECONDS if config.ssl else None,
                backlog=config.backlog,
            )
            for listener in sockets or []
        ]
        self.started = True


def protocols(connections: Connections) -> dict[str, Any]:
    """The protocols for `uvicorn.Config`."""
    return {
        "http": partial(BoundedHttp, connections),
        "ws": partial(BoundedWebSocket, connections),
        # Not one of Mooring's clients compresses; a compressed message is memory that nobody has sent.
        "ws_per_message_deflate": False,
    }


class BoundedHttp(HttpToolsProtocol):
    def __init__(self, connections: Connections, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._connections = connections
        self._limits = connections.limits
        self._connection: Connection | None = None
        self._header_bytes = 0
        self._header_timer: TimerHandle | None = None
        self._stalled = _StalledWrites(self._limits.stalled_seconds, self.loop)
        self._body_follows = False
        self._running: RequestResponseCycle | None = None
        """The request whose response is due; uvicorn's own `cycle` is the newest, which may be queued behind it."""

    # The event loop prefers these two over data_received where there are: reads are bounded by the buffer.
    def get_buffer(self, _hint: int) -> bytearray:
        return _read_buffer

    def buffer_updated(self, count: int) -> None:
        self.data_received(bytes(memoryview(_read_buffer)[:count]))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = self._connections.opened(transport, self.client)
        if self._connection is None:
            transport.abort()
        else:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_header_timer()
        self._stalled.stop()
        self._connections.closed(self.transport)
        self._end_request()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._header_timer is None and not self._in_progress:
            self._expect_headers()
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_timer is not None and self._header_bytes > self._limits.header_bytes + _READ_BYTES:
            self._refuse_headers()
        if self._body_follows:
            self._body_follows = False
            # Until the body is requested, no more of it is read than came together with the headers.
            if self.cycle.more_body and not self.transport.is_closing():
                self.flow.pause_reading()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(dict[str, Any], self.scope)[CONNECTION] = self._connection

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self._limits.header_bytes or len(self.headers) > self._limits.header_count:
            self._refuse_headers()
            raise HeadersTooLarge
        if len(self.pipeline) >= self._limits.pipelined:
            raise HeadersTooLarge
        self._cancel_header_timer()
        super().on_headers_complete()
        self._body_follows = any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in self.headers
        )

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid-http-request", msg)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _end_request(self) -> None:
        """Notify the request in progress that its client is gone; writing the response would raise an error."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def handle_websocket_upgrade(self) -> None:
        self._cancel_header_timer()
        self._stalled.stop()
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled.start(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled.stop()

    @property
    def _in_progress(self) -> bool:
        """True while a request awaits its response. Before the first one uvicorn has no cycle, despite its types."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _expect_headers(self) -> None:
        self._header_bytes = 0
        self._header_timer = self.loop.call_later(self._limits.header_seconds, self._headers_are_late)

    def _headers_are_late(self) -> None:
        self._header_timer = None
        if not self.transport.is_closing():
            self.transport.abort()

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse_headers(self) -> None:
        limits = self._limits
        message = f"URL and headers may have at most {limits.header_bytes} bytes in {limits.header_count} fields"
        self._refuse(431, "headers-too-large", message)

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer a request that never reaches the application, and close the connection."""
        if self.transport.is_closing():
            return
        answer = error_answer(status, code, message, headers={"Connection": "close"})
        headers = b"".join(name + b": " + value + b"\r\n" for name, value in answer.raw_headers)
        first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        self._end_request()
        self.transport.write(first + headers + b"\r\n" + bytes(answer.body))
        self.transport.close()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Parses nothing before the client is verified, and then no more than leads to a message.

    Tiny frames cost a hundred times their size in memory and far more time than it takes to send them, so a user's
    frames are also parsed for a limited share of the time.
    """

    def __init__(self, connections: Connections, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self.close_timeout = _CLOSE_SECONDS
        self._connections = connections
        self._flow: Flow | None = None
        """None: the client is not verified."""
        self._reservation: Reservation | None = None
        self._stalled = _StalledWrites(connections.limits.stalled_seconds, self.loop)
        self._unparsed = b""
        self._pause: TimerHandle | None = None

    def get_buffer(self, _hint: int) -> bytearray:
        return _read_buffer

    def buffer_updated(self, count: int) -> None:
        self.data_received(bytes(memoryview(_read_buffer)[:count]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stalled.stop()
        self._unparsed = b""
        if self._pause is not None:
            self._pause.cancel()
        self._drop_reservation()
        self._connections.closed(self.transport)
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        connection = self._connections.of(self.transport)
        if connection is not None and self.response.status_code == 101:
            connection.on_verified = self._on_verified
            cast(dict[str, Any], self.scope)[CONNECTION] = connection
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
        elif self._flow is not None:
            self._unparsed += data
            self._parse()
        # An unauthenticated client gets the reason, and everything that it sends is discarded.

    async def receive(self) -> Any:
        message = await self.queue.get()
        if self.queue.empty():
            self.read_paused = False
            self._parse()
        return message

    async def send(self, message: Any) -> None:
        if self.close_sent:
            # Closed by the protocol, as after a message that was too large: to a route, the client has gone.
            raise ConnectionResetError("the WebSocket is closed")
        await super().send(message)
        if self.close_sent:
            # To learn when the client closes.
            self._read()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled.start(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled.stop()

    def _on_verified(self, flow: Flow) -> None:
        self._flow = flow
        if flow.user_id is None:
            # An agent, whose node is known: it reports more at once than a user sends.
            self.conn.max_message_size = self._connections.limits.agent_message_bytes
        else:
            self._reservation = self._connections.load.reservation(flow)
        self._read()

    def _parse(self) -> None:
        while self._unparsed and not self.read_paused and self._pause is None and not self.transport.is_closing():
            part, self._unparsed = self._unparsed[:_SLICE_BYTES], self._unparsed[_SLICE_BYTES:]
            began = time.perf_counter()
            super().data_received(part)
            self._charge(time.perf_counter() - began + self.queue.qsize() * _MESSAGE_SECONDS)
        self._charge_unfinished()
        self._read()

    def _read(self) -> None:
        """Read on, or stop until what was read is parsed."""
        if self.transport.is_closing():
            return
        if self._unparsed or self.read_paused or self._pause is not None:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _charge(self, seconds: float) -> None:
        if self._flow is None or self._flow.user_id is None:
            return
        pause_seconds = self._connections.parsed(self._flow, seconds)
        if pause_seconds > 0 and self._pause is None:
            self._pause = self.loop.call_later(pause_seconds, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._parse()

    def _drop_reservation(self) -> None:
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None

    def _charge_unfinished(self) -> None:
        if self._reservation is None or self.transport.is_closing():
            return
        unfinished = len(self._unparsed) + len(self.conn.reader.buffer) + (self.conn.current_size or 0)
        try:
            self._reservation.resize(unfinished)
        except TooManyAttempts as error:
            self._fail(error.message)
        else:
            if len(self.frames) > _MAX_FRAGMENTS:
                self._fail(f"a message may have at most {_MAX_FRAGMENTS} fragments")

    def _fail(self, reason: str) -> None:
        self.frames = []
        self._unparsed = b""
        if not self.handshake_complete:
            self.transport.abort()
            return
        self.conn.fail(_TRY_AGAIN_LATER, reason[:100])
        self.handle_parser_exception()


class _StalledWrites:
    """Aborts a connection whose client does not read."""

    def __init__(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._seconds = seconds
        self._loop = loop
        self._timer: TimerHandle | None = None

    def start(self, transport: asyncio.Transport) -> None:
        self.stop()
        self._watch(transport, transport.get_write_buffer_size())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, transport: asyncio.Transport, size: int) -> None:
        self._timer = self._loop.call_later(self._seconds, self._check, transport, size)

    def _check(self, transport: asyncio.Transport, size: int) -> None:
        now = transport.get_write_buffer_size()
        # A stream whose reader pauses holds little and may stay.
        if now >= size and now > _STALLED_BYTES:
            transport.abort()
        else:
            self._watch(transport, now)
