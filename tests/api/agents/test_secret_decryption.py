"""Secrets reach the nodes of tasks that have not started, only those that the tasks name, and are stored nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update
from starlette.requests import HTTPConnection

from mooring.api.agents.secret_decryption import SecretDecryption, is_confidential
from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Binding
from mooring.security import encryption
from mooring.security.encryption import SecretBox
from mooring.store.core.engine import Connection
from mooring.store.tables import secrets as secret_rows
from mooring.store.tenancy import (
    admin_actions,
    projects,
    registry_logins,
    secrets,
    tenants,
)
from mooring.wire.agents import agent_protocol as wire
from mooring.wire.agents.agent_protocol import Desired, Report, TaskReport
from mooring.wire.agents.desired_tasks import DesiredTask, RegistryLogin, Secret
from tests.api.agents.test_hub import Connected, connected
from tests.sealing import some_keys
from tests.store.databases import on_sqlite
from tests.store.harness import Harness, decision_on

VALUE = b"correct horse"
OWN = (tenants.DEFAULT_DOMAIN, tenants.DEFAULT_PROJECT)


async def keep(harness: Harness, name: str = "db", value: bytes = VALUE, keys: SecretBox | None = None) -> None:
    async def work(connection: Connection) -> None:
        project = await projects.find(connection, *OWN)
        await secrets.put(connection, project, name, value, keys or some_keys(), actor=admin_actions.SERVER, now=now())

    await harness.database.write(work)


async def log_in(harness: Harness, registry: str, password: str) -> None:
    async def work(connection: Connection) -> None:
        project = await projects.find(connection, *OWN)
        await registry_logins.put(
            connection, project, registry, "robot", password, some_keys(), actor=admin_actions.SERVER, now=now()
        )

    await harness.database.write(work)


async def forget(harness: Harness, name: str = "db") -> None:
    async def work(connection: Connection) -> None:
        project = await projects.find(connection, *OWN)
        await secrets.remove(connection, project, name, actor=admin_actions.SERVER, now=now())

    await harness.database.write(work)


async def submit(harness: Harness, name: str = "web", *, placed: bool = True, **container: Any) -> UUID:
    """A task of one container, placed on n1 by default."""
    workload_id = await harness.submit(name, memory=0)
    one = {"name": "main", "command": ["sleep", "60"], "slots": {"cpu": 1000}, **container}
    template = {"containers": [one], "restart": "never", "max_restarts": 0, "stop_grace_seconds": 1}
    await harness.set(workload_id, template=template)
    if placed:
        await harness.place()
    return workload_id


async def received(agent: Connected) -> DesiredTask:
    """The first order about a task."""
    while not (orders := await agent.orders()).tasks:
        pass
    return orders.tasks[0]


def shared() -> SecretDecryption:
    return SecretDecryption(some_keys())


async def test_a_task_gets_the_secrets_that_it_names_and_the_logins_of_its_images_until_it_runs(harness: Harness):
    await keep(harness)
    await keep(harness, "other", b"nobody named it")
    await log_in(harness, "ghcr.io", "right")
    await log_in(harness, "docker.io", "another registry's")
    async with connected(harness, decryption=shared()) as agent:
        await agent.orders()
        workload_id = await submit(harness, image="ghcr.io/org/tool", secrets={"password": "db"})
        order = await received(agent)
        assert order.secrets == [Secret(name="db", value=VALUE)]
        assert order.logins == [RegistryLogin(registry="ghcr.io", username="robot", password="right")]
        retained = agent.session.last_desired, agent.session.last_secrets
        assert VALUE not in repr(retained).encode()
        assert isinstance(retained[0], Desired)
        assert retained[0].tasks[0].secrets == []
        (task,) = await harness.tasks(workload_id)
        await harness.move(task, TaskStatus.RUNNING)
        running = await received(agent)
        assert (running.started, running.secrets, running.logins) == (True, [], [])


@on_sqlite
async def test_a_change_reaches_a_task_that_has_not_started(harness: Harness):
    async with connected(harness, decryption=shared()) as agent:
        await agent.orders()
        await submit(harness, image="ghcr.io/org/tool")
        assert (await received(agent)).logins == []
        for password in ("wrong", "right"):
            await log_in(harness, "ghcr.io", password)
            assert [login.password for login in (await received(agent)).logins] == [password]


async def ended(agent: Connected, harness: Harness, workload_id: UUID) -> Mapping[str, Any]:
    """Return the reason why the workload's task did not start. Its node is free once the agent reports it gone."""
    order = await received(agent)
    assert (order.action, order.secrets, order.logins) == ("stop", [], [])
    (task,) = await harness.tasks(workload_id)
    assert (task.status, task.started_at) == (TaskStatus.FAILED, None)
    gone = TaskReport(task_id=task.id, status="CANCELLED", gone=True, code="never-started", reason="stopped")
    await agent.hub.report(agent.session, Report(number=1, tasks=[gone]))
    assert await harness.counters(agent.session.node_id) == (0, 0, 0)
    assert await harness.findings() == []
    reason: Mapping[str, Any] = (await harness.task(task.id)).reason
    return reason


