"""Errors tell a tenant nothing about others, and the work of deactivated tenants is treated as documented."""

from __future__ import annotations

import stat
from typing import Any

import pytest

from mooring.model.tenancy.tenants import Role
from mooring.wire.tenancy.tenants import ProjectRequest, TenantChange
from mooring.wire.tenancy.users import UserChange, UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.api.world import World, real_pool_takes_containers
from tests.cli.terminal import run_on_terminal
from tests.system.conftest import running_servers
from tests.system.servers import PASSWORD, Server, eventually, workspace


async def test_a_mounted_volume_names_no_work_of_other_users(world: World) -> None:
    await real_pool_takes_containers(world.services.database)
    ada, ben = await world.user("ada", project="vision"), await world.user("ben", project="vision")
    paul = await world.user("paul", project="vision", role=Role.PROJECT_ADMIN)
    made = await world.client.post("/api/volumes", json={"name": "data", "size": 1, "pool": "real"}, headers=ada)
    assert made.status_code == 201, made.text
    mounting: dict[str, Any] = {
        "pool": "real",
        "volumes": [{"name": "data", "kind": "named"}],
        "containers": [{"image": "nginx", "mounts": [{"volume": "data", "path": "/data"}]}],
    }
    await world.submit(ben, name="secret-merger", **mounting)
    refused = await world.client.delete("/api/volumes/data", headers=ada)
    assert (refused.status_code, refused.json()["code"]) == (409, "volume-in-use")
    assert "secret-merger" not in refused.text
    assert "1 workload of other users" in refused.json()["message"]
    seen = await world.client.delete("/api/volumes/data", headers=paul)
    assert "secret-merger" in seen.json()["message"]
    await world.submit(ada, name="mine", **mounting)
    refused = await world.client.delete("/api/volumes/data", headers=ada)
    assert "mounted by mine and 1 more" in refused.json()["message"]
    assert "secret-merger" not in refused.text


async def test_members_of_other_domains_are_indistinguishable_from_unknown_users(world: World) -> None:
    await world.user("fay", domain="beta")
    paul = await world.user("paul", project="vision", role=Role.PROJECT_ADMIN)
    await world.user("uma", project="speech")
    answers = set()
    for name in ("fay", "nobody", "uma"):
        removed = await world.client.delete(f"/api/projects/vision/members/{name}", headers=paul)
        answers.add((removed.status_code, removed.text.replace(name, "NAME")))
    assert len(answers) == 1
    added = set()
    for name in ("fay", "nobody"):
        answer = await world.client.post("/api/projects/vision/members", json={"username": name}, headers=paul)
        added.add((answer.status_code, answer.text.replace(name, "NAME")))
    assert len(added) == 1
    assert all(status == 404 for status, _ in answers | added)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_flags(request: pytest.FixtureRequest) -> list[str]:
    return [] if request.param == "sqlite" else ["--database", request.getfixturevalue("postgres_url"), "--demo"]


@pytest.mark.slow
def test_waiting_work_of_deactivated_tenants_does_not_start(database_flags: list[str]) -> None:
    with running_servers() as servers:
        server = servers.start("--no-agent", "--simulate", "2", *database_flags)
        with server.client() as admin:
            admin.create_domain("research")
            admin.create_project(ProjectRequest(name="vision", domain="research"))
            admin.create_user(UserRequest(username="ada", password=PASSWORD, domain="research", project="vision"))
            for scope, deactivate, activate in (
                (
                    "domain",
                    lambda: admin.change_domain("research", TenantChange(active=False)),
                    lambda: admin.change_domain("research", TenantChange(active=True)),
                ),
                (
                    "project",
                    lambda: admin.change_project("vision", TenantChange(active=False), domain="research"),
                    lambda: admin.change_project("vision", TenantChange(active=True), domain="research"),
                ),
                (
                    "user",
                    lambda: admin.change_user("ada", UserChange(active=False)),
                    lambda: admin.change_user("ada", UserChange(active=True)),
                ),
            ):
                _check(server, admin, scope, deactivate, activate)


def _check(server: Server, admin: Any, scope: str, deactivate: Any, activate: Any) -> None:
    running, waiting = _submit(server, f"{scope}-running"), ""
    eventually(lambda: admin.workload(running).status == "RUNNING")
    admin.pause_pool("simulated", reason="until somebody was deactivated")
    waiting = _submit(server, f"{scope}-waiting")
    deactivate()
    admin.resume_pool("simulated")
    reason = eventually(
        lambda: (found := admin.workload(waiting).reason) and found["code"] == "tenant-inactive" and found, 60
    )
    assert reason["details"]["scope"] == scope
    assert admin.workload(waiting).status == "PENDING"
    # Running work continues until an admin ends it.
    assert admin.workload(running).status == "RUNNING"
    activate()
    eventually(lambda: admin.workload(waiting).status == "RUNNING")


def _submit(server: Server, name: str) -> str:
    container = {"image": "nginx", "resources": {"cpu": "100m"}}
    asked = {"name": name, "kind": "deployment", "containers": [container], "pool": "simulated"}
    with server.client("ada") as client:
        return str(client.submit(WorkloadRequest.model_validate(asked)).id)


@pytest.mark.slow
def test_the_first_password_goes_to_no_log() -> None:
    with running_servers() as servers:
        server = servers.prepare("--no-agent")
        server.environment = {}
        server.start()
        file = server.data / "admin-password"
        password = file.read_text().strip()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert len(password) >= 12
        assert password not in server.printed + server.log
        assert str(file) in server.printed
        server.client("admin", password).close()
        server.stop()


def test_the_first_password_is_shown_on_a_terminal() -> None:
    with (
        workspace() as folder,
        run_on_terminal("up", "--data", str(folder / "data"), "--port", "0", "--no-agent") as terminal,
    ):
        terminal.expect("First start: user admin, password ")
        terminal.expect("Ctrl-C stops.")
        password = (folder / "data" / "admin-password").read_text().strip()
        assert password in terminal.text
        terminal.interrupt()
        terminal.exit_code()
