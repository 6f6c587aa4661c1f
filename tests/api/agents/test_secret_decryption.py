"""What is secret reaches the nodes of tasks that have not started, only what they name, and is kept nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update
from starlette.requests import HTTPConnection

from mooring import sealing
from mooring.api.unsealing import Unsealing, is_confidential
from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import Binding
from mooring.sealing import Sealing
from mooring.store import actions, projects, registry_logins, secrets, tenants
from mooring.store.engine import Connection
from mooring.store.tables import secrets as secret_rows
from mooring.wire import agent as wire
from mooring.wire.agent import Desired, DesiredTask, RegistryLogin, Report, Secret, TaskReport
from tests.api.test_hub import Connected, connected
from tests.sealing import some_keys
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour, decision_on

VALUE = b"correct horse"
OWN = (tenants.DEFAULT_DOMAIN, tenants.DEFAULT_PROJECT)


async def keep(harbour: Harbour, name: str = "db", value: bytes = VALUE, keys: Sealing | None = None) -> None:
    async def work(connection: Connection) -> None:
        project = await projects.find(connection, *OWN)
        await secrets.put(connection, project, name, value, keys or some_keys(), actor=actions.SERVER, now=now())

    await harbour.database.write(work)


async def log_in(harbour: Harbour, registry: str, password: str) -> None:
    async def work(connection: Connection) -> None:
        project = await projects.find(connection, *OWN)
        await registry_logins.put(
            connection, project, registry, "robot", password, some_keys(), actor=actions.SERVER, now=now()
        )

    await harbour.database.write(work)


async def forget(harbour: Harbour, name: str = "db") -> None:
    async def work(connection: Connection) -> None:
        project = await projects.find(connection, *OWN)
        await secrets.remove(connection, project, name, actor=actions.SERVER, now=now())

    await harbour.database.write(work)


async def submit(harbour: Harbour, name: str = "web", *, placed: bool = True, **container: Any) -> UUID:
    """A task of one container, placed on n1 unless told otherwise."""
    workload_id = await harbour.submit(name, memory=0)
    one = {"name": "main", "command": ["sleep", "60"], "slots": {"cpu": 1000}, **container}
    template = {"containers": [one], "restart": "never", "max_restarts": 0, "stop_grace_seconds": 1}
    await harbour.set(workload_id, template=template)
    if placed:
        await harbour.place()
    return workload_id


async def told(agent: Connected) -> DesiredTask:
    """The first order about a task."""
    while not (orders := await agent.orders()).tasks:
        pass
    return orders.tasks[0]


def shared() -> Unsealing:
    return Unsealing(some_keys())


async def test_a_task_is_told_the_secrets_that_it_names_and_the_logins_of_its_images_until_it_runs(harbour: Harbour):
    await keep(harbour)
    await keep(harbour, "other", b"nobody named it")
    await log_in(harbour, "ghcr.io", "right")
    await log_in(harbour, "docker.io", "another registry's")
    async with connected(harbour, unsealing=shared()) as agent:
        await agent.orders()
        workload_id = await submit(harbour, image="ghcr.io/org/tool", secrets={"password": "db"})
        order = await told(agent)
        assert order.secrets == [Secret(name="db", value=VALUE)]
        assert order.logins == [RegistryLogin(registry="ghcr.io", username="robot", password="right")]
        kept = agent.session.last_desired, agent.session.last_confidences
        assert VALUE not in repr(kept).encode()
        assert isinstance(kept[0], Desired)
        assert kept[0].tasks[0].secrets == []
        (task,) = await harbour.tasks(workload_id)
        await harbour.move(task, TaskStatus.RUNNING)
        running = await told(agent)
        assert (running.started, running.secrets, running.logins) == (True, [], [])


@on_sqlite
async def test_a_change_reaches_a_task_that_has_not_started(harbour: Harbour):
    async with connected(harbour, unsealing=shared()) as agent:
        await agent.orders()
        await submit(harbour, image="ghcr.io/org/tool")
        assert (await told(agent)).logins == []
        for password in ("wrong", "right"):
            await log_in(harbour, "ghcr.io", password)
            assert [login.password for login in (await told(agent)).logins] == [password]


async def ended(agent: Connected, harbour: Harbour, workload_id: UUID) -> Mapping[str, Any]:
    """Why the one task of the workload did not start; its node is free when its agent has said that it is."""
    order = await told(agent)
    assert (order.action, order.secrets, order.logins) == ("stop", [], [])
    (task,) = await harbour.tasks(workload_id)
    assert (task.status, task.started_at) == (TaskStatus.FAILED, None)
    gone = TaskReport(task_id=task.id, status="CANCELLED", gone=True, code="never-started", reason="stopped")
    await agent.hub.report(agent.session, Report(number=1, tasks=[gone]))
    assert await harbour.counters(agent.session.node_id) == (0, 0, 0)
    assert await harbour.findings() == []
    reason: Mapping[str, Any] = (await harbour.task(task.id)).reason
    return reason


async def test_a_task_whose_secret_is_gone_ends_with_a_reason_and_the_stream_goes_on(harbour: Harbour):
    async with connected(harbour, unsealing=shared()) as agent:
        await agent.orders()
        reason = await ended(agent, harbour, await submit(harbour, secrets={"password": "db"}))
        assert (reason["code"], reason["by"]) == ("no-such-secret", "secrets")
        assert "mooring secret set db" in reason["message"]
        await keep(harbour)
        await submit(harbour, "next", secrets={"password": "db"})
        while not (order := await told(agent)).secrets:
            pass
        assert order.workload_name == "next"


@on_sqlite
async def test_a_task_that_is_only_made_ready_is_told_its_secrets_too_or_gives_its_place_up(harbour: Harbour):
    async with connected(harbour, unsealing=shared()) as agent:
        await agent.orders()
        for name in ("early", "late"):
            workload_id = await submit(harbour, name, placed=False, secrets={"password": "db"})
            wish = await decision_on(harbour, workload_id, [agent.session.node_id])
            await harbour.commit(wish, mode=Binding.TWO_PHASE)
            if name == "early":
                assert (await told(agent)).action == "stop"
                (task,) = await harbour.tasks(workload_id)
                assert (task.status, task.node_id) == (TaskStatus.PENDING, None)
                assert await harbour.counters(agent.session.node_id) == (0, 0, 0)
                await keep(harbour)
        while not (order := await told(agent)).secrets:
            pass
        assert (order.workload_name, order.action) == ("late", "prepare")


@on_sqlite
async def test_a_secret_of_a_key_that_is_missing_names_the_key(harbour: Harbour, tmp_path: Any):
    sealing.ensure(tmp_path / "keys")
    lost = Sealing(tmp_path / "keys")
    await keep(harbour, keys=lost)
    async with connected(harbour, unsealing=shared()) as agent:
        await agent.orders()
        reason = await ended(agent, harbour, await submit(harbour, secrets={"password": "db"}))
        assert reason["code"] == "sealing-key-missing"
        assert repr(lost.key_ids[0]) in reason["message"]


@on_sqlite
async def test_a_row_that_was_copied_to_another_name_does_not_open(harbour: Harbour):
    await keep(harbour, "theirs")
    await harbour.database.write(lambda c: c.execute(update(secret_rows).values(name="mine")))
    async with connected(harbour, unsealing=shared()) as agent:
        await agent.orders()
        reason = await ended(agent, harbour, await submit(harbour, secrets={"password": "mine"}))
        assert reason["code"] == "seal-broken"


@on_sqlite
@pytest.mark.parametrize(
    ("connection", "code"),
    [({"confidential": False}, "plain-text"), ({"protocol": wire.SECRETS_SINCE - 1}, "agent-too-old")],
)
async def test_an_agent_that_others_can_overhear_or_that_knows_no_secrets_is_told_none(
    harbour: Harbour, connection: dict[str, Any], code: str
):
    await keep(harbour)
    async with connected(harbour, unsealing=shared(), **connection) as agent:
        await agent.orders()
        reason = await ended(agent, harbour, await submit(harbour, secrets={"password": "db"}))
        assert reason["code"] == code
        await submit(harbour, "harmless")
        while (await told(agent)).workload_name != "harmless":
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
async def test_an_operator_may_let_secrets_travel_in_plain_text(harbour: Harbour):
    await keep(harbour)
    unsealing = Unsealing(some_keys(), in_plain_text=True)
    async with connected(harbour, unsealing=unsealing, confidential=False) as agent:
        await agent.orders()
        await submit(harbour, secrets={"password": "db"})
        assert [secret.value for secret in (await told(agent)).secrets] == [VALUE]
