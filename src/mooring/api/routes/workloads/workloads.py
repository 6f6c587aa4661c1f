"""Workloads: submit, try, look, explain, wait, read their output, scale, remove."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Annotated, Literal, cast

import structlog
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BeforeValidator
from starlette.types import Receive, Scope, Send

from mooring.api.access import IdempotencyHeader, Served, Submitter, User, find_workload
from mooring.api.boundary import only_waits
from mooring.api.errors import problems
from mooring.api.passing_on import elsewhere, pass_on
from mooring.api.services import Services
from mooring.api.showing import attempt_row, history_row, task_view, workload_detail, workload_view
from mooring.model.access import Action, Sight, own_work, sight
from mooring.model.errors import Conflict, MooringError, NotAllowed, NotFound, Unavailable
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.tenants import Principal
from mooring.model.workloads import Kind
from mooring.store import attempts, dependencies
from mooring.store.views import entrances
from mooring.store.views import history as history_views
from mooring.store.views import workloads as views
from mooring.store.views.workloads import Order, Progress, Selection, SortKey, TaskRow, WorkloadRow
from mooring.wire.api import (
    Comparison,
    HistoryList,
    ScaleRequest,
    TaskList,
    WorkloadAccepted,
    WorkloadDetail,
    WorkloadList,
    WorkloadRequest,
    WorkloadView,
)
from mooring.wire.explanation import Explanation
from mooring.wire.fields import INT32_MAX, Name
from mooring.wire.rollouts import EndpointList, EndpointView
from mooring.wire.sessions import ExtendRequest

router = APIRouter(prefix="/api/workloads", tags=["workloads"], responses=problems(401, 422, 503))

log = structlog.get_logger()

Sort = Literal["created_at", "-created_at", "name", "-name", "status", "-status", "priority", "-priority"]
Status = Annotated[WorkloadStatus, BeforeValidator(lambda text: text.upper() if isinstance(text, str) else text)]
TaskState = Annotated[TaskStatus, BeforeValidator(lambda text: text.upper() if isinstance(text, str) else text)]
WaitFor = Literal["ended", "running", "changed"]

All = Annotated[bool, Query(description="Also what ended more than an hour ago")]
Everyone = Annotated[bool, Query(description="Those of every user, for admins")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=INT32_MAX)]

# What ended earlier than this is not listed unless all is asked for.
RECENTLY = timedelta(hours=1)
_LONGEST_WAIT_SECONDS = 300.0
_MAX_HISTORY = 10_000
# After this long without output the answer begins all the same, so that a follower's connection stands.
_FIRST_OUTPUT_SECONDS = 2.0
_SIMULATED_OUTPUT = b"simulated: nothing runs, so there is no output\n"


@router.post("", status_code=202, operation_id="submit_workload", responses=problems(400, 403, 404, 409, 412, 413))
async def submit(
    services: Served,
    principal: Submitter,
    request: WorkloadRequest,
    response: Response,
    idempotency_key: IdempotencyHeader = None,
) -> WorkloadAccepted:
    """Ask for a workload. It is durable when this answers; it is placed soon after."""
    accepted = await services.intake.submit(principal, request, key=idempotency_key)
    response.headers["Location"] = f"{services.public_url.rstrip('/')}/api/workloads/{accepted.id}"
    return accepted


@router.post("/dry-run", operation_id="dry_run_workload", responses=problems(400, 403, 404, 409, 412, 413))
async def dry_run(services: Served, principal: User, request: WorkloadRequest) -> Explanation:
    """What would become of a workload: where its tasks would go now and why, or why they would wait."""
    services.rates.question(principal)
    return await services.questions.dry_run(principal, request)


@router.get("", operation_id="list_workloads", responses=problems(403))
async def list_workloads(
    services: Served,
    principal: User,
    status: Annotated[list[Status] | None, Query(description="Any of these")] = None,
    kind: Kind | None = None,
    name: Name | None = None,
    all: All = False,
    everyone: Everyone = False,
    limit: Limit = 100,
    offset: Offset = 0,
    sort: Annotated[Sort, Query(description="With `-` the other way round")] = "-created_at",
) -> WorkloadList:
    """One's own workloads that are not removed."""
    selection = Selection(
        sight=sight_of(principal, everyone=everyone),
        statuses=frozenset(status) if status else None,
        kind=kind,
        name=name,
        ended_since=None if all else services.now() - RECENTLY,
    )
    order = Order(by=cast(SortKey, sort.removeprefix("-")), descending=sort.startswith("-"))
    return await listed(services, selection, order, limit=limit, offset=offset)


