"""Uploads at the fake server."""

from __future__ import annotations

from uuid import UUID

from aiohttp import web
from pydantic import TypeAdapter

from mooring.wire.workloads.uploads import Manifest, UploadView, digest_of, positions, read_manifest, runs
from tests.client.fake_timeslots import NOW

_LIST = TypeAdapter(list[UploadView])


class FakeUploads:
    """One upload at a time. `breaks`: requests for content that end the connection after their first chunk;
    `forgets`: it keeps nothing.
    """

    def __init__(self) -> None:
        self.manifest: Manifest | None = None
        self.content: dict[str, bytes] = {}
        self.received: list[int] = []
        """Bytes of each request with content."""
        self.breaks = 0
        self.forgets = False
        self.removed: list[str] = []

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/uploads", self._declare),
            web.get("/api/uploads", self._every),
            web.put("/api/uploads/{id}/content", self._store),
            web.post("/api/uploads/{id}/complete", self._complete),
            web.delete("/api/uploads/{id}", self._remove),
        ]

    @property
    def paths(self) -> list[str]:
        return [] if self.manifest is None else [entry.path for entry in self.manifest.entries]

    def view(self) -> UploadView:
        assert self.manifest is not None
        missing = [n for n, chunk in enumerate(self.manifest.chunks()) if chunk.digest not in self.content]
        return UploadView(
            id=UUID(int=7),
            digest="0" * 64,
            size=self.manifest.size,
            files=self.manifest.files,
            complete=not missing,
            missing=runs(missing),
            created_at=NOW,
            used_at=NOW,
        )

    async def _declare(self, request: web.Request) -> web.Response:
        self.manifest = read_manifest(await request.read())
        return _json(self.view().model_dump_json())

    async def _every(self, request: web.Request) -> web.Response:
        return _json(_LIST.dump_json([self.view()]).decode())

    async def _store(self, request: web.Request) -> web.Response:
        assert self.manifest is not None
        chunks = self.manifest.chunks()
        body = await request.read()
        self.received.append(len(body))
        for position in positions(request.query["chunks"], len(chunks)):
            part, body = body[: chunks[position].size], body[chunks[position].size :]
            assert digest_of(part) == chunks[position].digest
            if not self.forgets:
                self.content[chunks[position].digest] = part
            if self.breaks:
                self.breaks -= 1
                assert request.transport is not None
                request.transport.abort()
                break
        return web.Response(status=204)

    async def _complete(self, request: web.Request) -> web.Response:
        return _json(self.view().model_dump_json())

    async def _remove(self, request: web.Request) -> web.Response:
        self.removed.append(request.match_info["id"])
        return web.Response(status=204)


def is_content(request: web.Request) -> bool:
    """Return whether the body is the content of chunks."""
    return request.method == "PUT" and request.path.startswith("/api/uploads/")


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")
