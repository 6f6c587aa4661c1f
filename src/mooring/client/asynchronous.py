"""`AsyncClient`: the API for asyncio programs, over aiohttp."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import aiohttp
from yarl import URL

from mooring.client.address import proxy_for, tls_context
from mooring.client.answers import read_answer, read_error, timed_out, unreachable, untrusted
from mooring.client.channels import Channel
from mooring.client.client_core import ClientCore
from mooring.client.connection import (
    HEADERS,
    IDLE_SECONDS,
    MAX_CONNECTIONS,
    SOCKET_OPTIONS,
    TIMEOUT_SECONDS,
)
from mooring.client.credentials import CredentialStore
from mooring.client.event_stream import EventReader
from mooring.client.operations import channels, core
from mooring.client.operations.operation import (
    ChannelRequest,
    Operation,
    Stream,
    Upload,
)
from mooring.client.retry_budget import RetryBudget
from mooring.model.errors import MooringError, NotAuthenticated, TooManyAttempts, Unavailable
from mooring.wire.cluster.events import EventView
from mooring.wire.tenancy.users import Token

_PING_SECONDS = 15.0

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClient(ClientCore):
    """The API of one server for the tasks of one event loop; close it, or use it in an `async with`.

    The default for `server` is the one that the command line would use. Without `token` or `keypair` (access key and
    secret), the client uses the stored login, and renews it when half of its lifetime has passed.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        keypair: tuple[str, str] | None = None,
        store: CredentialStore | None = None,
        ca_file: str | Path | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(server, token=token, keypair=keypair, store=store, timeout_seconds=timeout_seconds)
        self._renewing = asyncio.Lock()
        self._tls = tls_context(self.server, str(ca_file) if ca_file else None)
        self._session: aiohttp.ClientSession | None = None

    async def login(
        self,
        username: str,
        password: str,
        *,
        remember: bool = False,
        data_folder: Path | None = None,
        ca_file: str | None = None,
    ) -> Token:
        """Log in with a password. With `remember` the login is stored for the user, else it ends with this client."""
        token = await self._exchange(core.log_in(username, password))
        self._authentication.logged_in(username, token, remember=remember, data_folder=data_folder, ca_file=ca_file)
        return token

    async def change_password(self, old_password: str, new_password: str, *, revoke_keypairs: bool = False) -> None:
        """Change the user's own password. All other tokens of the user end; this client continues with a new one."""
        token = await self.send(core.change_password(old_password, new_password, revoke_keypairs=revoke_keypairs))
        self._authentication.password_changed(token)

    def run_command(
        self,
        task_id: str,
        command: Sequence[str],
        *,
        container: str | None = None,
        terminal: bool = False,
        rows: int = 24,
        columns: int = 80,
    ) -> AbstractAsyncContextManager[Channel]:
        """Run a command in a running task, connected to the channel."""
        return self._channel(
            channels.run_command(task_id, command, container=container, terminal=terminal, rows=rows, columns=columns)
        )

    def attach(
        self, task_id: str, *, container: str | None = None, replay: bool = False, output: bool = True
    ) -> AbstractAsyncContextManager[Channel]:
        """Attach to the input and output of a container.

        `replay`: first send the latest output from before; not `output`: only pass input.
        """
        return self._channel(channels.attach(task_id, container=container, replay=replay, output=output))

    def forward(self, ref: str, port: int | None = None) -> AbstractAsyncContextManager[Channel]:
        """Connect to a port of any ready task of a workload; without `port`, to its first port."""
        return self._channel(channels.forward(ref, port))

    def forward_to_task(self, task_id: str, port: int | None = None) -> AbstractAsyncContextManager[Channel]:
        """Connect to a port of this task."""
        return self._channel(channels.forward_to_task(task_id, port))

    async def store_files(
        self, task_id: str, path: str, archive: AsyncIterable[bytes], *, container: str | None = None
    ) -> None:
        """Extract a tar archive into a folder of a running task."""
        await self._upload(channels.store_files(task_id, path, container=container), archive)

    async def events(
        self, since: str | None = None, *, expand: bool = False, workload: str | None = None
    ) -> AsyncIterator[EventView]:
        """Yield events as they are committed, from a cursor or from now on, without end.

        A broken connection is opened again and continues without a gap. Raises EventsPurged if the events since the
        cursor have been deleted.
        """
        reader = EventReader(self.server, since)
        while True:
            problem: MooringError | None = None
            reader.begin()
            try:
                stream = core.events(reader.cursor, expand=expand, workload=workload)
                async for piece in self.stream(stream):
                    for event in reader.read(piece):
                        yield event
            except MooringError as error:
                problem = error
            await asyncio.sleep(reader.pause_seconds(problem))

    async def send(self, operation: Operation[T]) -> T:
        """Send an operation. An expired or refused login is renewed if that needs no input."""
        if not operation.authenticated:
            return await self._exchange(operation)
        await self._renew_if_due()
        sent = self._authentication.headers
        try:
            return await self._exchange(operation)
        except NotAuthenticated:
            if not await self._log_in_again(sent):
                raise
            return await self._exchange(operation)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _renew_if_due(self) -> None:
        if not self._authentication.renewal_due():
            return
        async with self._renewing:
            if not self._authentication.renewal_due() or self._authentication.taken_from_store():
                return
            try:
                self._authentication.renewed(await self._exchange(core.renew()))
            except NotAuthenticated:
                await self._use_password_again()
            except MooringError:
                # The old token may still be valid; if it is not, the request itself fails.
                return

    async def _log_in_again(self, refused: dict[str, str]) -> bool:
        async with self._renewing:
            if self._authentication.headers != refused or self._authentication.taken_from_store():
                return True
            return await self._use_password_again()

    async def _use_password_again(self) -> bool:
        login = self._authentication.password_again()
        if login is None:
            return False
        try:
            self._authentication.renewed(await self._exchange(core.log_in(login.username, login.password)))
        except MooringError:
            return False
        return True

    async def _exchange(self, operation: Operation[T]) -> T:
        budget = RetryBudget(self.timeout_seconds)
        while True:
            try:
                return await self._attempt(operation)
            except TooManyAttempts as error:
                pause = budget.pause_seconds(error)
            await asyncio.sleep(pause)

    async def _attempt(self, operation: Operation[T]) -> T:
        try:
            try:
                status, content = await self._ask(operation)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # An idle connection was closed as it was used: a repeatable request is sent once more.
                if not operation.repeatable:
                    raise
                status, content = await self._ask(operation)
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise self._failure(problem) from problem
        return read_answer(operation, status, content, self.server)

    async def _ask(self, operation: Operation[Any]) -> tuple[int, bytes]:
        async with self._open().request(
            operation.method,
            self._url(operation.path),
            params=operation.query,
            data=operation.content,
            headers=self._headers(operation),
            timeout=self._timeout(self.timeout_seconds + operation.holds_seconds),
            allow_redirects=False,
        ) as response:
            return response.status, await response.read()

    async def stream(self, stream: Stream) -> AsyncIterator[bytes]:
        await self._renew_if_due()
        budget, refreshed = RetryBudget(self.timeout_seconds), False
        while True:
            sent = self._authentication.headers
            try:
                async with self._open().get(
                    self._url(stream.path),
                    params=stream.query,
                    headers=sent,
                    timeout=self._timeout(stream.silent_seconds),
                    allow_redirects=False,
                ) as response:
                    if response.status == 200:
                        stream.check(response.headers.get("Content-Type", ""))
                        async for piece in response.content.iter_any():
                            yield piece
                        return
                    error = read_error(response.status, await response.read(), self.server)
            except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                raise self._failure(problem) from problem
            if isinstance(error, TooManyAttempts):
                await asyncio.sleep(budget.pause_seconds(error))
                continue
            if refreshed or not (isinstance(error, NotAuthenticated) and await self._log_in_again(sent)):
                raise error
            refreshed = True

    @asynccontextmanager
    async def _channel(self, channel_request: ChannelRequest) -> AsyncIterator[Channel]:
        await self._renew_if_due()
        refreshed = False
        while True:
            sent = self._authentication.headers
            try:
                socket = await self._open().ws_connect(
                    self._url(channel_request.path),
                    headers=sent,
                    heartbeat=_PING_SECONDS,
                    max_msg_size=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                )
                await socket.send_str(channel_request.opening.model_dump_json())
            except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                raise self._failure(problem) from problem
            async with Channel(socket, self.server) as channel:
                try:
                    await channel.opened()
                except NotAuthenticated:
                    if refreshed or not await self._log_in_again(sent):
                        raise
                    refreshed = True
                    continue
                yield channel
                return

    async def _upload(self, upload: Upload, pieces: AsyncIterable[bytes]) -> None:
        await self._renew_if_due()
        try:
            async with self._open().put(
                self._url(upload.path),
                params=upload.query,
                data=pieces,
                headers=self._authentication.headers,
                timeout=self._timeout(None),
                allow_redirects=False,
            ) as response:
                status, content = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise self._failure(problem) from problem
        if status != 204:
            raise read_error(status, content, self.server)

    def _open(self) -> aiohttp.ClientSession:
        # Created at first use: a session belongs to the loop that it is created on.
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=self._tls,
                limit=MAX_CONNECTIONS,
                keepalive_timeout=IDLE_SECONDS,
                socket_factory=_probing_socket,
            )
            self._session = aiohttp.ClientSession(connector=connector, headers=HEADERS, proxy=proxy_for(self.server))
        return self._session

    def _url(self, path: str) -> URL:
        return URL(self.server + path, encoded=True)

    def _timeout(self, seconds: float | None) -> aiohttp.ClientTimeout:
        connect = self._connect_seconds
        return aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=seconds)

    def _failure(self, problem: Exception) -> Unavailable:
        if isinstance(problem, TimeoutError):
            connecting = isinstance(problem, aiohttp.ConnectionTimeoutError)
            return timed_out(self.server, self._connect_seconds if connecting else self.timeout_seconds)
        if isinstance(problem, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError):
            return untrusted(self.server, problem)
        return unreachable(self.server, problem)


def _probing_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for option in SOCKET_OPTIONS:
        made.setsockopt(*option)
    return made
