"""Passwords, tokens and environment values appear nowhere they should not."""

from __future__ import annotations

import base64
import json
import sqlite3

import pytest

from mooring.wire.cluster.nodes import JoinTokenRequest
from mooring.wire.tenancy.users import UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import PASSWORD, eventually

SECRET = "sesame-in-the-environment"
USER_PASSWORD = "password-of-carol"
WRONG_PASSWORD = "a-password-with-a-typo"
STORED = "what-the-project-keeps"
REGISTRY_PASSWORD = "a-token-of-the-registry"


def test_no_secret_appears_in_logs_metrics_lists_or_histories(servers: Servers) -> None:
    server = servers.start("--simulate", "3", "--node-name", "here", "--log-level", "debug", "--log-format", "json")
    with server.client() as admin:
        admin.create_user(UserRequest(username="carol", password=USER_PASSWORD))
        join_token = admin.create_join_token(JoinTokenRequest(name="second")).token
        generated = admin.create_user(UserRequest(username="dave")).password
        eventually(lambda: any(node.name == "here" and node.status == "READY" for node in admin.nodes().nodes))
        agent = servers.agent(server, "second", join_token, "--log-level", "debug")
        eventually(lambda: any(node.name == "second" and node.status == "READY" for node in admin.nodes().nodes))
        admin_token = admin.login("admin", PASSWORD).access_token
    mooring = servers.cli()
    refused = mooring("login", "--server", server.url, "-u", "carol", "--password-stdin", given=f"{WRONG_PASSWORD}\n")
    assert refused.returncode == 4

    with server.client("carol", USER_PASSWORD) as carol:
        token = carol.login("carol", USER_PASSWORD).access_token
        containers: dict[str, dict[str, object]] = {
            "fine": {"command": ["sh", "-c", 'test -n "$SECRET"']},
            "fails": {"command": ["sh", "-c", "exit 3"]},
            "missing": {"command": ["no-such-program"]},
            "contained": {"image": "nginx:latest"},
            "huge": {"command": ["true"], "resources": {"cpu": 100000}},
        }
        for name, container in containers.items():
            container["environment"] = {"SECRET": SECRET}
            pool = "simulated" if "image" in container else None
            work = {"name": name, "pool": pool, "containers": [container]}
            carol.submit(WorkloadRequest.model_validate(work))
        for name in ("fine", "fails", "missing"):
            assert carol.wait(name, timeout_seconds=60).ended_at is not None
        assert carol.wait("contained", "running", timeout_seconds=60).status == "RUNNING"
        eventually(lambda: carol.workload("huge").reason)
        # Its owner may see it, and it arrived.
        assert SECRET in carol.workload("fine").model_dump_json()
        assert carol.workload("fine").status == "SUCCEEDED"
        own_list = carol.workloads(all=True).model_dump_json()
        histories = "".join(carol.history(name).model_dump_json() for name in ("fine", "fails", "missing", "huge"))
    with server.client() as admin:
        everything = admin.workloads(all=True, everyone=True)
        details = "".join(admin.workload(str(view.id)).model_dump_json() for view in everything.workloads)
        others_list = everything.model_dump_json()
        nodes = admin.nodes().model_dump_json()
        users = json.dumps([user.model_dump(mode="json") for user in admin.users()])
        metrics = admin.metrics()
    with sqlite3.connect(server.data / "mooring.db") as database:
        events = json.dumps(database.execute("SELECT * FROM events").fetchall(), default=repr)
        reasons = json.dumps(database.execute("SELECT * FROM status_history").fetchall(), default=repr)
    credentials = [
        json.loads((folder / "agent" / "credential.json").read_text())["credential"]
        for folder in (server.data, servers.folder / "second")
    ]
    keys = [entry["key"] for entry in json.loads((server.data / "signing-keys.json").read_text())]
    assert generated is not None

    places = {
        "log": server.log,
        "output": server.printed,
        "agent's log": agent.log,
        "metrics": metrics,
        "own list": own_list,
        "everyone's list": others_list,
        "details for an admin": details,
        "histories": histories,
        "nodes": nodes,
        "users": users,
        "events": events,
        "stored reasons": reasons,
    }
    secrets = [SECRET, PASSWORD, USER_PASSWORD, WRONG_PASSWORD, generated, join_token, token, admin_token]
    for secret in (*secrets, *credentials, *keys):
        for place, text in places.items():
            assert secret not in text, f"{secret[:6]}… is in the {place}"
    assert '"level": "debug"' in server.log


@pytest.mark.slow
def test_project_secrets_are_in_no_log_response_or_database_and_their_keys_rotate(servers: Servers) -> None:
    server = servers.start("--simulate", "3", "--no-agent", "--log-level", "debug", "--log-format", "json")
    mooring, data = servers.cli(), ("--data", str(server.data))
    mooring.out("login", *data)
    printed = [
        mooring.out("secret", "set", "db", given=STORED),
        mooring.out("registry", "login", "ghcr.io", "-u", "robot", "--password-stdin", given=f"{REGISTRY_PASSWORD}\n"),
    ]
    with server.client() as admin:
        container = {"image": "ghcr.io/org/tool", "secrets": {"password": "db"}}
        admin.submit(WorkloadRequest.model_validate({"name": "web", "pool": "simulated", "containers": [container]}))
        assert admin.wait("web", "running", timeout_seconds=60).status == "RUNNING"
        answers = [
            admin.workload("web").model_dump_json(),
            admin.history("web").model_dump_json(),
            admin.actions().model_dump_json(),
            admin.metrics(),
        ]
    keys = server.data / "sealing-keys"
    first = keys.read_text()
    assert keys.stat().st_mode & 0o777 == 0o600

    rotated = mooring.out("db", "reseal", "--new-key", *data)
    assert "encrypted 2 rows" in rotated
    assert "no row needs any other key" in rotated
    both = keys.read_text()
    assert both.endswith(first)
    keys.write_text(both.removesuffix(first))
    new = both.partition(":")[0]
    with server.client() as admin:
        # The server took up the new key by itself.
        admin.put_secret("default", "later", STORED.encode())
        answers += [secret.model_dump_json() for secret in admin.secrets("default")]
    server.stop()
    stored = b"".join(file.read_bytes() for file in server.data.glob("mooring.db*")).decode("latin-1")
    with sqlite3.connect(server.data / "mooring.db") as database:
        used = database.execute("SELECT key_id FROM secrets UNION ALL SELECT key_id FROM registry_logins").fetchall()
        assert used == [(new,)] * 3

    # The database alone reveals nothing; a server without the key reports that and continues.
    keys.unlink()
    server.start()
    assert f"The sealing key {new} is missing: 3 secrets" in server.log
    lost = mooring("db", "reseal", *data)
    assert (lost.returncode, f"3 rows still encrypted with the key {new}: it is missing" in lost.stdout) == (1, True)
    with server.client() as admin:
        admin.put_secret("default", "db", b"anew")
        admin.remove_secret("default", "later")

    for place in (server.log, server.printed, *printed, *answers, rotated, lost.stdout + lost.stderr, stored):
        for secret in (STORED, base64.b64encode(STORED.encode()).decode(), REGISTRY_PASSWORD, *_keys(both)):
            assert secret not in place


def _keys(lines: str) -> list[str]:
    return [line.partition(":")[2] for line in lines.splitlines()]
