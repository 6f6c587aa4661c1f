"""Volumes at the fake server."""

from __future__ import annotations

from uuid import uuid4

from aiohttp import web
from pydantic import TypeAdapter

from mooring.wire.workloads.volumes import NewVolumeRequest, VolumeView
from tests.client.fake_timeslots import NOW

_LIST = TypeAdapter(list[VolumeView])


class FakeVolumes:
    def __init__(self) -> None:
        self.known: dict[str, VolumeView] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/volumes", self._create),
            web.get("/api/volumes", self._every),
            web.get("/api/volumes/{name}", self._one),
            web.delete("/api/volumes/{name}", self._remove),
        ]

    async def _create(self, request: web.Request) -> web.Response:
        asked = NewVolumeRequest.model_validate(await request.json())
        self.known[asked.name] = VolumeView(
            id=uuid4(),
            name=asked.name,
            project=asked.project or "default",
            domain="default",
            pool=asked.pool or "default",
            size=str(asked.size),
            shared=asked.shared,
            status="available" if asked.shared else "unplaced",
            node=None,
            mounted_by=0,
            created_by="admin",
            created_at=NOW,
        )
        return _json(self.known[asked.name].model_dump_json(), 201)

    async def _every(self, request: web.Request) -> web.Response:
        return _json(_LIST.dump_json(list(self.known.values())).decode())

    async def _one(self, request: web.Request) -> web.Response:
        return _json(self.known[request.match_info["name"]].model_dump_json())

    async def _remove(self, request: web.Request) -> web.Response:
        del self.known[request.match_info["name"]]
        return web.Response(status=202)


def _json(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="application/json")
