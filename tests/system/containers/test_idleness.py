"""What real containers do is measured: a session that nobody uses is warned and ends, one that works goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mooring.clock import SPEED
from mooring.wire.api import WorkloadRequest
from tests.engine import BUSYBOX, Engine
from tests.system.conftest import Servers
from tests.system.servers import eventually

RESOURCES = {"cpu": "500m"}


def test_a_session_that_nobody_uses_is_warned_and_ends(servers: Servers, engine: Engine) -> None:
    environment = {
        # From the past on: tokens of the future are worth nothing.
        SPEED: f"20@{(datetime.now(UTC) + timedelta(minutes=2)).isoformat()}",
        "MOORING_ENGINE": engine.socket,
        "MOORING_HEARTBEAT_SECONDS": "0.2",
        "MOORING_NODE_TIMEOUT_SECONDS": "36000",
        "RECONCILE_INTERVAL": "0.2",
    }
    server = servers.start("--node-name", "here", environment=environment)
    with server.client() as client:
        for name, script in (("calm", "exec sleep 1000"), ("busy", "while :; do :; done")):
            container = {"image": BUSYBOX, "pull": "never", "command": ["sh", "-c", script], "resources": RESOURCES}
            work = {"name": name, "type": "interactive", "containers": [container], "stop_grace_seconds": 0}
            client.submit(WorkloadRequest.model_validate({**work, "idle_timeout": "1m"}))
        eventually(lambda: any((task.cpu_millicores or 0) > 20 for task in client.task_use(name="busy").tasks))
        assert 'mooring_measured{node="here",pool="default",slot="cpu"}' in server.metrics()
        eventually(lambda: client.workload("calm").ended_at)
        assert client.workload("busy").status == "RUNNING"
        kinds = [event.kind for event in client.event_page(workload="calm", limit=1000).events]
        assert kinds.index("idle-warning") < kinds.index("TERMINATING")
        assert (client.workload("calm").reason or {})["code"] == "idle-timeout"
        client.remove("busy")
        eventually(lambda: not engine.containers())
