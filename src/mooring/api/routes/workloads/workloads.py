"""Workloads: submit, dry-run, list, explain, wait, read their output, scale, remove."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, aclosing, suppress
from functools import partial
from typing import Annotated, Literal, cast

import structlog
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, BeforeValidator
from starlette.types import Receive, Scope, Send

from mooring.api.auth.request_access import IdempotencyHeader, LoggedIn, Served, Submitter, User
from mooring.api.lookup.leadership import scheduling_problem
from mooring.api.lookup.listing import RECENTLY, Active, All, Everyone, Limit, Offset, Status, sight_of
from mooring.api.lookup.workloads import detailed, find_workload, listed
from mooring.api.middleware.errors import problems
from mooring.api.middleware.outermost import become_writer, release_seat
from mooring.api.middleware.task_costs import charge_tasks
from mooring.api.serializers import (
    attempt_row,
    history_row,
    task_view,
    workload_view,
)
from mooring.api.streams.long_polls import watch
from mooring.api.streams.open_connections import LAST_MESSAGE_SECONDS, AccessRevoked, OpenConnection
from mooring.api.streams.server_proxy import forward_request, forwarding_target
from mooring.api.submission_route import SubmissionRoute
from mooring.model.errors import Conflict, MooringError, NotFound, Unavailable
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.tenancy.access import (
    Action,
    require_visible,
)
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.arrays import MAX_INDEXES_TEXT
from mooring.model.workloads.output import CUT_OFF
from mooring.model.workloads.workload import Kind
from mooring.store.views import history as history_views
from mooring.store.views import task_access
from mooring.store.views import workloads as views
from mooring.store.views.workloads import Order, Selection, SortKey, TaskRow, WaitState, WorkloadRow
from mooring.store.workloads import attempts
from mooring.wire.fields import INT32_MAX, Name, ShortText
from mooring.wire.workloads.explanation import Explanation
from mooring.wire.workloads.history import HistoryList
from mooring.wire.workloads.rollouts import EndpointList, EndpointView
from mooring.wire.workloads.sessions import ExtendRequest
from mooring.wire.workloads.tasks import TaskList
from mooring.wire.workloads.workloads import (
    TIMES_NOTED,
    Comparison,
    ScaleRequest,
    WorkloadAccepted,
    WorkloadDetail,
    WorkloadList,
    WorkloadRequest,
    WorkloadView,
)

router = APIRouter(prefix="/api/workloads", tags=["workloads"], responses=problems(401, 422, 503))

log = structlog.get_logger()

Sort = Literal[
    "created_at", "-created_at", "name", "-name", "status", "-status", "priority", "-priority", "start", "-start"
]
TaskState = Annotated[TaskStatus, BeforeValidator(lambda text: text.upper() if isinstance(text, str) else text)]
WaitFor = Literal["ended", "running", "changed"]


_MAX_WAIT_SECONDS = 300.0
_MAX_HISTORY = 10_000
# After this long without output the response begins anyway, so that a follower's connection stands.
_FIRST_OUTPUT_SECONDS = 2.0
_SIMULATED_OUTPUT = b"simulated: nothing runs, so there is no output\n"


async def submit(
    services: Served,
    principal: Submitter,
    request: WorkloadRequest,
    http: Request,
    response: Response,
    idempotency_key: IdempotencyHeader = None,
) -> WorkloadAccepted:
    """Submit a workload. It is durable when the response arrives, and is placed soon after."""
    charge_tasks(services, principal, replicas=request.replicas, array=request.array)
    waiting = partial(become_writer, services, http.scope, principal)
    accepted = await services.submissions.submit(principal, request, key=idempotency_key, before_commit=waiting)
    response.headers["Location"] = f"{services.public_url.rstrip('/')}/api/workloads/{accepted.id}"
    return accepted


router.add_api_route(
    "",
    submit,
    methods=["POST"],
    status_code=202,
    operation_id="submit_workload",
    responses=problems(403, 404, 409, 412),
    route_class_override=SubmissionRoute,
)


@router.post("/dry-run", operation_id="dry_run_workload", responses=problems(403, 404, 409, 412))
async def dry_run(services: Served, principal: User, request: WorkloadRequest) -> Explanation:
    """Evaluate a workload without submitting it: where its tasks would go now and why, or why they would wait."""
    services.rates.query(principal)
    return await services.queries.dry_run(principal, request)


@router.get("", operation_id="list_workloads", responses=problems(403))
async def list_workloads(
    services: Served,
    principal: User,
    status: Annotated[list[Status] | None, Query(description="Only these statuses")] = None,
    kind: Kind | None = None,
    name: Name | None = None,
    search: Annotated[ShortText | None, Query(description="Only names that contain this, in any case")] = None,
    pool: Annotated[Name | None, Query(description="Only workloads of this pool")] = None,
    all: All = False,
    active: Active = False,
    starting: Annotated[
        bool, Query(description="Only pending workloads with a planned or an estimated start that is ahead")
    ] = False,
    everyone: Everyone = False,
    limit: Limit = 100,
    offset: Offset = 0,
    sort: Annotated[Sort, Query(description="Sort key; a leading `-` reverses the order")] = "-created_at",
    positions: Annotated[
        bool, Query(description="Include positions in the queue (`start.position`), which take long in a long queue")
    ] = True,
) -> WorkloadList:
    """List the caller's workloads, without removed ones."""
    selection = Selection(
        sight=sight_of(principal, everyone=everyone),
        statuses=frozenset(status) if status else None,
        kind=kind,
        name=name,
        name_part=search,
        pool=pool,
        ended_since=services.now() if active else None if all else services.now() - RECENTLY,
        starts_after=services.now() if starting else None,
    )
    order = Order(by=cast(SortKey, sort.removeprefix("-")), descending=sort.startswith("-"))
    return await listed(services, selection, order, limit=limit, offset=offset, with_positions=positions)


