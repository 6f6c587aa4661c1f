"""The commands of fog-compute's own guide, unchanged: curl against the API, SQL against the tables."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import Any

import asyncpg
import pytest

from tests.system.conftest import Servers
from tests.system.servers import eventually

LOGIN = """curl -X POST http://localhost:8000/api/auth/login \
  -H "Content-Type: application/json" \
  -d '{"username": "admin", "password": "admin123"}'"""

DEPLOY = """curl -X POST http://localhost:8000/api/deployment/deploy \
  -H "Authorization: Bearer eyJ0eXAi..." \
  -H "Content-Type: application/json" \
  -d '{
    "name": "web-api",
    "type": "compute",
    "container_image": "nginx:latest",
    "replicas": 3,
    "resources": {
      "cpu": 2.0,
      "memory": 2048,
      "gpu": 0,
      "storage": 20
    }
  }'"""

STATUS = """curl -X GET http://localhost:8000/api/deployment/status/uuid \
  -H "Authorization: Bearer eyJ0eXAi..." """

DEPLOYMENT = """SELECT id, name, status, target_replicas, created_at
FROM deployments
WHERE name = 'web-api';"""
REPLICAS = """SELECT r.id, r.status, n.node_id
FROM deployment_replicas r
JOIN nodes n ON r.node_id = n.id
WHERE r.deployment_id = 'uuid';"""
RESOURCES = """SELECT cpu_cores, memory_mb, gpu_units, storage_gb
FROM deployment_resources
WHERE deployment_id = 'uuid';"""
HISTORY = """SELECT old_status, new_status, changed_at, reason
FROM deployment_status_history
WHERE deployment_id = 'uuid'
ORDER BY changed_at;"""


@pytest.mark.slow
def test_the_guides_curl_commands_and_sql_queries_work_as_they_stand(
    servers: Servers, database_flags: list[str]
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the guide's commands need curl")
    server = servers.start("--simulate", "5", "--no-agent", *database_flags)

    status, token = _curl(LOGIN, url=server.url)
    assert status == 200
    assert token["token_type"] == "bearer"
    bearer = token["access_token"]

    status, accepted = _curl(DEPLOY, url=server.url, token=bearer)
    assert status == 202
    assert accepted["success"] is True
    assert accepted["status"] == "pending"
    assert accepted["replicas"] == 3
    deployment = accepted["deployment_id"]
    assert f"/status/{deployment}" in accepted["message"]

    def running() -> Any:
        code, shown = _curl(STATUS, url=server.url, token=bearer, deployment=deployment)
        assert code == 200
        return shown if shown["status"] == "running" else None

    shown = eventually(running)
    assert shown["deployment_id"] == deployment
    assert [replica["status"] for replica in shown["replicas"]] == ["running"] * 3
    assert len({replica["node"] for replica in shown["replicas"]}) == 3
    assert all(0 < replica["score"] <= 1 for replica in shown["replicas"])
    changes = [(row["old_status"], row["new_status"]) for row in reversed(shown["history"])]
    assert changes == [("none", "pending"), ("pending", "scheduled"), ("scheduled", "running")]

    if "--database" in database_flags:
        asyncio.run(_check_tables(database_flags[1], deployment))


async def _check_tables(url: str, deployment: str) -> None:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""), server_settings={"search_path": "origins"})
    try:

        async def ask(query: str) -> list[Any]:
            rows: list[Any] = await connection.fetch(query.replace("uuid", deployment))
            return rows

        (row,) = await ask(DEPLOYMENT)
        assert (str(row["id"]), row["status"], row["target_replicas"]) == (deployment, "running", 3)
        replicas = await ask(REPLICAS)
        assert [row["status"] for row in replicas] == ["running"] * 3
        assert {row["node_id"] for row in replicas} <= {f"sim-0{number}" for number in range(1, 6)}
        (row,) = await ask(RESOURCES)
        assert [float(value) for value in row] == [2.0, 2048, 0, 20]
        history = [(row["old_status"], row["new_status"], row["reason"]) for row in await ask(HISTORY)]
        assert history == [
            ("none", "pending", "Deployment created by user"),
            ("pending", "scheduled", "Scheduled 3 replicas"),
            ("scheduled", "running", "All 3 replicas started"),
        ]
    finally:
        await connection.close()


def _curl(command: str, *, url: str, token: str = "", deployment: str = "") -> tuple[int, Any]:
    """Run a command of the guide in a shell, with only the address, the token and the id filled in."""
    line = (
        command.replace("http://localhost:8000", url).replace("eyJ0eXAi...", token).replace("/uuid", f"/{deployment}")
    )
    done = subprocess.run(
        ["sh", "-c", f"{line} --silent --noproxy '*' --write-out '\n%{{http_code}}'"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)
