"""Requests forwarded to the server that the agent of a task's node is connected to, with the client's credential."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

import aiohttp
from fastapi import Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from yarl import URL

from mooring.api.middleware.client_address import client_address
from mooring.api.middleware.flows import authorization
from mooring.api.services import Services
from mooring.api.streams.first_completed import run_until_first_ends
from mooring.model.errors import Unavailable
from mooring.wire.agents import channels as wire
from mooring.wire.versions import CLIENT_HEADER

FORWARDED = "Mooring-Passed-On"
"""Header of a forwarded request, with the client's address: such a request is not forwarded a second time."""
UNREACHABLE = "agent-unreachable"

_CONNECT_SECONDS = 5.0
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)


class NodeOnOtherServer(Unavailable):
    """The agent of a task's node is not connected here."""

    code = UNREACHABLE

    def __init__(self, message: str, server_url: str | None) -> None:
        """`server_url`: the server that it is connected to, or was last."""
        super().__init__(message)
        self.server_url = server_url


def forwarding_target(connection: HTTPConnection, problem: Unavailable, server_url: str | None) -> str:
    """Return the URL of the server to forward to; raise the problem if none is known or if it is this server."""
    if problem.code != UNREACHABLE or server_url is None or FORWARDED in connection.headers:
        raise problem
    return server_url.rstrip("/")


async def forward_channel(websocket: WebSocket, opening: str, server_url: str) -> wire.ChannelResult:
    """Relay frames between the client and the other server; return the ending from there."""
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.ws_connect(
                _url(websocket, server_url), headers=_headers(websocket), max_msg_size=0, heartbeat=15.0
            ) as far,
        ):
            await far.send_str(opening)
            ends: list[wire.ChannelResult] = []

            async def outward() -> None:
                async for message in far:
                    if message.type is aiohttp.WSMsgType.BINARY:
                        frame = wire.decode(message.data)
                        if isinstance(frame, wire.ChannelResult):
                            ends.append(frame)
                            return
                        await websocket.send_bytes(message.data)

            async def inward() -> None:
                while True:
                    message = await websocket.receive()
                    if message["type"] == "websocket.disconnect":
                        raise WebSocketDisconnect(message["code"])
                    await far.send_bytes(message.get("bytes") or b"")

            await run_until_first_ends(outward(), inward())
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        raise _unreachable() from problem
    if not ends:
        raise _unreachable()
    return ends[0]


async def forward_request(request: Request, server_url: str) -> Response:
    """Return the other server's response, streamed."""
    opened = AsyncExitStack()
    try:
        session = await opened.enter_async_context(aiohttp.ClientSession(timeout=_TIMEOUT, auto_decompress=False))
        answer = await opened.enter_async_context(
            session.request(
                request.method,
                _url(request, server_url),
                headers=_headers(request),
                data=request.stream() if request.method == "PUT" else None,
                allow_redirects=False,
            )
        )
        return _Answer(answer, opened)
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        await opened.aclose()
        raise _unreachable() from problem
    except BaseException:
        await opened.aclose()
        raise


class _Answer(StreamingResponse):
    def __init__(self, answer: aiohttp.ClientResponse, opened: AsyncExitStack) -> None:
        self._opened = opened
        super().__init__(_pieces(answer), status_code=answer.status, media_type=answer.headers.get("Content-Type"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._opened:
            await super().__call__(scope, receive, send)


async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for piece in answer.content.iter_any():
        yield piece


def _url(connection: HTTPConnection, server_url: str) -> URL:
    """Return the URL of the same request at the other server."""
    path, query = connection.scope["raw_path"].decode("ascii"), connection.scope["query_string"].decode("ascii")
    return URL(f"{server_url}{path}?{query}", encoded=True)


def _headers(connection: HTTPConnection) -> Mapping[str, str]:
    services: Services = connection.app.state.services
    credential = authorization(connection.scope).decode("latin-1")
    shown = {"Authorization": credential} if credential else {}
    if CLIENT_HEADER in connection.headers:
        shown[CLIENT_HEADER] = connection.headers[CLIENT_HEADER]
    return {**shown, FORWARDED: services.tokens.vouch(client_address(connection.scope), credential)}


def _unreachable() -> Unavailable:
    return Unavailable("the server that the task's node is connected to does not answer", code=UNREACHABLE)