def sight_of(principal: Principal, *, everyone: bool) -> Sight:
    """Whose work is listed: one's own, or that of everyone whose work one may see."""
    seen = sight(principal)
    if everyone and not seen.of_others:
        raise NotAllowed("you see your own workloads only; leave out everyone")
    return seen if everyone else own_work(principal)


async def listed(services: Services, selection: Selection, order: Order, *, limit: int, offset: int) -> WorkloadList:
    """A page of the selected workloads."""
    async with services.database.read() as connection:
        rows, total = await views.page(connection, selection, order, limit=limit, offset=offset)
    return WorkloadList(workloads=[workload_view(row) for row in rows], total=total, limit=limit, offset=offset)


@router.get("/{ref}", operation_id="get_workload", responses=problems(404))
async def get_workload(services: Served, principal: User, ref: str) -> WorkloadDetail:
    """One workload by its id or name, with its tasks."""
    return await detailed(services, principal, await find_workload(services, principal, ref))


@router.get("/{ref}/tasks", operation_id="list_workload_tasks", responses=problems(404))
async def list_tasks(
    services: Served,
    principal: User,
    ref: str,
    status: Annotated[list[TaskState] | None, Query(description="Any of these")] = None,
    limit: Limit = 1000,
    offset: Offset = 0,
) -> TaskList:
    """The newest attempts at a workload's tasks by index: an array has more than `get_workload` shows."""
    row = await find_workload(services, principal, ref)
    statuses = frozenset(status) if status else None
    async with services.database.read() as connection:
        rows, total = await views.page_of_tasks(connection, row.id, statuses=statuses, limit=limit, offset=offset)
    return TaskList(tasks=[task_view(task) for task in rows], total=total, limit=limit, offset=offset)


@router.get("/{ref}/endpoints", operation_id="list_workload_endpoints", responses=problems(404))
async def list_endpoints(services: Served, principal: User, ref: str) -> EndpointList:
    """Where the tasks are that somebody may be sent to: they run, are ready, and are not about to leave."""
    row = await find_workload(services, principal, ref)
    # First the place in the feed: what happens meanwhile is told a second time rather than never.
    cursor = await services.feed.end()
    async with services.database.read() as connection:
        found = await entrances.endpoints(connection, row.id)
    return EndpointList(
        endpoints=[
            EndpointView(
                task=each.task_id,
                index=each.index,
                revision=each.revision,
                node=each.node,
                address=each.address,
                ports=[port for _, port in each.ports or ()],
            )
            for each in found
        ],
        cursor=str(cursor),
    )


@router.get("/{ref}/history", operation_id="get_workload_history", responses=problems(404))
async def get_history(
    services: Served,
    principal: User,
    ref: str,
    limit: Annotated[int, Query(ge=1, le=_MAX_HISTORY, description="The newest so many")] = 1000,
) -> HistoryList:
    """What happened to a workload and its tasks, oldest first."""
    row = await find_workload(services, principal, ref)
    async with services.database.read() as connection:
        entries = await history_views.of_workload(connection, row.id, limit=limit)
        tried = await attempts.of_workload(connection, row.id, limit=limit)
    return HistoryList(history=[history_row(entry) for entry in entries], attempts=[attempt_row(one) for one in tried])


@router.get("/{ref}/explanation", operation_id="explain_workload", responses=problems(404))
async def explain(services: Served, principal: User, ref: str) -> Explanation:
    """Why a workload waits; of one that is placed, how its nodes compare with the others by now."""
    row = await find_workload(services, principal, ref)
    services.rates.question(principal)
    return await services.questions.explain(row.id)