@router.get("/{ref}", operation_id="get_workload", responses=problems(404))
async def get_workload(services: Served, principal: User, ref: str) -> WorkloadDetail:
    """Get a workload with its tasks, by id or name."""
    return await detailed(services, principal, await find_workload(services, principal, ref))


@router.get("/{ref}/tasks", operation_id="list_workload_tasks", responses=problems(404))
async def list_tasks(
    services: Served,
    principal: User,
    ref: str,
    status: Annotated[list[TaskState] | None, Query(description="Only these statuses")] = None,
    limit: Limit = 1000,
    offset: Offset = 0,
) -> TaskList:
    """List the newest attempt of each task by index, for arrays too large for `get_workload`."""
    row = await find_workload(services, principal, ref)
    statuses = frozenset(status) if status else None
    async with services.database.read() as connection:
        rows, total = await views.page_of_tasks(connection, row, statuses=statuses, limit=limit, offset=offset)
    return TaskList(tasks=[task_view(task) for task in rows], total=total, limit=limit, offset=offset)


@router.delete("/{ref}/tasks", status_code=202, operation_id="cancel_workload_tasks", responses=problems(403, 404, 409))
async def cancel_tasks(
    services: Served,
    principal: User,
    ref: str,
    index: Annotated[
        str, Query(min_length=1, max_length=MAX_INDEXES_TEXT, description="Indexes of the array, such as 3,5-9")
    ],
    force: Annotated[bool, Query(description="Do not wait for nodes that do not answer")] = False,
) -> WorkloadView:
    """Cancel single indexes of an array; the others continue."""
    row = await find_workload(services, principal, ref, action=Action.CHANGE_WORK)
    await services.submissions.cancel_tasks(principal, row.id, index, force=force)
    return workload_view(await find_workload(services, principal, str(row.id)))


