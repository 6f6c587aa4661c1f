"""The event feed for streams: one reader of the table per process, however many streams there are."""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog

from mooring.coordination.outage import Outage
from mooring.coordination.signals import Signal
from mooring.model.events import Cursor
from mooring.store.control import feed
from mooring.store.core.engine import Database, is_temporary
from mooring.store.views.events import EventRow, Page, Watch, page

_log = structlog.get_logger(__name__)
# What was committed before an older transaction becomes readable at the end of that one, which may send no signal.
_FOLLOW_SECONDS = 1.0
_AGAIN_SECONDS = 1.0
_PAGE = 1000
_REMEMBERED = 10_000


@dataclass(slots=True)
class _Watched:
    signal: Signal = field(default_factory=Signal)
    watchers: int = 0


class EventFeed:
    """Follows the feed while it has readers, and remembers its newest part.

    A stream asks for what comes after its own cursor: from memory if that reaches back so far, else from the table, a
    page at a time. A slow reader therefore holds only its cursor, and delays no other reader.
    """

    def __init__(self, database: Database, signal: Signal, *, remembered: int = _REMEMBERED) -> None:
        self._database = database
        self._signal = signal
        self._most = remembered
        self._remembered: list[EventRow] = []
        self._begin: Cursor | None = None
        """Everything after it, up to the end, is remembered."""
        self._end: Cursor | None = None
        self._news = Signal()
        self._watched: dict[UUID, _Watched] = {}
        self._readers = 0
        self._following: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End every stream and the reading of the table because the server stops."""
        self._closed = True
        self._news.send()
        self._notify_all()
        self._signal.send()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Follow the table while inside. Without readers nothing is read."""
        self._readers += 1
        if self._following is None and not self._closed:
            self._following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self._readers -= 1

    @contextlib.contextmanager
    def watching(self, object_id: UUID) -> Iterator[Signal]:
        """A signal for changes of one workload or timeslot, for long polls; other changes do not fire it.

        It also fires when events may have been missed, so that the caller looks again.
        """
        watched = self._watched.setdefault(object_id, _Watched())
        watched.watchers += 1
        try:
            with self.reading():
                yield watched.signal
        finally:
            watched.watchers -= 1
            if not watched.watchers:
                del self._watched[object_id]

    async def end(self) -> Cursor:
        """Return the cursor at the end of the feed."""
        async with self._database.read() as connection:
            return await feed.end(connection)

    async def after(self, cursor: Cursor, *, watch: Watch, wait_seconds: float) -> Page:
        """Return events after the cursor; an empty page if none came within the wait, or the feed was closed."""
        seen = self._news.count
        if self._has_after(cursor) is False:
            return await _unbroken(self._page(cursor, watch))
        if (found := self._recall(cursor, watch)) is None and not self._closed:
            await self._news.wait(wait_seconds, seen)
            if self._has_after(cursor):
                found = self._recall(cursor, watch)
        return found or Page([], cursor, False)

    def _has_after(self, cursor: Cursor) -> bool | None:
        """Return whether the events in memory reach back to the cursor; None before the first read of the table."""
        return None if self._begin is None else self._begin <= cursor

    def _recall(self, cursor: Cursor, watch: Watch) -> Page | None:
        if self._end is None or cursor >= self._end:
            return None
        start = bisect_right(self._remembered, cursor, key=lambda event: event.cursor)
        part = self._remembered[start : start + _PAGE]
        more = start + _PAGE < len(self._remembered)
        return Page([event for event in part if watch.shows(event)], part[-1].cursor if more else self._end, more)

    async def _follow(self) -> None:
        try:
            await self._follow_while_read()
        finally:
            # Whatever ended it, the next reader starts it again.
            self._following = None
            self._forget()

    async def _follow_while_read(self) -> None:
        outage = Outage("The database", "event streams wait")
        seen = self._signal.count
        while self._readers and not self._closed:
            try:
                if self._end is None:
                    self._begin = self._end = await self.end()
                    self._news.send()
                    # What was committed before this is not followed.
                    self._notify_all()
                else:
                    await self._read_on(self._end)
            except Exception as error:
                outage.failed(error)
                if not is_temporary(error):
                    _log.exception("Cannot follow the event feed for the streams; trying again")
                self._forget()
                self._notify_all()
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            outage.over()
            seen = await self._signal.wait(_FOLLOW_SECONDS, seen)

    async def _read_on(self, end: Cursor) -> None:
        more = True
        while more:
            found = await self._page(end, Watch())
            end, more = found.next, found.more
            if found.events:
                self._notify(found.events)
                self._remembered += found.events
                if len(self._remembered) > self._most:
                    surplus = len(self._remembered) - self._most // 2
                    self._begin = self._remembered[surplus - 1].cursor
                    del self._remembered[:surplus]
            self._end = end
            if found.events:
                self._news.send()

    async def _page(self, cursor: Cursor, watch: Watch) -> Page:
        async with self._database.read() as connection:
            return await page(connection, cursor, watch=watch, limit=_PAGE)

    def _notify(self, events: Sequence[EventRow]) -> None:
        if self._watched:
            changed = {event.object_id for event in events} | {event.workload_id for event in events}
            for object_id, watched in self._watched.items():
                if object_id in changed:
                    watched.signal.send()

    def _notify_all(self) -> None:
        for watched in self._watched.values():
            watched.signal.send()

    def _forget(self) -> None:
        self._remembered, self._begin, self._end = [], None, None


async def _unbroken(reading: Coroutine[Any, Any, Page]) -> Page:
    """Read to the end even if the stream's client goes away meanwhile: a query that is cut off costs its connection."""
    task = asyncio.create_task(reading)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
