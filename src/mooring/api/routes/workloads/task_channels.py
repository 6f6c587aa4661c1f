"""Access to tasks: commands (exec), their input and output (attach), their ports and their files.

A WebSocket client first sends one opening as JSON. The last message is the result, also after a refusal.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter, Query, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketState

from mooring.api.auth.logins import Login
from mooring.api.auth.request_access import LoggedIn, Served, authenticated, resolve_flow
from mooring.api.compat.versions import check_client
from mooring.api.middleware.errors import problems, status_of
from mooring.api.middleware.flows import address_flow, user_flow
from mooring.api.middleware.load_shedding.connections import verify_connection
from mooring.api.middleware.outermost import release_seat
from mooring.api.services import Services
from mooring.api.streams.channel_relay import Channel
from mooring.api.streams.exec_authorisation import (
    counted_channel,
    find_ready_tasks,
    find_task,
    open_channel,
    require_task_access,
)
from mooring.api.streams.first_completed import run_until_first_ends
from mooring.api.streams.open_connections import AccessRevoked, OpenConnection
from mooring.api.streams.server_proxy import (
    NodeOnOtherServer,
    forward_channel,
    forward_request,
    forwarding_target,
)
from mooring.model.errors import InvalidInput, MooringError, TooManyAttempts, Unavailable
from mooring.model.tenancy.tenants import Principal
from mooring.store.core.engine import is_temporary
from mooring.store.views.task_access import TaskLocation
from mooring.wire.agents import channels as wire
from mooring.wire.agents.agent_protocol import Attach, Dial, Exec, FetchFiles, Purpose, StoreFiles
from mooring.wire.agents.flow import Side
from mooring.wire.fields import Name
from mooring.wire.problems import refused

router = APIRouter(tags=["task access"], responses=problems(401, 403, 404, 409, 422, 503))

log = structlog.get_logger(__name__)

_OPENING_SECONDS = 30.0
_TAR = "application/x-tar"
_FILES = re.compile(r"/api/tasks/[^/]+/files")
_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A tar archive", "content": {_TAR: {"schema": {"type": "string", "format": "binary"}}}}
}

Opening = TypeVar("Opening", wire.ExecOpening, wire.AttachOpening, wire.ForwardOpening)
Find = Callable[[Services, Principal], Awaitable[list[TaskLocation]]]
Path = Annotated[str, Query(min_length=1, max_length=4096, pattern=r"^[^\x00]*$", description="Path in the container")]
ContainerName = Annotated[Name | None, Query(description="Container (default: the first)")]


def takes_a_stream(scope: Scope) -> bool:
    """Return whether the request body is streamed, because files may be larger than memory."""
    return scope["method"] == "PUT" and _FILES.fullmatch(scope["path"]) is not None


@router.websocket("/api/tasks/{task_id}/exec")
async def run_command(websocket: WebSocket, task_id: str) -> None:
    """Run a command in a running task; the opening is an `ExecOpening`."""

    def purpose(asked: wire.ExecOpening) -> tuple[str | None, Purpose]:
        how = Exec(command=asked.command, terminal=asked.terminal, rows=asked.rows, columns=asked.columns)
        return asked.container, how

    await _serve(websocket, wire.ExecOpening, purpose, lambda services, who: find_task(services, who, task_id))


@router.websocket("/api/tasks/{task_id}/attach")
async def attach(websocket: WebSocket, task_id: str) -> None:
    """Attach to a container's input and output; the opening is an `AttachOpening`."""
    await _serve(
        websocket,
        wire.AttachOpening,
        lambda asked: (asked.container, Attach(replay=asked.replay, output=asked.output)),
        lambda services, who: find_task(services, who, task_id),
    )


@router.websocket("/api/tasks/{task_id}/forward")
async def forward_to_task(websocket: WebSocket, task_id: str) -> None:
    """Connect to a port of a task; the opening is a `ForwardOpening`."""
    await _serve(websocket, wire.ForwardOpening, _dial, lambda services, who: find_task(services, who, task_id))


@router.websocket("/api/workloads/{ref}/forward")
async def forward_to_workload(websocket: WebSocket, ref: str) -> None:
    """Connect to a port of any ready task of a workload; the opening is a `ForwardOpening`."""
    await _serve(websocket, wire.ForwardOpening, _dial, lambda services, who: find_ready_tasks(services, who, ref))


def _dial(asked: wire.ForwardOpening) -> tuple[str | None, Purpose]:
    return None, Dial(port=asked.port or 0)