@router.get("/{ref}/endpoints", operation_id="list_workload_endpoints", responses=problems(404))
async def list_endpoints(services: Served, principal: User, ref: str) -> EndpointList:
    """List the addresses of tasks that can take traffic: they run, are ready and do not terminate."""
    row = await find_workload(services, principal, ref)
    # The cursor first: an event that happens meanwhile is reported twice rather than never.
    cursor = await services.feed.end()
    async with services.database.read() as connection:
        found = await task_access.endpoints(connection, row.id)
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
    limit: Annotated[int, Query(ge=1, le=_MAX_HISTORY, description="Maximum entries, the newest")] = 1000,
) -> HistoryList:
    """List the history of a workload and its tasks, oldest first."""
    row = await find_workload(services, principal, ref)
    async with services.database.read() as connection:
        entries = await history_views.of_workload(connection, row.id, limit=limit)
        tried = await attempts.of_workload(connection, row.id, limit=limit)
    return HistoryList(history=[history_row(entry) for entry in entries], attempts=[attempt_row(one) for one in tried])


@router.get("/{ref}/explanation", operation_id="explain_workload", responses=problems(404))
async def explain(services: Served, principal: User, ref: str) -> Explanation:
    """Explain why a workload waits, or how the nodes of a placed one compare with the others now."""
    row = await find_workload(services, principal, ref)
    services.rates.query(principal)
    explanation = await services.queries.explain(row.id)
    if explanation.outcome == "ended" or (problem := await scheduling_problem(services)) is None:
        return explanation
    return explanation.model_copy(update={"scheduling": problem})


@router.post("/{ref}/comparison", operation_id="compare_workload", responses=problems(403, 404, 409))
async def compare(services: Served, principal: User, ref: str, request: WorkloadRequest) -> Comparison:
    """List the differences between a workload and a request. Changes nothing."""
    row = await find_workload(services, principal, ref)
    services.rates.query(principal)
    found = await services.submissions.compare(principal, row, request)
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
    login: LoggedIn,
    request: Request,
    ref: str,
    wait_for: Annotated[WaitFor, Query(alias="for")] = "ended",
    version: Annotated[
        int | None, Query(ge=0, le=INT32_MAX, description="With `for=changed`: the known version")
    ] = None,
    timeout: Annotated[float, Query(ge=0, le=_MAX_WAIT_SECONDS, allow_inf_nan=False)] = 25.0,
) -> WorkloadDetail:
    """Wait until a workload runs, ends or changes, or the timeout expires; return it."""
    principal = login.principal
    row = await find_workload(services, principal, ref)
    known = row.version if version is None else version
    async with aclosing(watch(services, request.scope, login, row.id, timeout, _sees(row))) as looking:
        async for last in looking:
            async with services.database.read() as connection:
                seen = await views.wait_state(connection, row.id)
            if seen is None:
                raise NotFound(f"workload {row.name!r} has been purged")
            if last or _has_come(wait_for, seen, known):
                break
    return await detailed(services, principal, await find_workload(services, principal, str(row.id)))


def _has_come(wait_for: WaitFor, seen: WaitState, known_version: int) -> bool:
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
    login: LoggedIn,
    request: Request,
    ref: str,
    task: Annotated[int | None, Query(ge=0, le=INT32_MAX, description="Index of the task (default: the first)")] = None,
    attempt: Annotated[
        int | None, Query(ge=1, le=INT32_MAX, description="Attempt (default: the newest that had a node)")
    ] = None,
    tail: Annotated[int | None, Query(ge=0, le=INT32_MAX, description="Number of last lines")] = None,
    follow: Annotated[bool, Query(description="Continue until the task ends")] = False,
    container: Annotated[Name | None, Query(description="Container (default: the first)")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Only lines that arrived from this instant on")] = None,
    timestamps: Annotated[bool, Query(description="Begin each line with the time at which it arrived")] = False,
) -> Response:
    """Get the output of a task as bytes.

    Times are noted to 0.1 s. An answer with `since` or `timestamps` has the content type parameter `times=noted`.
    """
    principal = login.principal
    row = await find_workload(services, principal, ref)
    media_type = "text/plain; charset=utf-8"
    if timestamps or since is not None:
        media_type += f"; {TIMES_NOTED}"
    if row.simulated:
        return Response(_SIMULATED_OUTPUT, media_type=media_type)
    async with services.database.read() as connection:
        chosen = _with_output(row, await views.tasks_of(connection, row, task), task, attempt)
    if chosen.node_id is None:
        raise NotFound(
            f"the output of task {chosen.task_index} is no longer available: its node {chosen.node_name!r} was removed",
            code="output-gone",
        )
    opened = ExitStack()
    opened.callback(services.rates.open_stream(principal))
    held = opened.enter_context(services.connections.opened(login, _sees(row)))
    name = container or row.template["containers"][0]["name"]
    pieces = services.logs.stream(
        chosen.id,
        chosen.node_id,
        container=name,
        tail=tail,
        follow=follow,
        since=None if since is None else since.timestamp(),
        timestamps=timestamps,
    )
    output = _Output(held.each(pieces), media_type, held, opened)
    release_seat(request.scope)
    try:
        await output.begin()
    except Unavailable as problem:
        async with services.database.read() as connection:
            server_url = await task_access.server_of(connection, chosen.node_id)
        return await forward_request(request, forwarding_target(request, problem, server_url))
    return output


