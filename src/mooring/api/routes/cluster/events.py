"""Events, page by page or as a stream that can be resumed without gaps or repeats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mooring.api.auth.request_access import LoggedIn, Served, User
from mooring.api.lookup.workloads import find_workload
from mooring.api.middleware.errors import problems
from mooring.api.services import Services
from mooring.api.streams.event_feed import EventFeed
from mooring.api.streams.open_connections import LAST_MESSAGE_SECONDS, AccessRevoked, OpenConnection
from mooring.model.errors import EventsPurged, MooringError, NotAllowed
from mooring.model.events import CURSOR_PATTERN, Cursor, Noun, parse_cursor
from mooring.model.tenancy.access import sight
from mooring.model.tenancy.tenants import Principal
from mooring.store.control import feed
from mooring.store.views import events as views
from mooring.store.views.events import EventRow, Watch
from mooring.wire.cluster.events import EventList, EventView
from mooring.wire.problems import ErrorBody

router = APIRouter(prefix="/api/events", tags=["events"], responses=problems(401, 404, 410, 422, 503))

_KEEP_ALIVE_SECONDS = 15.0
_RETRY_MILLISECONDS = 1000
# Then the client opens another one: streams move to the servers that are there by then.
_MAX_STREAM_SECONDS = 900.0
_MEDIA_TYPE = "text/event-stream"
# Without a schema: readers of the description apply one to each event, not to the text of the stream.
_STREAM: dict[int | str, dict[str, Any]] = {200: {"description": "Server-sent events", "content": {_MEDIA_TYPE: {}}}}

Since = Annotated[str | None, Query(pattern=CURSOR_PATTERN, description="Cursor of the last known event")]
Expand = Annotated[bool, Query(description="Include names and the details of decisions: filters, scores, selection")]
OfWorkload = Annotated[str | None, Query(description="Only events of this workload, by id or name")]


@router.get("", operation_id="list_events")
async def list_events(
    services: Served,
    principal: User,
    since: Since = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    expand: Expand = False,
    workload: OfWorkload = None,
) -> EventList:
    """Return the events after a cursor, or the oldest ones, about work that the caller may see. Admins see all."""
    watch = await _watch(services, principal, workload)
    async with services.database.read() as connection:
        cursor = None if since is None else parse_cursor(since)
        page = await views.page(connection, cursor, watch=watch, limit=limit)
    return EventList(
        events=[event_view(event, expand=expand) for event in page.events], next=str(page.next), more=page.more
    )


@router.get("/stream", operation_id="stream_events", response_class=StreamingResponse, responses=_STREAM)
async def stream_events(
    services: Served,
    login: LoggedIn,
    since: Since = None,
    expand: Expand = False,
    workload: OfWorkload = None,
    last_event_id: Annotated[
        str | None, Header(pattern=CURSOR_PATTERN, description="Cursor; takes precedence over `since`")
    ] = None,
) -> Response:
    """Stream events as they are committed, from a cursor on, or new ones only.

    The `id` of every message is a cursor. After an interruption, the last one resumes without gaps or repetitions.
    """
    watch = await _watch(services, login.principal, workload)
    known = last_event_id or since
    if known is None:
        cursor = await services.feed.end()
    else:
        cursor = parse_cursor(known)
        async with services.database.read() as connection:
            await feed.check_retained(connection, cursor, await feed.end(connection))
    opened = ExitStack()
    opened.callback(services.rates.open_stream(login.principal))
    held = opened.enter_context(services.connections.opened(login, lambda now: _require_sight(now, watch)))
    messages = _until_revoked(held, _messages(services.feed, cursor, watch, expand))
    return _Stream(services.feed, messages, held, opened)


def _require_sight(principal: Principal, watch: Watch) -> None:
    """A stream shows the objects that were visible to its reader when it began; the next one checks again."""
    if sight(principal) != watch.sight:
        raise NotAllowed("your permissions have changed; open the stream again")


class _Stream(StreamingResponse):
    """Follows the feed as long as it is sent, and is counted out however it ends."""

    def __init__(
        self, feed: EventFeed, messages: AsyncIterator[bytes], connection: OpenConnection, opened: ExitStack
    ) -> None:
        super().__init__(messages, media_type=_MEDIA_TYPE, headers={"Cache-Control": "no-store"})
        self._feed = feed
        self._connection = connection
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A reader that does not read is not waited for.
        with self._opened, self._feed.reading(), suppress(AccessRevoked):
            await self._connection.run(super().__call__(scope, receive, send), grace_seconds=LAST_MESSAGE_SECONDS)


async def _until_revoked(connection: OpenConnection, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for message in connection.each(messages):
            yield message
    except AccessRevoked as error:
        yield _end(error)


def _end(error: MooringError) -> bytes:
    problem = ErrorBody(code=error.code, message=error.message)
    return f"event: end\ndata: {problem.model_dump_json()}\n\n".encode()


async def _messages(feed: EventFeed, cursor: Cursor, watch: Watch, expand: bool) -> AsyncIterator[bytes]:
    time = asyncio.get_running_loop().time
    end = time() + _MAX_STREAM_SECONDS
    # The id alone is no event, but a client that loses the connection at once knows where it was.
    yield f"retry: {_RETRY_MILLISECONDS}\nid: {cursor}\n\n".encode()
    sent_at = time()
    while not feed.closed and time() < end:
        try:
            page = await feed.after(cursor, watch=watch, wait_seconds=_KEEP_ALIVE_SECONDS)
        except EventsPurged as error:
            yield _end(error)
            return
        cursor = page.next
        if page.events:
            yield b"".join(_message(event, expand) for event in page.events)
            sent_at = time()
        elif time() - sent_at >= _KEEP_ALIVE_SECONDS:
            # The cursor also passes the events of others, so that a quiet client does not fall behind the stored feed.
            yield f": still here\nid: {cursor}\n\n".encode()
            sent_at = time()


def _message(event: EventRow, expand: bool) -> bytes:
    view = event_view(event, expand=expand)
    return f"id: {view.cursor}\ndata: {view.model_dump_json(exclude_none=True)}\n\n".encode()


def event_view(event: EventRow, *, expand: bool) -> EventView:
    names: dict[str, Any] = {}
    if expand:
        names = {
            "workload": event.workload,
            "task_index": event.task_index,
            "node": event.node,
            "pool": event.pool,
            "timeslot": event.timeslot,
            "details": None if event.details is None else dict(event.details),
        }
    return EventView(
        cursor=str(event.cursor),
        revision=event.cursor.revision,
        noun=cast(Noun, event.noun),
        id=event.object_id,
        version=event.version,
        kind=event.kind,
        at=event.at,
        term=event.term,
        workload_id=event.workload_id,
        node_id=event.node_id,
        **names,
    )


async def _watch(services: Services, principal: Principal, workload: str | None) -> Watch:
    workload_id = None if workload is None else (await find_workload(services, principal, workload)).id
    return Watch(sight(principal), workload_id)
