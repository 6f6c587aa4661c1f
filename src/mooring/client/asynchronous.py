"""`AsyncClient`: the API for programs on an event loop; HTTP by aiohttp."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import aiohttp
from yarl import URL

from mooring.client import accounting, bookings, confidential, operations, rollouts, tenancy, ways_in
from mooring.client import scaling as growing
from mooring.client import volumes as keeping
from mooring.client.address import canonical_address, proxy_for, resolve_server, tls_context
from mooring.client.answers import read_answer, read_error, timed_out, unreachable, untrusted
from mooring.client.authentication import Authentication
from mooring.client.channels import Channel
from mooring.client.connection import (
    CONNECT_SECONDS,
    HEADERS,
    IDLE_SECONDS,
    MAX_CONNECTIONS,
    SOCKET_OPTIONS,
    TIMEOUT_SECONDS,
)
from mooring.client.credentials import CredentialStore
from mooring.client.event_stream import EventReader
from mooring.client.operation import Operation, Stream, Upload, Way
from mooring.client.patience import Patience
from mooring.model.errors import MooringError, NotAuthenticated, TooManyAttempts, Unavailable
from mooring.wire.api import EventView, Token

_PING_SECONDS = 15.0

P = ParamSpec("P")
T = TypeVar("T")


def _sent(
    operation: Callable[P, Operation[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The method that sends an operation."""

    @wraps(operation)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.send(operation(*args, **kwargs))

    return method


