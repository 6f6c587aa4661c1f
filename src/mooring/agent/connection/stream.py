"""The agent's connection to the server: it joins over HTTP once, then uses one WebSocket."""

from __future__ import annotations

import random
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import UUID

import aiohttp
import msgspec
import structlog

from mooring.model.errors import MooringError, Unavailable
from mooring.wire.agents.agent_protocol import (
    NODE_HEADER,
    FromAgent,
    FromServer,
    JoinAnswer,
    JoinRequest,
    decode_from_server,
    encode,
)

log = structlog.get_logger(__name__)

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_OFTENEST_PING_SECONDS, _RAREST_PING_SECONDS = 5.0, 15.0
_ENDS = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)
_REFUSALS = (400, 401, 403, 404, 409, 410, 422)


class AgentRefused(MooringError):
    """The server rejects this agent; retrying without a change does not help."""

    code = "agent-refused"


class Connection:
    """An open stream. Several tasks may send concurrently; sending blocks while the server reads slowly."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    @property
    def address(self) -> str | None:
        """Address of this machine as the server sees it, if there is no proxy in between."""
        name = self._socket.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else None

    async def send(self, message: FromAgent) -> None:
        try:
            await self._socket.send_str(encode(message))
        except (aiohttp.ClientError, ConnectionError) as error:
            raise Unavailable(f"the stream to the server broke: {error}") from error

    async def messages(self) -> AsyncIterator[FromServer]:
        """Yield messages until the stream ends; Unavailable if it breaks. Unknown messages are skipped."""
        while (frame := await self._receive()).type not in _ENDS:
            if frame.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                continue
            try:
                yield decode_from_server(frame.data)
            except msgspec.MsgspecError as error:
                log.warning("unknown message of the server", error=str(error))

    async def _receive(self) -> aiohttp.WSMessage:
        try:
            return await self._socket.receive()
        except (aiohttp.ClientError, ConnectionError) as error:
            # aiohttp answers pings here, and the transport may close at that moment.
            raise Unavailable(f"the stream to the server broke: {error}") from error

    async def close(self) -> None:
        with suppress(aiohttp.ClientError, ConnectionError):
            await self._socket.close()


class Server:
    """The server, reached through one of several addresses; each attempt uses the next."""

    def __init__(self, urls: Sequence[str], ca_file: Path | None = None) -> None:
        # Each agent uses a random order, so that agents spread over the servers.
        self._urls = deque(random.sample(urls, len(urls)))
        self.tls: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca_file) if ca_file is not None else True

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """Exchange the join token for a credential. Unavailable can be retried, AgentRefused cannot."""
        url = self.next_url()
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http,
                http.post(
                    f"{url}/api/agent/join",
                    data=msgspec.json.encode(request),
                    headers={"Content-Type": "application/json"},
                    ssl=self.tls,
                    allow_redirects=False,
                ) as answer,
            ):
                body = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the server at {url} cannot be reached: {error}") from error
        if status in _REFUSALS:
            raise AgentRefused(f"the server at {url} refused the join token: {_explained(body)}", code="join-refused")
        if status >= 300:
            raise Unavailable(f"the server at {url} answered {status}: {_explained(body)}")
        try:
            return msgspec.json.decode(body, type=JoinAnswer)
        except msgspec.MsgspecError as error:
            raise AgentRefused(f"{url} does not answer like a Mooring server: {error}") from error

    @asynccontextmanager
    async def connect(
        self, credential: str, node_id: UUID | None, heartbeat_seconds: float
    ) -> AsyncIterator[Connection]:
        """Open the stream for the block. Unavailable can be retried, AgentRefused cannot.

        A server that disappears silently is noticed within about two heartbeats, before the node becomes suspect.
        """
        url = self.next_url()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=5)) as http:
            try:
                socket = await http.ws_connect(
                    f"{url}/api/agent/stream",
                    headers={"Authorization": f"Bearer {credential}", NODE_HEADER: str(node_id)},
                    heartbeat=min(max(heartbeat_seconds, _OFTENEST_PING_SECONDS), _RAREST_PING_SECONDS),
                    max_msg_size=_MAX_MESSAGE_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                    ssl=self.tls,
                )
            except aiohttp.WSServerHandshakeError as error:
                if error.status in (401, 403):
                    raise AgentRefused(
                        f"the server at {url} no longer accepts this node's credential; join again with a new token",
                        code="credential-refused",
                    ) from error
                raise Unavailable(f"the server at {url} answered {error.status}") from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise Unavailable(f"the server at {url} cannot be reached: {error}") from error
            connection = Connection(socket)
            try:
                yield connection
            finally:
                await connection.close()

    def next_url(self) -> str:
        """Return the address for the next attempt."""
        self._urls.rotate(-1)
        return self._urls[-1].rstrip("/")


def _explained(body: bytes) -> str:
    """Return the error message from the server's response, in whichever field it is."""
    text = body.decode("utf-8", "replace")[:500]
    try:
        answer = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return text
    while isinstance(answer, dict):
        inner = answer.get("message") or answer.get("error") or answer.get("detail")
        if isinstance(inner, str):
            return inner
        answer = inner
    return text
