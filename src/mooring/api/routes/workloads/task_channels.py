"""Ways into tasks: a command beside them, their own input and output, their ports, their files.

Whoever comes over a WebSocket sends one opening as JSON, and is told how it ended, also where it was refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter, Query, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from mooring.api.access import Served, User, admit, authenticated
from mooring.api.boundary import only_waits
from mooring.api.carrying import carrying
from mooring.api.entering import entered, one_task, ready_tasks
from mooring.api.errors import problems, status_of
from mooring.api.passing_on import NodeElsewhere, elsewhere, pass_on, pass_on_channel
from mooring.api.services import Services
from mooring.api.task_channels import Channel
from mooring.model.errors import InvalidInput, MooringError, Unavailable
from mooring.model.tenants import Principal
from mooring.store.engine import is_temporary
from mooring.store.views.entrances import Entrance
from mooring.wire import channels as wire
from mooring.wire.agent import Attach, Dial, Exec, FetchFiles, Purpose, StoreFiles
from mooring.wire.fields import Name
from mooring.wire.flow import Side
from mooring.wire.problems import refused

router = APIRouter(tags=["ways in"], responses=problems(401, 403, 404, 409, 422, 503))

log = structlog.get_logger(__name__)

_OPENING_SECONDS = 30.0
_TAR = "application/x-tar"
_FILES = re.compile(r"/api/tasks/[^/]+/files")
_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A tar archive", "content": {_TAR: {"schema": {"type": "string", "format": "binary"}}}}
}

Opening = TypeVar("Opening", wire.ExecOpening, wire.AttachOpening, wire.ForwardOpening)
Find = Callable[[Services, Principal], Awaitable[list[Entrance]]]
Path = Annotated[str, Query(min_length=1, max_length=4096, pattern=r"^[^\x00]*$", description="In the container")]
ContainerName = Annotated[Name | None, Query(description="Else the first")]


def takes_a_stream(scope: Scope) -> bool:
    """Whether the body of a request is read as it comes: files may be far more than fits into memory."""
    return scope["method"] == "PUT" and _FILES.fullmatch(scope["path"]) is not None


@router.websocket("/api/tasks/{task_id}/exec")
async def run_command(websocket: WebSocket, task_id: str) -> None:
    """Run a command in a task that runs; its opening is an `ExecOpening`."""

    def purpose(asked: wire.ExecOpening) -> tuple[str | None, Purpose]:
        how = Exec(command=asked.command, terminal=asked.terminal, rows=asked.rows, columns=asked.columns)
        return asked.container, how

    await _serve(websocket, wire.ExecOpening, purpose, lambda services, who: one_task(services, who, task_id))


@router.websocket("/api/tasks/{task_id}/attach")
async def attach(websocket: WebSocket, task_id: str) -> None:
    """Be connected with a container's own input and output; its opening is an `AttachOpening`."""
    await _serve(
        websocket,
        wire.AttachOpening,
        lambda asked: (asked.container, Attach()),
        lambda services, who: one_task(services, who, task_id),
    )


@router.websocket("/api/tasks/{task_id}/forward")
async def forward_to_task(websocket: WebSocket, task_id: str) -> None:
    """Be connected with a port of a task; its opening is a `ForwardOpening`."""
    await _serve(websocket, wire.ForwardOpening, _dial, lambda services, who: one_task(services, who, task_id))


@router.websocket("/api/workloads/{ref}/forward")
async def forward_to_workload(websocket: WebSocket, ref: str) -> None:
    """Be connected with a port of any task of a workload that is ready; its opening is a `ForwardOpening`."""
    await _serve(websocket, wire.ForwardOpening, _dial, lambda services, who: ready_tasks(services, who, ref))


def _dial(asked: wire.ForwardOpening) -> tuple[str | None, Purpose]:
    return None, Dial(port=asked.port or 0)


async def _serve(
    websocket: WebSocket,
    kind: type[Opening],
    purpose: Callable[[Opening], tuple[str | None, Purpose]],
    find: Find,
) -> None:
    await websocket.accept()
    services: Services = websocket.app.state.services
    try:
        try:
            ending = await _let_in(services, websocket, kind, purpose, find)
        except MooringError as error:
            ending = _refusal(error)
        except (WebSocketDisconnect, asyncio.CancelledError):
            raise
        except Exception as error:
            ending = _failure(error)
        await websocket.send_bytes(wire.encode(ending))
        await websocket.close()
    except WebSocketDisconnect:
        return


async def _let_in(
    services: Services,
    websocket: WebSocket,
    kind: type[Opening],
    purpose: Callable[[Opening], tuple[str | None, Purpose]],
    find: Find,
) -> wire.Ending:
    admit(websocket.scope)
    principal = (await authenticated(services, websocket)).principal
    asked = await _opening(websocket, kind)
    tasks = await find(services, principal)
    try:
        async with entered(services, principal, tasks, *purpose(asked)) as channel:
            return await _relay(websocket, channel)
    except NodeElsewhere as problem:
        server = elsewhere(websocket, problem, problem.server_url)
    return await pass_on_channel(websocket, asked.model_dump_json(), server)


