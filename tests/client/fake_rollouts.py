"""Deployments over time at the fake server: an update is rolling until the workload's next steps say otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from aiohttp import web

from mooring.wire.workloads import rollouts
from mooring.wire.workloads.workloads import WorkloadView
from tests.client.fake_timeslots import NOW

if TYPE_CHECKING:
    from tests.client.fake_server import FakeServer, FakeWorkload


def rollout_view(**fields: Any) -> rollouts.RolloutView:
    values: dict[str, Any] = {
        "phase": "done",
        "revision": 1,
        "updated": 3,
        "outdated": 0,
        "surge": "1",
        "unavailable": "0",
        "drain_seconds": 5,
        "deadline_seconds": 600,
    }
    return rollouts.RolloutView(**(values | fields))


def rolls(workload: FakeWorkload, **fields: Any) -> None:
    """The rollout of a workload gets so far."""
    before = workload.view.rollout or rollout_view()
    changed = before.model_copy(update=fields)
    workload.view = workload.view.model_copy(update={"rollout": changed, "version": workload.view.version + 1})


class FakeRollouts:
    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self.revisions = [
            rollouts.RevisionView(
                number=number,
                cause=cause,
                images=[image],
                resources={"cpu": "1"},
                created_by="admin",
                created_at=NOW,
                present=number == 2,
            )
            for number, cause, image in ((1, "as submitted", "nginx:1"), (2, "image nginx:2", "nginx:2"))
        ]
        self.endpoints = [
            rollouts.EndpointView(
                task=UUID(int=1), index=4, revision=2, node="node-1", address="10.0.0.2", ports=[30001]
            )
        ]

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/deployments/{ref}/{what:update|rollback|pause|resume}", self._change),
            web.get("/api/deployments/{ref}/revisions", self._revisions),
            web.get("/api/workloads/{ref}/endpoints", self._endpoints),
        ]

    async def _change(self, request: web.Request) -> web.Response:
        workload = self._server.find(request.match_info["ref"])
        what = request.match_info["what"]
        if what == "update":
            rollouts.UpdateRequest.model_validate(await request.json())
        revision = workload.view.rollout.revision if workload.view.rollout else 1
        new = revision + (what in ("update", "rollback"))
        rolls(workload, phase="paused" if what == "pause" else "rolling", revision=new, updated=0, outdated=3)
        return _json(WorkloadView(**workload.view.model_dump()), 202)

    async def _revisions(self, request: web.Request) -> web.Response:
        self._server.find(request.match_info["ref"])
        return _json(rollouts.RevisionList(revisions=self.revisions))

    async def _endpoints(self, request: web.Request) -> web.Response:
        self._server.find(request.match_info["ref"])
        return _json(rollouts.EndpointList(endpoints=self.endpoints, cursor="0-7"))


def _json(answer: Any, status: int = 200) -> web.Response:
    return web.Response(text=answer.model_dump_json(), status=status, content_type="application/json")