async def _serve(
    websocket: WebSocket,
    kind: type[Opening],
    purpose: Callable[[Opening], tuple[str | None, Purpose]],
    find: Find,
) -> None:
    services: Services = websocket.app.state.services
    try:
        try:
            result = await _admit_and_relay(services, websocket, kind, purpose, find)
        except MooringError as error:
            result = _refusal(error)
        except (WebSocketDisconnect, asyncio.CancelledError):
            raise
        except Exception as error:
            result = _failure(error)
        if websocket.application_state is WebSocketState.CONNECTING:
            # A client learns the reason only from an result; nothing that it sends is read.
            await _accept(websocket)
        await websocket.send_bytes(wire.encode(result))
        await websocket.close()
    except WebSocketDisconnect:
        return


async def _admit_and_relay(
    services: Services,
    websocket: WebSocket,
    kind: type[Opening],
    purpose: Callable[[Opening], tuple[str | None, Purpose]],
    find: Find,
) -> wire.ChannelResult:
    """Authenticate and count before the handshake, so that an unauthenticated client can send nothing."""
    login = await _authenticated(services, websocket)
    with counted_channel(services, login.principal):
        await _accept(websocket)
        return await _open_and_relay(services, websocket, login, kind, purpose, find)


async def _accept(websocket: WebSocket) -> None:
    """Accept; browsers that offer subprotocols, one of them with their token, require that the server picks one."""
    offered = websocket.scope.get("subprotocols", ())
    await websocket.accept(subprotocol=wire.SUBPROTOCOL if wire.SUBPROTOCOL in offered else None)


async def _open_and_relay(
    services: Services,
    websocket: WebSocket,
    login: Login,
    kind: type[Opening],
    purpose: Callable[[Opening], tuple[str | None, Purpose]],
    find: Find,
) -> wire.ChannelResult:
    asked = await _opening(websocket, kind)
    tasks = await find(services, login.principal)

    async def serve() -> wire.ChannelResult:
        try:
            async with open_channel(services, login.principal, tasks, *purpose(asked)) as channel:
                return await _relay(websocket, channel)
        except NodeOnOtherServer as problem:
            server = forwarding_target(websocket, problem, problem.server_url)
        return await forward_channel(websocket, asked.model_dump_json(), server)

    with services.connections.opened(login, lambda principal: require_task_access(principal, tasks)) as connection:
        return await connection.run(serve())


async def _authenticated(services: Services, websocket: WebSocket) -> Login:
    check_client(websocket.headers)
    flow = address_flow(websocket.scope)
    try:
        flow = await resolve_flow(websocket.scope)
        services.load.charge(flow)
        # A page in a browser opens many at once and does not repeat them; the limit on channels bounds them.
        seat = await services.load.level(flow, reads=True).seat(flow.key, patient=flow.user_id is not None)
    except TooManyAttempts:
        await services.load.pace_refusal(flow)
        raise
    try:
        login = await authenticated(services, websocket)
    finally:
        seat.release()
    verify_connection(websocket.scope, user_flow(login.principal.user_id))
    return login


async def _opening(websocket: WebSocket, kind: type[Opening]) -> Opening:
    try:
        async with asyncio.timeout(_OPENING_SECONDS):
            message = await websocket.receive()
    except TimeoutError:
        raise InvalidInput("the first message must say what to open") from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text = message.get("text") or ""
    if len(text) > wire.MAX_OPENING_BYTES:
        raise InvalidInput(f"the first message may have at most {wire.MAX_OPENING_BYTES} bytes")
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise refused(error) from None


async def _relay(websocket: WebSocket, channel: Channel) -> wire.ChannelResult:
    """Relay bytes both ways until either side ends; return the result."""
    client = Side(_Link(websocket))
    await websocket.send_bytes(wire.encode(wire.Window(0)))

    async def listen() -> None:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            await _take(wire.decode(message.get("bytes") or b""), client, channel)

    async def send_to_agent() -> None:
        await _pump(channel.side, client)
        await channel.side.ended.wait()

    await run_until_first_ends(send_to_agent(), listen(), _pump(client, channel.side))
    if (problem := channel.problem) is not None:
        return _refusal(problem)
    ended = channel.end_message
    assert ended is not None
    return wire.ChannelResult(exit_code=ended.exit_code, code=ended.code, message=ended.message)


async def _take(frame: wire.Frame, client: Side, channel: Channel) -> None:
    match frame:
        case wire.Data():
            if not client.take(frame.data, False):
                raise InvalidInput("more was sent than the receiver allows", code="window-exceeded")
        case wire.Window():
            client.grant(frame.count)
        case wire.Size():
            await channel.resize(frame.rows, frame.columns)
        case wire.ChannelResult():
            raise WebSocketDisconnect(1000)