@router.post("/{ref}/comparison", operation_id="compare_workload", responses=problems(400, 403, 404, 409, 413))
async def compare(services: Served, principal: User, ref: str, request: WorkloadRequest) -> Comparison:
    """Where a workload differs from what this request would make. Nothing changes."""
    row = await find_workload(services, principal, ref)
    services.rates.question(principal)
    found = await services.intake.compare(principal, row, request)
    if row.user_id != principal.user_id:
        found = [each for each in found if ".environment." not in each.field]
    return Comparison(
        id=row.id,
        kind=row.kind,
        status=row.status,
        ended=row.ended_at is not None,
        removed=row.removed_at is not None,
        differences=found,
    )


@router.get("/{ref}/wait", operation_id="wait_for_workload", responses=problems(404))
async def wait(
    services: Served,
    principal: User,
    request: Request,
    ref: str,
    wait_for: Annotated[WaitFor, Query(alias="for")] = "ended",
    version: Annotated[
        int | None, Query(ge=0, le=INT32_MAX, description="With `for=changed`: the version that is known")
    ] = None,
    timeout: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_SECONDS, allow_inf_nan=False)] = 25.0,
) -> WorkloadDetail:
    """The workload as soon as it has ended, runs (or has ended) or has changed, or when the seconds are over."""
    row = await find_workload(services, principal, ref)
    known = row.version if version is None else version
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        # Counted before it looks: what is committed while it looks must not be slept through.
        count = services.changes.count
        async with services.database.read() as connection:
            seen = await views.progress(connection, row.id)
        if seen is None:
            raise NotFound(f"workload {row.name!r} was purged meanwhile")
        left = deadline - loop.time()
        # A server that stops answers what it knows, and the client asks another.
        if _has_come(wait_for, seen, known) or left <= 0 or services.feed.closed:
            break
        only_waits(request.scope)
        await services.changes.wait(left, count)
    return await detailed(services, principal, await find_workload(services, principal, str(row.id)))


def _has_come(wait_for: WaitFor, seen: Progress, known_version: int) -> bool:
    if wait_for == "changed":
        return seen.version != known_version
    return seen.ended or (wait_for == "running" and seen.status == WorkloadStatus.RUNNING)


