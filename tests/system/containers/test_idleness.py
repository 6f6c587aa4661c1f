"""What real containers do is measured: a session that nobody uses is warned and ends, one that works goes on."""

from __future__ import annotations

from datetime import timedelta

from mooring.client import Client
from mooring.wire.api import EventView, WorkloadRequest
from tests.engine import BUSYBOX, Engine
from tests.system.conftest import Servers
from tests.system.servers import eventually

RESOURCES = {"cpu": "500m"}


def test_a_session_that_nobody_uses_is_warned_and_ends(servers: Servers, engine: Engine) -> None:
    environment = {"MOORING_ENGINE": engine.socket, "MOORING_HEARTBEAT_SECONDS": "0.2"}
    server, clock = servers.start_in_the_past(environment=environment)
    with server.client() as client:
        for name, script in (("calm", "exec sleep 1000"), ("busy", "while :; do :; done")):
            container = {"image": BUSYBOX, "pull": "never", "command": ["sh", "-c", script], "resources": RESOURCES}
            work = {"name": name, "type": "interactive", "containers": [container], "stop_grace_seconds": 0}
            client.submit(WorkloadRequest.model_validate({**work, "idle_timeout": "10m"}))
        eventually(lambda: any((task.cpu_millicores or 0) > 20 for task in client.task_use(name="busy").tasks))
        assert 'mooring_measured{node="here",pool="default",slot="cpu"}' in server.metrics()
        clock.move_to(clock.now() + timedelta(minutes=8))
        eventually(lambda: "idle-warning" in [event.kind for event in events(client, "calm")])
        assert client.workload("calm").status == "RUNNING"
        clock.move_to(clock.now() + timedelta(minutes=3))
        eventually(lambda: client.workload("calm").ended_at)
        assert (client.workload("calm").reason or {})["code"] == "idle-timeout"
        assert client.workload("busy").status == "RUNNING"
        assert "idle-warning" not in [event.kind for event in events(client, "busy")]
        client.remove("busy")
        eventually(lambda: not engine.containers())


def events(client: Client, workload: str) -> list[EventView]:
    return client.event_page(workload=workload, limit=1000).events