async def _pump(source: Side, target: Side) -> None:
    while (piece := await source.read()) is not None:
        await target.write(*piece)
    await target.write(b"")


class _Link:
    """The side of the client."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def data(self, data: bytes, error: bool) -> None:
        await self._websocket.send_bytes(wire.encode(wire.Data(data, error)))

    async def window(self, count: int) -> None:
        await self._websocket.send_bytes(wire.encode(wire.Window(count)))


def _refusal(error: MooringError) -> wire.ChannelResult:
    return wire.ChannelResult(status=status_of(error), code=error.code, message=error.message)


def _failure(error: Exception) -> wire.ChannelResult:
    if is_temporary(error):
        log.warning("The database does not answer", error=repr(error))
        return _refusal(Unavailable("the database does not answer; try again soon"))
    log.exception("A connection to a task failed")
    return wire.ChannelResult(
        status=500, code="internal-error", message="internal server error; see the log of the server"
    )


# --- files ---


@router.get(
    "/api/tasks/{task_id}/files",
    operation_id="fetch_files",
    response_class=StreamingResponse,
    responses=_ARCHIVE,
)
async def fetch_files(
    services: Served, login: LoggedIn, request: Request, task_id: str, path: Path, container: ContainerName = None
) -> Response:
    """Fetch a file or folder of a task as a tar archive; also of an ended task, while its node keeps it."""
    principal = login.principal
    tasks = await find_task(services, principal, task_id, ended=True)
    release_seat(request.scope)
    stack = AsyncExitStack()
    try:
        stack.enter_context(counted_channel(services, principal))
        connection = stack.enter_context(
            services.connections.opened(login, lambda principal: require_task_access(principal, tasks))
        )
        channel = await stack.enter_async_context(
            open_channel(services, principal, tasks, container, FetchFiles(path=path))
        )
        first = await connection.run(_next(channel))
        return _Archive(channel, first, stack, connection)
    except NodeOnOtherServer as problem:
        await stack.aclose()
        return await forward_request(request, forwarding_target(request, problem, problem.server_url))
    except BaseException:
        await stack.aclose()
        raise


@router.put("/api/tasks/{task_id}/files", status_code=204, response_class=Response, operation_id="store_files")
async def store_files(
    services: Served, login: LoggedIn, request: Request, task_id: str, path: Path, container: ContainerName = None
) -> Response:
    """Extract a tar archive into a folder of a running task."""
    tasks = await find_task(services, login.principal, task_id)
    release_seat(request.scope)
    with (
        counted_channel(services, login.principal),
        services.connections.opened(login, lambda principal: require_task_access(principal, tasks)) as connection,
    ):
        try:
            async with open_channel(services, login.principal, tasks, container, StoreFiles(path=path)) as channel:
                await connection.run(_forward_input(request, channel))
        except NodeOnOtherServer as problem:
            server = forwarding_target(request, problem, problem.server_url)
            return await connection.run(forward_request(request, server))
    return Response(status_code=204)


async def _forward_input(request: Request, channel: Channel) -> None:
    async def send() -> None:
        async for piece in request.stream():
            await channel.side.write(piece)
        await channel.side.write(b"")

    async def listen() -> None:
        while await channel.side.read() is not None:
            pass
        await channel.side.ended.wait()

    try:
        await run_until_first_ends(listen(), send())
    except ClientDisconnect:
        return
    if (problem := channel.problem) is not None:
        raise problem


async def _next(channel: Channel) -> bytes | None:
    """Return the next bytes, None after the last; raise the channel's error if it has one."""
    piece = await channel.side.read()
    if piece is not None:
        return piece[0]
    await channel.side.ended.wait()
    if (problem := channel.problem) is not None:
        raise problem
    return None


class _Archive(StreamingResponse):
    """Always closes its channel, even if the client disconnects before it begins."""

    def __init__(
        self, channel: Channel, first: bytes | None, opened: AsyncExitStack, connection: OpenConnection
    ) -> None:
        self._opened = opened
        self._connection = connection
        super().__init__(_pieces(channel, first), media_type=_TAR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._opened:
            # Where access ends, so does the answer, before its last chunk: the server then cuts the connection, so
            # that half an archive is not taken for a whole one.
            with suppress(AccessRevoked):
                await self._connection.run(super().__call__(scope, receive, send))


async def _pieces(channel: Channel, first: bytes | None) -> AsyncIterator[bytes]:
    piece = first
    while piece is not None:
        yield piece
        piece = await _next(channel)
