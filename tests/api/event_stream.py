"""A stream of an API in this very process, read piece by piece: the test client waits for whole answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

_PATIENCE_SECONDS = 60


class Stream:
    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._asked = False
        self._text = ""
        self.status = 0
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.cursor: str | None = None
        """The last id, as a browser would remember it."""

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.started.set()
        else:
            self._pieces.put_nowait(message.get("body", b""))

    async def message(self) -> dict[str, str]:
        """The next message, by its fields."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while "\n\n" not in self._text:
                self._text += (await self._pieces.get()).decode()
        text, self._text = self._text.split("\n\n", 1)
        fields = dict(line.split(": ", 1) for line in text.split("\n") if not line.startswith(":"))
        self.cursor = fields.get("id", self.cursor)
        return fields

    async def event(self) -> dict[str, Any]:
        """The next event; messages that only move the cursor are passed over."""
        while "data" not in (found := await self.message()):
            pass
        event: dict[str, Any] = json.loads(found["data"])
        assert event["cursor"] == found["id"]
        return event

    def leave(self) -> None:
        self._gone.set()


@asynccontextmanager
async def streaming(app: FastAPI, query: str, headers: dict[str, str]) -> AsyncIterator[Stream]:
    stream = Stream()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "path": "/api/events/stream",
        "raw_path": b"/api/events/stream",
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "server": ("mooring.test", 80),
        "client": ("192.0.2.1", 1),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }

    async def serve() -> None:
        await app(scope, stream.receive, stream.send)  # type: ignore[arg-type]
        stream.ended.set()

    serving = asyncio.create_task(serve())
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await stream.started.wait()
        yield stream
    finally:
        stream.leave()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await asyncio.wait([serving])
