"""A record of the leaders and their terms, read from the database several times a second, past all proxies."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import asyncpg

_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 2.0
_QUESTION = "SELECT term, holder, taken_at FROM leadership WHERE term > $1"


@dataclass(frozen=True, slots=True)
class Term:
    number: int
    holder: str
    taken_at: datetime


class Watch:
    """The observed terms, in order."""

    def __init__(self, database_url: str) -> None:
        self.terms: list[Term] = []
        self._url = database_url.replace("+asyncpg", "")
        self._end = threading.Event()

    @property
    def leader(self) -> str | None:
        return self.terms[-1].holder if self.terms else None

    def run(self) -> None:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            while not self._end.is_set():
                # The database is killed and paused too, and its driver then fails in many ways.
                with contextlib.suppress(Exception):
                    runner.run(self._look())
                self._end.wait(_POLL_SECONDS)

    def end(self) -> None:
        self._end.set()

    async def _look(self) -> None:
        connection = await asyncpg.connect(self._url, timeout=_ANSWER_SECONDS, command_timeout=_ANSWER_SECONDS)
        try:
            while not self._end.is_set():
                newest = self.terms[-1].number if self.terms else 0
                self.terms += [Term(*row) for row in await connection.fetch(_QUESTION, newest)]
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            connection.terminate()


@contextmanager
def watching(database_url: str) -> Iterator[Watch]:
    watch = Watch(database_url)
    thread = threading.Thread(target=watch.run, name="watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.end()
        thread.join()
