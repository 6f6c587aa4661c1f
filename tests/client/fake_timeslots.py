"""The timeslots of the fake server: what is booked gets the answer that a test has set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from aiohttp import web

from mooring.model.calendar.durations import parse_duration
from mooring.wire.workloads.timeslots import (
    LabAccepted,
    LabList,
    LabRequest,
    LabView,
    MaintenanceRequest,
    TimeslotChange,
    TimeslotList,
    TimeslotRequest,
    TimeslotsAccepted,
    TimeslotsCancelled,
    TimeslotView,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def timeslot_view(name: str = "lecture", **fields: Any) -> TimeslotView:
    start = fields.pop("start", NOW)
    values: dict[str, Any] = {
        "id": uuid4(),
        "kind": "booking",
        "pool": "default",
        "project": "default",
        "user": "admin",
        "status": "CONFIRMED",
        "end": start + timedelta(hours=1),
        "lead_seconds": 2100,
        "grace_seconds": 300,
        "eligible_at": start - timedelta(seconds=2100),
        "resources": {"cpu": "2"},
        "count": 1,
        "created_at": NOW,
        "version": 1,
    }
    return TimeslotView(name=name, start=start, **(values | fields))


class FakeTimeslots:
    def __init__(self) -> None:
        self.slots: dict[UUID, TimeslotView] = {}
        self.labs: list[LabView] = []
        self.answers: list[dict[str, Any]] = []
        """Set the outcome of the next timeslots that a client waits for."""

    def add(self, slot: TimeslotView) -> TimeslotView:
        self.slots[slot.id] = slot
        return slot

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/timeslots", self._book),
            web.get("/api/timeslots", self._list),
            web.get("/api/timeslots.ics", self._calendar),
            web.get("/api/timeslots/{ref}", self._get),
            web.get("/api/timeslots/{ref}/wait", self._wait),
            web.patch("/api/timeslots/{ref}", self._change),
            web.delete("/api/timeslots/{ref}", self._cancel),
            web.post("/api/maintenance", self._maintain),
            web.post("/api/labs", self._create_lab),
            web.get("/api/labs", self._list_labs),
            web.get("/api/labs/{ref}", self._get_lab),
            web.delete("/api/labs/{ref}", self._cancel),
        ]

    def _find(self, ref: str) -> TimeslotView:
        for slot in self.slots.values():
            if ref in (slot.name, str(slot.id)):
                return slot
        raise web.HTTPNotFound(
            text=f'{{"code": "not-found", "message": "there is no booking {ref!r}"}}', content_type="application/json"
        )

    async def _book(self, request: web.Request) -> web.Response:
        asked = TimeslotRequest.model_validate_json(await request.read())
        start = asked.start or NOW
        end = asked.end or start + timedelta(seconds=parse_duration(str(asked.duration)))
        name, number = asked.name or "booking-1", 2 if asked.rule else 1
        made = [
            self.add(timeslot_view(name, start=start, end=end, status="REQUESTED", count=asked.count))
            for _ in range(number)
        ]
        ids = [slot.id for slot in made]
        return _json(TimeslotsAccepted(ids=ids, name=name, pool="default", message="asked for"), 202)

    async def _list(self, request: web.Request) -> web.Response:
        found = list(self.slots.values())
        return _json(TimeslotList(timeslots=found, total=len(found), limit=1000, offset=0))

    async def _calendar(self, request: web.Request) -> web.Response:
        return web.Response(text="BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n", content_type="text/calendar")

    async def _get(self, request: web.Request) -> web.Response:
        return _json(self._find(request.match_info["ref"]))

    async def _wait(self, request: web.Request) -> web.Response:
        slot = self._find(request.match_info["ref"])
        answer = self.answers.pop(0) if self.answers else {"status": "CONFIRMED"}
        decided = TimeslotView.model_validate(slot.model_dump() | answer)
        return _json(self.add(decided))

    async def _change(self, request: web.Request) -> web.Response:
        TimeslotChange.model_validate_json(await request.read())
        slot = self._find(request.match_info["ref"])
        new = slot.model_copy(update={"id": uuid4(), "status": "REQUESTED", "replaces": slot.id})
        return _json(self.add(new), 202)

    async def _cancel(self, request: web.Request) -> web.Response:
        return _json(TimeslotsCancelled(cancelled=[self._find(request.match_info["ref"]).id]), 202)

    async def _maintain(self, request: web.Request) -> web.Response:
        asked = MaintenanceRequest.model_validate_json(await request.read())
        places = [{"node": node, "tasks": 1} for node in asked.nodes]
        made = timeslot_view("maintenance-1", kind="maintenance", start=asked.start, places=places)
        return web.json_response([made.model_dump(mode="json")], status=201)

    async def _create_lab(self, request: web.Request) -> web.Response:
        asked = LabRequest.model_validate_json(await request.read())
        name = asked.workload.name or "lab-1"
        slot = self.add(timeslot_view(name, kind="lab", status="REQUESTED", start=asked.start or NOW))
        return _json(LabAccepted(timeslot=slot.id, workload=uuid4(), name=name, pool="default", message="ok"), 202)

    async def _list_labs(self, request: web.Request) -> web.Response:
        return _json(LabList(labs=self.labs, total=len(self.labs), limit=1000, offset=0))

    async def _get_lab(self, request: web.Request) -> web.Response:
        return _json(self.labs[0])


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(text=body.model_dump_json(), status=status, content_type="application/json")