def _sees(row: WorkloadRow) -> Callable[[Principal], None]:
    """Return the check of the request, for connections about the workload that stay open."""
    return lambda principal: require_visible(principal, Action.SEE_WORK, row.target, f"workload {row.name!r}")


def _with_output(row: WorkloadRow, tasks: Sequence[TaskRow], index: int | None, attempt: int | None) -> TaskRow:
    """Return the requested attempt of the task, otherwise the newest one that had a node."""
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
    """A stream that always closes its source, even if the client disconnects before it begins."""

    def __init__(
        self, source: AsyncIterator[bytes], media_type: str, connection: OpenConnection, opened: ExitStack
    ) -> None:
        """`opened` is closed at the end."""
        self._source = source
        self._connection = connection
        self._opened = opened
        self._first = asyncio.ensure_future(anext(source, None))
        super().__init__(self._pieces(), media_type=media_type)

    async def begin(self) -> None:
        """Wait briefly for the first piece, so that a silent node becomes an error response, not a broken stream."""
        try:
            await asyncio.wait([self._first], timeout=_FIRST_OUTPUT_SECONDS)
            if self._first.done():
                self._first.result()
        except BaseException:
            await self._close()
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # A reader that does not read is not waited for.
            with suppress(AccessRevoked):
                await self._connection.run(super().__call__(scope, receive, send), grace_seconds=LAST_MESSAGE_SECONDS)
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
            yield CUT_OFF + f"{error.message}\n".encode()

    async def _close(self) -> None:
        self._opened.close()
        self._first.cancel()
        await asyncio.wait([self._first])
        if (close := getattr(self._source, "aclose", None)) is not None:
            await close()


@router.post("/{ref}/scale", status_code=202, operation_id="scale_workload", responses=problems(403, 404, 409, 412))
async def scale(services: Served, principal: User, ref: str, request: ScaleRequest) -> WorkloadView:
    """Change the number of replicas of a deployment."""
    row = await find_workload(services, principal, ref, action=Action.CHANGE_WORK)
    charge_tasks(services, principal, replicas=request.replicas)
    await services.submissions.scale(principal, row.id, request.replicas)
    return workload_view(await find_workload(services, principal, str(row.id)))


@router.delete("/{ref}", status_code=202, operation_id="remove_workload", responses=problems(403, 404, 409))
async def remove(
    services: Served,
    principal: User,
    ref: str,
    keep: Annotated[bool, Query(description="Keep it on the list")] = False,
    force: Annotated[bool, Query(description="Do not wait for nodes that do not answer")] = False,
) -> WorkloadView:
    """Stop a workload and remove it from the list. Its history is retained."""
    row = await find_workload(services, principal, ref, action=Action.CHANGE_WORK)
    await services.submissions.remove(principal, row.id, keep=keep, force=force)
    return workload_view(await find_workload(services, principal, str(row.id)))


@router.post("/{ref}/extend", operation_id="extend_workload", responses=problems(403, 404, 409))
async def extend(services: Served, principal: User, ref: str, request: ExtendRequest) -> WorkloadDetail:
    """Change the time limit of a session, also while it runs."""
    row = await find_workload(services, principal, ref, action=Action.CHANGE_WORK)
    await services.submissions.extend(principal, row.id, request)
    return await detailed(services, principal, await find_workload(services, principal, str(row.id)))
