"""Bookings with real processes and a shifted clock: prepared, run, ended, and the next one on the same node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from mooring.client import Client
from mooring.clock import ShiftedClock
from mooring.wire.workloads.timeslots import LabRequest, TimeslotRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import eventually

RESOURCES = {"cpu": "100m", "memory": "64Mi"}
MINUTE = timedelta(minutes=1)


@pytest.mark.slow
def test_bookings_follow_each_other_on_a_node_from_lead_to_end(servers: Servers) -> None:
    server, clock = servers.start_in_the_past()
    with server.client() as client:
        _a_lab_is_made_ready_and_given_back_when_its_work_is_done(client, clock)
        cores = next(node for node in client.nodes().nodes if node.name == "here").slots["cpu"].allocatable
        whole = {"cpu": cores, "memory": "64Mi"}
        start, change, end = (clock.now() + minutes * MINUTE for minutes in (5, 10, 15))
        client.book(_booking("morning", start, change, whole, lead=30))
        # It begins where the first ends, and has no lead.
        client.book(_booking("afternoon", change, end, whole))
        assert client.wait_for_timeslot("morning").status == "CONFIRMED"
        assert client.wait_for_timeslot("afternoon").status == "CONFIRMED"
        # The node is reserved: open-ended work waits, and another booking gets alternatives.
        client.submit(_work("endless", ["sleep", "600"]))
        client.book(_booking("beside", start, change, RESOURCES))
        refused = client.wait_for_timeslot("beside")
        assert refused.reason is not None
        assert (refused.status, refused.reason["code"]) == ("REFUSED", "no-room")
        assert refused.reason["details"]["alternatives"]["start"] is not None

        client.submit(_work("guest", ["sleep", "600"], booking="morning"))
        client.submit(_work("heir", ["sleep", "600"], booking="afternoon"))
        clock.move_to(start - MINUTE)
        client.run_pass()
        assert client.workload("guest").status == "PENDING"
        clock.move_to(start - MINUTE / 2)
        eventually(lambda: client.workload("guest").status == "RUNNING")
        clock.move_to(start)
        eventually(lambda: client.timeslot("morning").status == "ACTIVE")
        client.run_pass()
        eventually(lambda: (client.workload("heir").reason or {}).get("code") == "before-timeslot")

        clock.move_to(change)
        eventually(lambda: client.workload("heir").status == "RUNNING")
        eventually(lambda: client.workload("guest").status == "CANCELLED")
        ended = client.workload("guest")
        assert (ended.reason or {})["code"] == "timeslot-over"
        assert _status(client, "morning") == "ENDED"
        assert client.workload("heir").tasks[0].node == ended.tasks[0].node == "here"

        # What waited for the bookings runs when the last of them is over.
        assert client.workload("endless").status == "PENDING"
        clock.move_to(end)
        eventually(lambda: client.workload("endless").status == "RUNNING")
        eventually(lambda: client.workload("heir").status == "CANCELLED")
        assert _status(client, "afternoon") == "ENDED"
        server.assert_books_agree()


def _a_lab_is_made_ready_and_given_back_when_its_work_is_done(client: Client, clock: ShiftedClock) -> None:
    start = clock.now() + 5 * MINUTE
    request = {"workload": _work("lesson", ["sleep", "1"]), "start": start, "duration": 3600, "lead": 30}
    client.create_lab(LabRequest.model_validate(request))
    assert client.wait_for_timeslot("lesson").status == "CONFIRMED"
    client.run_pass()
    assert client.workload("lesson").status == "PENDING"
    clock.move_to(start - MINUTE / 2)
    eventually(lambda: client.workload("lesson").status == "SUCCEEDED")
    eventually(lambda: _status(client, "lesson") == "RELEASED")


def _booking(
    name: str, start: datetime, end: datetime, resources: Mapping[str, str], *, lead: int = 0
) -> TimeslotRequest:
    request = {"name": name, "start": start, "end": end, "resources": resources, "lead": lead}
    return TimeslotRequest.model_validate(request)


def _work(name: str, command: Sequence[str], **terms: str) -> WorkloadRequest:
    container = {"command": list(command), "resources": RESOURCES}
    request = {"name": name, "containers": [container], "stop_grace_seconds": 0, "kind": "session", **terms}
    return WorkloadRequest.model_validate(request)


def _status(client: Client, name: str) -> str:
    """Of a timeslot, though it is over."""
    return next(slot.status for slot in client.timeslots(all=True).timeslots if slot.name == name)