@router.get(
    "/{ref}/logs",
    operation_id="get_workload_logs",
    response_class=StreamingResponse,
    responses=problems(404, 409)
    | {200: {"description": "What it printed", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_logs(
    services: Served,
    principal: User,
    request: Request,
    ref: str,
    task: Annotated[int | None, Query(ge=0, le=INT32_MAX, description="Index; the first one if not given")] = None,
    attempt: Annotated[int | None, Query(ge=1, le=INT32_MAX, description="Else the newest that had a node")] = None,
    tail: Annotated[int | None, Query(ge=0, le=INT32_MAX, description="Only the last so many lines")] = None,
    follow: Annotated[bool, Query(description="Go on until the task ends")] = False,
    container: Annotated[Name | None, Query(description="Of a task that has several; else the first")] = None,
) -> Response:
    """The output of one task, as bytes."""
    row = await find_workload(services, principal, ref)
    media_type = "text/plain; charset=utf-8"
    if row.simulated:
        return Response(_SIMULATED_OUTPUT, media_type=media_type)
    async with services.database.read() as connection:
        chosen = _with_output(row, await views.tasks_of(connection, row.id), task, attempt)
    if chosen.node_id is None:
        raise NotFound(
            f"the output of task {chosen.task_index} is gone: its node {chosen.node_name!r} was removed",
            code="output-gone",
        )
    close = services.rates.open_stream(principal)
    name = container or row.template["containers"][0]["name"]
    pieces = services.logs.stream(chosen.id, chosen.node_id, container=name, tail=tail, follow=follow)
    output = _Output(pieces, media_type, close)
    only_waits(request.scope)
    try:
        await output.begin()
    except Unavailable as problem:
        async with services.database.read() as connection:
            server_url = await entrances.server_of(connection, chosen.node_id)
        return await pass_on(request, elsewhere(request, problem, server_url))
    return output


def _with_output(row: WorkloadRow, tasks: Sequence[TaskRow], index: int | None, attempt: int | None) -> TaskRow:
    """The attempt at the task that is asked for, else the newest that got as far as a node."""
    if index is None:
        index = min((task.task_index for task in tasks if task.current), default=0)
    attempts = [task for task in tasks if task.task_index == index]
    if not attempts:
        raise NotFound(f"workload {row.name!r} has no task {index}", code="unknown-task")
    if attempt is not None:
        attempts = [task for task in attempts if task.attempt == attempt]
        if not attempts:
            raise NotFound(f"no attempt {attempt} at task {index} of {row.name!r} is kept", code="unknown-attempt")
    placed = [task for task in attempts if task.node_name is not None]
    if not placed:
        raise Conflict(
            f"task {index} of {row.name!r} has no output: it is {attempts[-1].status} and was on no node yet",
            code="no-output-yet",
        )
    return placed[-1]


class _Output(StreamingResponse):
    """A stream that closes its source however it ends, also where the client has gone before it began."""

    def __init__(self, source: AsyncIterator[bytes], media_type: str, close: Callable[[], None]) -> None:
        """`close` is called once, at the end."""
        self._source = source
        self._when_closed = close
        self._first = asyncio.ensure_future(anext(source, None))
        super().__init__(self._pieces(), media_type=media_type)

    async def begin(self) -> None:
        """Wait a little for the first piece: a node that does not answer is an error answer, not a broken stream."""
        try:
            await asyncio.wait([self._first], timeout=_FIRST_OUTPUT_SECONDS)
            if self._first.done():
                self._first.result()
        except BaseException:
            await self._close()
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._close()

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            piece = await self._first
            while piece is not None:
                yield piece
                piece = await anext(self._source, None)
        except MooringError as error:
            log.warning("Output was cut off", error=str(error))
            yield f"\n[mooring] the output is cut off here: {error.message}\n".encode()

    async def _close(self) -> None:
        self._when_closed()
        self._first.cancel()
        await asyncio.wait([self._first])
        if (close := getattr(self._source, "aclose", None)) is not None:
            await close()


@router.post(
    "/{ref}/scale", status_code=202, operation_id="scale_workload", responses=problems(400, 403, 404, 409, 413)
)
async def scale(services: Served, principal: User, ref: str, request: ScaleRequest) -> WorkloadView:
    """Change how many replicas there should be."""
    row = await find_workload(services, principal, ref, action=Action.CHANGE_WORK)
    await services.intake.scale(principal, row.id, request.replicas)
    return workload_view(await find_workload(services, principal, str(row.id)))


@router.delete("/{ref}", status_code=202, operation_id="remove_workload", responses=problems(403, 404, 409))
async def remove(
    services: Served,
    principal: User,
    ref: str,
    keep: Annotated[bool, Query(description="Leave it on the list")] = False,
    force: Annotated[bool, Query(description="Do not wait for nodes that do not answer")] = False,
) -> WorkloadView:
    """Stop a workload and take it off the list; its history stays."""
    row = await find_workload(services, principal, ref, action=Action.CHANGE_WORK)
    await services.intake.remove(principal, row.id, keep=keep, force=force)
    return workload_view(await find_workload(services, principal, str(row.id)))


@router.post("/{ref}/extend", operation_id="extend_workload", responses=problems(400, 403, 404, 409, 413))
async def extend(services: Served, principal: User, ref: str, request: ExtendRequest) -> WorkloadDetail:
    """Change the time limit of a session, also while it runs."""
    row = await find_workload(services, principal, ref, action=Action.CHANGE_WORK)
    await services.intake.extend(principal, row.id, request)
    return await detailed(services, principal, await find_workload(services, principal, str(row.id)))


async def detailed(services: Services, principal: Principal, row: WorkloadRow) -> WorkloadDetail:
    async with services.database.read() as connection:
        tasks = await views.tasks_of(connection, row.id)
        needed = await dependencies.of(connection, [row.id])
    return workload_detail(row, tasks, needed.get(row.id, ()), to_owner=row.user_id == principal.user_id)
