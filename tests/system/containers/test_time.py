"""Time limits of real containers: an idle session is warned and ends, and a lab keeps to its window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from mooring.client import Client
from mooring.client.applying import Result
from mooring.clock import ShiftedClock
from mooring.wire.cluster.events import EventView
from mooring.wire.tenancy.accounting import TaskUse
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.engine import BUSYBOX, Engine
from tests.system.conftest import running_servers
from tests.system.containers.conftest import Box, person, write
from tests.system.containers.site import page
from tests.system.servers import eventually

LAB = Path(__file__).parents[3] / "examples" / "lab.yaml"
MINUTE = timedelta(minutes=1)
RESOURCES = {"cpu": "500m"}


@dataclass
class DatedBox(Box):
    """One whose date is moved."""

    clock: ShiftedClock


@pytest.fixture(scope="module")
def dated(engine: Engine) -> Iterator[DatedBox]:
    environment = {"MOORING_ENGINE": engine.socket, "MOORING_HEARTBEAT_SECONDS": "0.2"}
    with running_servers() as servers:
        server, clock = servers.start_in_the_past(environment=environment)
        with server.client() as client:
            eventually(lambda: "container" in client.node("here").runtimes)
            yield DatedBox(server, engine, client, person(servers, server), clock)


@pytest.mark.slow
def test_an_idle_session_is_warned_and_ends(dated: DatedBox) -> None:
    client, clock = dated.client, dated.clock
    for name, script in (("calm", "exec sleep 1000"), ("busy", "while :; do :; done")):
        container = {"image": BUSYBOX, "pull": "never", "command": ["sh", "-c", script], "resources": RESOURCES}
        work = {"name": name, "type": "interactive", "containers": [container], "stop_grace_seconds": 0}
        client.submit(WorkloadRequest.model_validate({**work, "idle_timeout": "10m"}))
    eventually(lambda: any((task.cpu_millicores or 0) > 20 for task in uses(client, "busy")))
    # To start is to do something, and is measured after it.
    eventually(lambda: [(task.cpu_millicores, task.read_per_second) for task in uses(client, "calm")] == [(0, 0)])
    assert 'mooring_measured{node="here",pool="default",slot="cpu"}' in dated.server.metrics()
    clock.move_to(clock.now() + 8 * MINUTE)
    eventually(lambda: "idle-warning" in [event.kind for event in events(client, "calm")])
    assert client.workload("calm").status == "RUNNING"
    clock.move_to(clock.now() + 3 * MINUTE)
    eventually(lambda: client.workload("calm").ended_at)
    assert (client.workload("calm").reason or {})["code"] == "idle-timeout"
    assert client.workload("busy").status == "RUNNING"
    assert "idle-warning" not in [event.kind for event in events(client, "busy")]
    # What was measured counts in the usage of its owner, beside what was asked for.
    eventually(lambda: any(line.slot == "cpu" and line.measured_hours for line in client.usage().usage))
    client.remove("busy")
    eventually(lambda: not dated.engine.containers())


@pytest.mark.slow
def test_the_sessions_of_a_lab_are_ready_at_its_start_and_stopped_at_its_end(dated: DatedBox, tmp_path: Path) -> None:
    """The example as it stands, but for its date and what fits on any machine."""
    client, clock, engine = dated.client, dated.clock, dated.engine
    engine.run("tag", BUSYBOX, "docker.io/library/debian:12")
    start = clock.now() + 16 * MINUTE
    changes = {
        "2030-01-14T09:00:00+01:00": start.isoformat(),
        "replicas: 5": "replicas: 3",
        "duration: 3h": "duration: 5m\nstop_grace_seconds: 0\nplacement: {ports: 1}",
        "{cpu: 1, memory: 1Gi}": "{cpu: 50m, memory: 32Mi}\n    ports: [8080]",
    }
    text = LAB.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    assert write(client, tmp_path, text) is Result.CREATED
    assert client.wait_for_timeslot("networks-1").status == "CONFIRMED"
    client.run_pass()
    assert (client.lab("networks-1").state, engine.containers()) == ("scheduled", set())

    clock.move_to(start - 15 * MINUTE)
    eventually(lambda: client.lab("networks-1").state == "ready")
    desks = client.workload("networks-1").tasks
    assert [desk.status for desk in desks] == ["RUNNING"] * 3
    assert len(engine.containers()) == 3
    clock.move_to(start)
    eventually(lambda: client.lab("networks-1").state == "running")
    serving = "hostname; httpd -p 8080 -h /etc"
    assert dated.mooring.out("exec", "networks-1", "--task", "2", "--", "sh", "-c", serving) == "networks-1-2\n"
    # Where the engine makes networks, ports of the node lead to the desks.
    if desks[2].address is not None:
        [port] = client.lab("networks-1").ports[2]
        assert page(f"http://127.0.0.1:{port}/hostname") == "networks-1-2"

    clock.move_to(start + 5 * MINUTE)
    eventually(lambda: client.workload("networks-1").ended_at)
    assert (client.workload("networks-1").reason or {})["code"] == "timeslot-over"
    assert client.lab("networks-1").state == "stopped"
    eventually(lambda: not engine.containers())


def uses(client: Client, workload: str) -> list[TaskUse]:
    return client.task_use(name=workload).tasks


def events(client: Client, workload: str) -> list[EventView]:
    return client.event_page(workload=workload, limit=1000).events
