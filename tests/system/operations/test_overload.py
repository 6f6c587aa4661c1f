"""A server under far more load than it can handle: some requests succeed, the others get 429, nothing breaks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

import psutil
import pytest

from mooring.wire.tenancy.users import UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.conftest import Servers
from tests.system.flood import flood, request
from tests.system.servers import PASSWORD

SECONDS = 2.0
PER_SECOND = 700.0
USERS = 2
PROBE_INTERVAL_SECONDS = 0.05
"""Far below the rate limit of health checks, far above what any monitoring asks."""
MAX_GROWTH_BYTES = 200 * 2**20
WORK = {"containers": [{"image": "nginx:latest", "resources": {"cpu": "1m", "memory": "1Mi"}}]}


@pytest.mark.slow
def test_a_flood_from_many_users_gets_429_and_the_server_keeps_working(servers: Servers) -> None:
    server = servers.start("--no-agent", "--simulate", "3", "--log-level", "warning")
    process = psutil.Process(server.pid)
    mix = []
    with server.client() as admin:
        for number in range(USERS):
            admin.create_user(UserRequest(username=f"user-{number}", password=PASSWORD))
            headers = server.credential(f"user-{number}")
            mix += [
                request("GET", "/api/workloads?limit=20", headers),
                request("POST", "/api/workloads", headers, WORK),
                request("POST", "/api/workloads/batch", headers, {"workloads": [WORK] * 5}),
            ]
        before = process.memory_info().rss
        with ThreadPoolExecutor(1) as thread:
            flooding = thread.submit(flood, server.url, mix, PER_SECOND, SECONDS)
            while not wait([flooding], PROBE_INTERVAL_SECONDS).done:
                assert server.status("/health") == 200
                assert admin.nodes().nodes
            answers = flooding.result()
        assert set(answers.statuses) <= {200, 202, 429}, server.log[-3000:]
        assert answers.accepted_seconds
        assert answers.statuses[429] > len(answers.accepted_seconds)
        assert answers.unexplained == 0
        assert process.memory_info().rss - before < MAX_GROWTH_BYTES

        after = admin.submit(WorkloadRequest.model_validate(WORK))
        assert admin.wait(str(after.id), "running").status == "RUNNING"