async def _opening(websocket: WebSocket, kind: type[Opening]) -> Opening:
    try:
        async with asyncio.timeout(_OPENING_SECONDS):
            message = await websocket.receive()
    except TimeoutError:
        raise InvalidInput("say first what should be opened") from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text = message.get("text") or ""
    if len(text) > wire.MAX_OPENING_BYTES:
        raise InvalidInput(f"an opening may have at most {wire.MAX_OPENING_BYTES} bytes")
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise refused(error) from None


async def _relay(websocket: WebSocket, channel: Channel) -> wire.Ending:
    """Carry bytes both ways until either side is at its end; how it ended."""
    client = Side(_Link(websocket))
    await websocket.send_bytes(wire.encode(wire.Window(0)))

    async def listen() -> None:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            await _take(wire.decode(message.get("bytes") or b""), client, channel)

    async def carry_out() -> None:
        await _pump(channel.side, client)
        await channel.side.ended.wait()

    await carrying(carry_out(), listen(), _pump(client, channel.side))
    if (problem := channel.problem) is not None:
        return _refusal(problem)
    ended = channel.ending
    assert ended is not None
    return wire.Ending(exit_code=ended.exit_code, code=ended.code, message=ended.message)


async def _take(frame: wire.Frame, client: Side, channel: Channel) -> None:
    match frame:
        case wire.Data():
            if not client.take(frame.data, False):
                raise InvalidInput("more was sent than is taken", code="window-exceeded")
        case wire.Window():
            client.grant(frame.count)
        case wire.Size():
            await channel.resize(frame.rows, frame.columns)
        case wire.Ending():
            raise WebSocketDisconnect(1000)


async def _pump(source: Side, target: Side) -> None:
    while (piece := await source.read()) is not None:
        await target.write(*piece)
    await target.write(b"")


class _Link:
    """To whoever opened it."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def data(self, data: bytes, error: bool) -> None:
        await self._websocket.send_bytes(wire.encode(wire.Data(data, error)))

    async def window(self, count: int) -> None:
        await self._websocket.send_bytes(wire.encode(wire.Window(count)))


def _refusal(error: MooringError) -> wire.Ending:
    return wire.Ending(status=status_of(error), code=error.code, message=error.message)


def _failure(error: Exception) -> wire.Ending:
    if is_temporary(error):
        log.warning("The database does not answer", error=repr(error))
        return _refusal(Unavailable("the database does not answer; try again soon"))
    log.exception("A way into a task failed")
    return wire.Ending(status=500, code="internal-error", message="the server failed at this; its log says more")


# --- files ---


@router.get(
    "/api/tasks/{task_id}/files",
    operation_id="fetch_files",
    response_class=StreamingResponse,
    responses=_ARCHIVE,
)
async def fetch_files(
    services: Served, principal: User, request: Request, task_id: str, path: Path, container: ContainerName = None
) -> Response:
    """A file or folder of a task, as tar; also of a task that has ended, as long as its node keeps it."""
    tasks = await one_task(services, principal, task_id, ended=True)
    only_waits(request.scope)
    stack = AsyncExitStack()
    try:
        channel = await stack.enter_async_context(entered(services, principal, tasks, container, FetchFiles(path=path)))
        first = await _next(channel)
        return _Archive(channel, first, stack)
    except NodeElsewhere as problem:
        await stack.aclose()
        return await pass_on(request, elsewhere(request, problem, problem.server_url))
    except BaseException:
        await stack.aclose()
        raise


@router.put("/api/tasks/{task_id}/files", status_code=204, response_class=Response, operation_id="store_files")
async def store_files(
    services: Served, principal: User, request: Request, task_id: str, path: Path, container: ContainerName = None
) -> Response:
    """Take a tar archive apart in a folder of a task that runs."""
    tasks = await one_task(services, principal, task_id)
    only_waits(request.scope)
    try:
        async with entered(services, principal, tasks, container, StoreFiles(path=path)) as channel:
            await _hand_in(request, channel)
    except NodeElsewhere as problem:
        return await pass_on(request, elsewhere(request, problem, problem.server_url))
    return Response(status_code=204)


async def _hand_in(request: Request, channel: Channel) -> None:
    async def send() -> None:
        async for piece in request.stream():
            await channel.side.write(piece)
        await channel.side.write(b"")

    async def listen() -> None:
        while await channel.side.read() is not None:
            pass
        await channel.side.ended.wait()

    try:
        await carrying(listen(), send())
    except ClientDisconnect:
        return
    if (problem := channel.problem) is not None:
        raise problem


async def _next(channel: Channel) -> bytes | None:
    """The next bytes, None after the last; the problem where there was one."""
    piece = await channel.side.read()
    if piece is not None:
        return piece[0]
    await channel.side.ended.wait()
    if (problem := channel.problem) is not None:
        raise problem
    return None


class _Archive(StreamingResponse):
    """Closes its channel however it ends, also where the client has gone before it began."""

    def __init__(self, channel: Channel, first: bytes | None, opened: AsyncExitStack) -> None:
        self._opened = opened
        super().__init__(_pieces(channel, first), media_type=_TAR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._opened:
            await super().__call__(scope, receive, send)


async def _pieces(channel: Channel, first: bytes | None) -> AsyncIterator[bytes]:
    piece = first
    while piece is not None:
        yield piece
        piece = await _next(channel)