class AsyncClient:
    """The API of one server for the tasks of one event loop; close it, or use it in an `async with`.

    Without `server`, the one that the command line would use. Without `token` or `keypair` (access key and secret), the
    user's stored login for it, which is renewed when half of its life is over.
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
        store = store or CredentialStore.of_user()
        self.server = canonical_address(server) if server else resolve_server(None, store)
        self.timeout_seconds = timeout_seconds
        self._authentication = Authentication(self.server, token=token, keypair=keypair, store=store)
        self._renewing = asyncio.Lock()
        self._tls = tls_context(self.server, str(ca_file) if ca_file else None)
        self._session: aiohttp.ClientSession | None = None

    me = _sent(operations.me)
    create_user = _sent(operations.create_user)
    users = _sent(operations.users)
    user = _sent(operations.user)
    change_user = _sent(operations.change_user)
    remove_user = _sent(operations.remove_user)

    domains = _sent(tenancy.domains)
    domain = _sent(tenancy.domain)
    create_domain = _sent(tenancy.create_domain)
    change_domain = _sent(tenancy.change_domain)
    remove_domain = _sent(tenancy.remove_domain)
    projects = _sent(tenancy.projects)
    project = _sent(tenancy.project)
    create_project = _sent(tenancy.create_project)
    change_project = _sent(tenancy.change_project)
    remove_project = _sent(tenancy.remove_project)
    members = _sent(tenancy.members)
    add_member = _sent(tenancy.add_member)
    remove_member = _sent(tenancy.remove_member)
    keypairs = _sent(tenancy.keypairs)
    keypair = _sent(tenancy.keypair)
    create_keypair = _sent(tenancy.create_keypair)
    change_keypair = _sent(tenancy.change_keypair)
    remove_keypair = _sent(tenancy.remove_keypair)
    policies = _sent(tenancy.policies)
    policy = _sent(tenancy.policy)
    create_policy = _sent(tenancy.create_policy)
    change_policy = _sent(tenancy.change_policy)
    revert_policy = _sent(tenancy.revert_policy)
    remove_policy = _sent(tenancy.remove_policy)
    revert_pool = _sent(tenancy.revert_pool)
    pool_access = _sent(tenancy.pool_access)
    grant_pool_access = _sent(tenancy.grant_pool_access)
    revoke_pool_access = _sent(tenancy.revoke_pool_access)
    actions = _sent(tenancy.actions)

    secrets = _sent(confidential.secrets)
    secret = _sent(confidential.secret)
    put_secret = _sent(confidential.put_secret)
    remove_secret = _sent(confidential.remove_secret)
    registry_logins = _sent(confidential.registry_logins)
    put_registry_login = _sent(confidential.put_registry_login)
    remove_registry_login = _sent(confidential.remove_registry_login)
    volumes = _sent(keeping.volumes)
    volume = _sent(keeping.volume)
    create_volume = _sent(keeping.create_volume)
    remove_volume = _sent(keeping.remove_volume)

    submit = _sent(operations.submit)
    submit_batch = _sent(operations.submit_batch)
    dry_run = _sent(operations.dry_run)
    workloads = _sent(operations.workloads)
    workload = _sent(operations.workload)
    explanation = _sent(operations.explanation)
    compare = _sent(operations.compare)
    history = _sent(operations.history)
    wait = _sent(operations.wait)
    tasks = _sent(operations.tasks)
    scale = _sent(operations.scale)
    extend = _sent(operations.extend)
    remove = _sent(operations.remove)
    create_session = _sent(operations.create_session)
    sessions = _sent(operations.sessions)
    session = _sent(operations.session)
    cancel_session = _sent(operations.cancel_session)
    cancel = _sent(operations.cancel)
    event_page = _sent(operations.event_page)

    update = _sent(rollouts.update)
    roll_back = _sent(rollouts.roll_back)
    pause_rollout = _sent(rollouts.pause_rollout)
    resume_rollout = _sent(rollouts.resume_rollout)
    revisions = _sent(rollouts.revisions)
    endpoints = _sent(rollouts.endpoints)

    book = _sent(bookings.book)
    timeslots = _sent(bookings.timeslots)
    timeslot = _sent(bookings.timeslot)
    wait_for_timeslot = _sent(bookings.wait_for_timeslot)
    change_timeslot = _sent(bookings.change_timeslot)
    cancel_timeslot = _sent(bookings.cancel_timeslot)
    calendar = _sent(bookings.calendar)
    create_maintenance = _sent(bookings.create_maintenance)
    create_lab = _sent(bookings.create_lab)
    labs = _sent(bookings.labs)
    lab = _sent(bookings.lab)
    cancel_lab = _sent(bookings.cancel_lab)

    nodes = _sent(operations.nodes)
    node = _sent(operations.node)
    add_node = _sent(operations.add_node)
    drain_node = _sent(operations.drain_node)
    change_taints = _sent(operations.change_taints)
    resume_node = _sent(operations.resume_node)
    remove_node = _sent(operations.remove_node)
    quarantine = _sent(operations.quarantine)
    end_quarantined = _sent(operations.end_quarantined)
    pools = _sent(operations.pools)
    pool = _sent(operations.pool)
    create_pool = _sent(operations.create_pool)
    change_pool = _sent(operations.change_pool)
    pause_pool = _sent(operations.pause_pool)
    resume_pool = _sent(operations.resume_pool)
    remove_pool = _sent(operations.remove_pool)
    node_templates = _sent(growing.node_templates)
    put_node_template = _sent(growing.put_node_template)
    remove_node_template = _sent(growing.remove_node_template)
    scaling = _sent(growing.scaling)
    quotas = _sent(operations.quotas)
    quota = _sent(operations.quota)
    change_quota = _sent(operations.change_quota)
    revert_quota = _sent(operations.revert_quota)
    create_join_token = _sent(operations.create_join_token)

    usage = _sent(accounting.usage)
    workload_records = _sent(accounting.workload_records)
    task_use = _sent(accounting.task_use)
    free = _sent(accounting.free)
    timeline = _sent(accounting.timeline)

    health = _sent(operations.health)
    ready = _sent(operations.ready)
    metrics = _sent(operations.metrics)
    audit = _sent(operations.audit)
    repair = _sent(operations.repair)
    leader = _sent(operations.leader)
    servers = _sent(operations.servers)
    loops = _sent(operations.loops)
    resign = _sent(operations.resign)
    run_pass = _sent(operations.run_pass)

    @property
    def username(self) -> str | None:
        """Whose login is used, as far as this machine knows."""
        return self._authentication.username

    async def login(
        self,
        username: str,
        password: str,
        *,
        remember: bool = False,
        data_folder: Path | None = None,
        ca_file: str | None = None,
    ) -> Token:
        """Log in by password. With `remember` the login goes to the user's store, else it ends with this client."""
        token = await self._exchange(operations.log_in(username, password))
        self._authentication.logged_in(username, token, remember=remember, data_folder=data_folder, ca_file=ca_file)
        return token

    async def change_password(self, old_password: str, new_password: str) -> None:
        """Change one's own password. Every other token of the user ends; this client goes on with a new one."""
        token = await self.send(operations.change_password(old_password, new_password))
        self._authentication.password_changed(token)

    def logs(
        self,
        ref: str,
        *,
        task: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        follow: bool = False,
        container: str | None = None,
    ) -> AsyncIterator[bytes]:
        """The output of one task in pieces as they come; with `follow` until the task has ended.

        Of a task that was tried several times it is that of one `attempt`, else of the newest; of one with several
        containers that of one `container`, else of the first.
        """
        stream = operations.logs(ref, task=task, attempt=attempt, tail=tail, follow=follow, container=container)
        return self._stream(stream)

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
        """A command in a task that runs, connected with the channel."""
        return self._channel(
            ways_in.run_command(task_id, command, container=container, terminal=terminal, rows=rows, columns=columns)
        )

    def attach(self, task_id: str, *, container: str | None = None) -> AbstractAsyncContextManager[Channel]:
        """The input and output of a container itself."""
        return self._channel(ways_in.attach(task_id, container=container))

    def forward(self, ref: str, port: int | None = None) -> AbstractAsyncContextManager[Channel]:
        """A connection with a port of any task of a workload that is ready; without `port` the task's first."""
        return self._channel(ways_in.forward(ref, port))

    def forward_to_task(self, task_id: str, port: int | None = None) -> AbstractAsyncContextManager[Channel]:
        """As `forward`, to this very task."""
        return self._channel(ways_in.forward_to_task(task_id, port))

    def fetch_files(self, task_id: str, path: str, *, container: str | None = None) -> AsyncIterator[bytes]:
        """A file or folder of a task, as tar in pieces."""
        return self._stream(ways_in.fetch_files(task_id, path, container=container))

    async def store_files(
        self, task_id: str, path: str, archive: AsyncIterable[bytes], *, container: str | None = None
    ) -> None:
        """Take a tar archive apart in a folder of a task that runs."""
        await self._upload(ways_in.store_files(task_id, path, container=container), archive)

    async def events(
        self, since: str | None = None, *, expand: bool = False, workload: str | None = None
    ) -> AsyncIterator[EventView]:
        """Events as they are committed, from a cursor or from now on, without end: a connection that breaks is made
        again and goes on with exactly what was missed. EventsPurged where that is forgotten already."""
        reader = EventReader(self.server, since)
        while True:
            problem: MooringError | None = None
            reader.begin()
            try:
                stream = operations.events(reader.cursor, expand=expand, workload=workload)
                async for piece in self._stream(stream):
                    for event in reader.read(piece):
                        yield event
            except MooringError as error:
                problem = error
            await asyncio.sleep(reader.pause_seconds(problem))

    async def send(self, operation: Operation[T]) -> T:
        """Send any operation; a login that is old or refused is refreshed where that needs nobody's help."""
        if not operation.authenticated:
            return await self._exchange(operation)
        await self._renew_in_time()
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

    async def _renew_in_time(self) -> None:
        if not self._authentication.renewal_due():
            return
        async with self._renewing:
            if not self._authentication.renewal_due() or self._authentication.taken_from_store():
                return
            try:
                self._authentication.renewed(await self._exchange(operations.renew()))
            except NotAuthenticated:
                await self._use_password_again()
            except MooringError:
                # The old token may still serve; if it does not, the request itself says so.
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
            self._authentication.renewed(await self._exchange(operations.log_in(login.username, login.password)))
        except MooringError:
            return False
        return True

    async def _exchange(self, operation: Operation[T]) -> T:
        patience = Patience(self.timeout_seconds)
        while True:
            try:
                return await self._attempt(operation)
            except TooManyAttempts as error:
                pause = patience.pause_seconds(error)
            await asyncio.sleep(pause)

    async def _attempt(self, operation: Operation[T]) -> T:
        try:
            try:
                status, content = await self._ask(operation)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # The connection broke at the moment of its use: what may be repeated is asked once more.
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

    async def _stream(self, stream: Stream) -> AsyncIterator[bytes]:
        await self._renew_in_time()
        patience, refreshed = Patience(self.timeout_seconds), False
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
                        async for piece in response.content.iter_any():
                            yield piece
                        return
                    error = read_error(response.status, await response.read(), self.server)
            except (aiohttp.ClientError, TimeoutError, OSError) as problem:
                raise self._failure(problem) from problem
            if isinstance(error, TooManyAttempts):
                await asyncio.sleep(patience.pause_seconds(error))
                continue
            if refreshed or not (isinstance(error, NotAuthenticated) and await self._log_in_again(sent)):
                raise error
            refreshed = True

    @asynccontextmanager
    async def _channel(self, way: Way) -> AsyncIterator[Channel]:
        await self._renew_in_time()
        refreshed = False
        while True:
            sent = self._authentication.headers
            try:
                socket = await self._open().ws_connect(
                    self._url(way.path),
                    headers=sent,
                    heartbeat=_PING_SECONDS,
                    max_msg_size=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                )
                await socket.send_str(way.opening.model_dump_json())
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
        await self._renew_in_time()
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
        # Made at first use: a session belongs to the loop that it is made on.
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

    def _headers(self, operation: Operation[T]) -> dict[str, str]:
        headers = dict(self._authentication.headers) if operation.authenticated else {}
        if operation.body is not None:
            headers["Content-Type"] = "application/json"
        if operation.key is not None:
            headers["Idempotency-Key"] = operation.key
        return headers

    def _timeout(self, seconds: float | None) -> aiohttp.ClientTimeout:
        connect = min(CONNECT_SECONDS, self.timeout_seconds)
        return aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=seconds)

    def _failure(self, problem: Exception) -> Unavailable:
        if isinstance(problem, TimeoutError):
            connecting = isinstance(problem, aiohttp.ConnectionTimeoutError)
            return timed_out(
                self.server, min(CONNECT_SECONDS, self.timeout_seconds) if connecting else self.timeout_seconds
            )
        if isinstance(problem, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError):
            return untrusted(self.server, problem)
        return unreachable(self.server, problem)


def _probing_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for option in SOCKET_OPTIONS:
        made.setsockopt(*option)
    return made