async def test_a_task_whose_secret_was_removed_fails_with_a_reason_and_the_stream_continues(harness: Harness):
    async with connected(harness, decryption=shared()) as agent:
        await agent.orders()
        reason = await ended(agent, harness, await submit(harness, secrets={"password": "db"}))
        assert (reason["code"], reason["by"]) == ("no-such-secret", "secrets")
        assert "mooring secret set db" in reason["message"]
        await keep(harness)
        await submit(harness, "next", secrets={"password": "db"})
        while not (order := await received(agent)).secrets:
            pass
        assert order.workload_name == "next"


@on_sqlite
async def test_a_task_that_is_only_prepared_gets_its_secrets_too_or_loses_its_placement(harness: Harness):
    async with connected(harness, decryption=shared()) as agent:
        await agent.orders()
        for name in ("early", "late"):
            workload_id = await submit(harness, name, placed=False, secrets={"password": "db"})
            wish = await decision_on(harness, workload_id, [agent.session.node_id])
            await harness.commit(wish, mode=Binding.TWO_PHASE)
            if name == "early":
                assert (await received(agent)).action == "stop"
                (task,) = await harness.tasks(workload_id)
                assert (task.status, task.node_id) == (TaskStatus.PENDING, None)
                assert await harness.counters(agent.session.node_id) == (0, 0, 0)
                await keep(harness)
        while not (order := await received(agent)).secrets:
            pass
        assert (order.workload_name, order.action) == ("late", "prepare")


@on_sqlite
async def test_a_secret_of_a_key_that_is_missing_names_the_key(harness: Harness, tmp_path: Any):
    encryption.ensure(tmp_path / "keys")
    lost = SecretBox(tmp_path / "keys")
    await keep(harness, keys=lost)
    async with connected(harness, decryption=shared()) as agent:
        await agent.orders()
        reason = await ended(agent, harness, await submit(harness, secrets={"password": "db"}))
        assert reason["code"] == "sealing-key-missing"
        assert repr(lost.key_ids[0]) in reason["message"]


@on_sqlite
async def test_a_row_that_was_copied_to_another_name_does_not_open(harness: Harness):
    await keep(harness, "theirs")
    await harness.database.write(lambda c: c.execute(update(secret_rows).values(name="mine")))
    async with connected(harness, decryption=shared()) as agent:
        await agent.orders()
        reason = await ended(agent, harness, await submit(harness, secrets={"password": "mine"}))
        assert reason["code"] == "seal-broken"


@on_sqlite
@pytest.mark.parametrize(
    ("connection", "code"),
    [({"confidential": False}, "plain-text"), ({"protocol": wire.SECRETS_SINCE - 1}, "agent-too-old")],
)
async def test_an_agent_without_tls_or_of_an_old_version_gets_no_secrets(
    harness: Harness, connection: dict[str, Any], code: str
):
    await keep(harness)
    async with connected(harness, decryption=shared(), **connection) as agent:
        await agent.orders()
        reason = await ended(agent, harness, await submit(harness, secrets={"password": "db"}))
        assert reason["code"] == code
        await submit(harness, "harmless")
        while (await received(agent)).workload_name != "harmless":
            pass


@pytest.mark.parametrize(
    ("scheme", "client", "confidential"),
    [
        ("wss", "10.0.0.7", True),
        ("ws", "127.0.0.1", True),
        ("ws", "::1", True),
        ("ws", "10.0.0.7", False),
        ("ws", "localhost.example.org", False),
        ("ws", None, False),
    ],
)
def test_only_tls_and_this_machine_are_confidential(scheme: str, client: str | None, confidential: bool):
    from_where = None if client is None else (client, 40_000)
    scope = {"type": "websocket", "scheme": scheme, "client": from_where, "path": "/", "headers": [(b"host", b"m.org")]}
    assert is_confidential(HTTPConnection(scope)) is confidential


@on_sqlite
async def test_an_operator_may_let_secrets_travel_in_plain_text(harness: Harness):
    await keep(harness)
    decryption = SecretDecryption(some_keys(), in_plain_text=True)
    async with connected(harness, decryption=decryption, confidential=False) as agent:
        await agent.orders()
        await submit(harness, secrets={"password": "db"})
        assert [secret.value for secret in (await received(agent)).secrets] == [VALUE]
