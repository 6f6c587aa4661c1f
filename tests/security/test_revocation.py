"""Revocation ends open connections: real servers on one PostgreSQL, with the task's agent at one of them only.

The bound of five seconds follows from the interval at which servers recheck, not from the time that a test takes.
"""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from sqlalchemy import update

from mooring import clock
from mooring.api.auth import signing
from mooring.api.auth.tokens import Tokens
from mooring.api.streams.open_connections import LAST_MESSAGE_SECONDS, RECHECK_SECONDS
from mooring.client import AsyncClient
from mooring.client.channels import Channel
from mooring.client.credentials import CredentialStore
from mooring.model.errors import Conflict, NotAuthenticated, Unavailable
from mooring.store.core.engine import Connection, Database
from mooring.store.tables import keypairs
from mooring.store.tenancy import signing_keys
from mooring.wire.tenancy.tenants import (
    KeypairChange,
    KeypairRequest,
    MemberRequest,
    ProjectRequest,
    TenantChange,
)
from mooring.wire.tenancy.users import UserChange, UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import PostgresServer
from tests.system.conftest import Servers, running_servers
from tests.system.servers import PASSWORD, Server, eventually

LONG_SECONDS = 120.0
DOMAIN, PROJECT, SECOND = "research", "vision", "speech"
SIGNING_KEY, OLD_KEY = "one key that both of the servers share", "an older key that both of the servers share"
KEY = {"MOORING_SIGNING_KEY": f"{SIGNING_KEY},{OLD_KEY}", "MOORING_HEARTBEAT_SECONDS": "0.2"}
MAX_SECONDS = 5.0
"""Documented bound on the life of a connection after its authorisation has ended."""
TICKING = "while true; do echo tick; sleep 0.2; done"
SERVING = f'python3 -m http.server -b 127.0.0.1 "${{MOORING_PORTS%,*}}" > /dev/null 2>&1 & {TICKING}'


@dataclass
class Cluster:
    servers: Servers
    near: Server
    """Has the agent."""
    far: Server
    """Passes on what is for tasks to the other."""
    database_url: str

    def client(self, server: Server, credential: dict[str, Any]) -> AsyncClient:
        return AsyncClient(server.url, store=CredentialStore(self.servers.folder / "no-logins.json"), **credential)

    def token(self, username: str) -> dict[str, Any]:
        return {"token": self.near.credential(username)["Authorization"].removeprefix("Bearer ")}

    def token_of_old_key(self, username: str) -> dict[str, Any]:
        """A token of the key that signed before the last rotation."""
        claims = Tokens(signing.from_text(SIGNING_KEY)).verify(self.token(username)["token"])
        return {"token": Tokens(signing.from_text(OLD_KEY)).issue(claims).text}

    def write(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        async def run() -> None:
            database = Database(self.database_url)
            try:
                await database.write(work)
            finally:
                await database.close()

        asyncio.run(run())


@pytest.fixture(scope="module")
def cluster(postgres_server: PostgresServer) -> Iterator[Cluster]:
    url = postgres_server.url(postgres_server.create_database())
    with running_servers() as servers:
        near = servers.start("--node-name", "here", "--database", url, name="near", environment=KEY)
        far = servers.start("--role", "api", "--database", url, name="far", environment=KEY)
        with near.client() as admin:
            admin.create_domain(DOMAIN)
            for project in (PROJECT, SECOND):
                admin.create_project(ProjectRequest(name=project, domain=DOMAIN))
        yield Cluster(servers, near, far, url)


def make_user(cluster: Cluster, username: str, domain: str = DOMAIN) -> None:
    with cluster.near.client() as admin:
        admin.create_user(UserRequest(username=username, password=PASSWORD, domain=domain, project=PROJECT))


def make_task(cluster: Cluster, username: str, name: str, **more: Any) -> str:
    """The id of a running task of this user."""
    container = {"command": ["sh", "-c", SERVING], "resources": {"cpu": "100m"}, "stdin": True}
    with cluster.near.client(username) as client:
        asked = {"name": name, "containers": [container], "stop_grace_seconds": 0, "placement": {"ports": 1}, **more}
        workload = str(client.submit(WorkloadRequest.model_validate(asked)).id)
        eventually(lambda: client.workload(workload).status == "RUNNING")
        return str(client.workload(workload).tasks[0].id)


class Opened:
    """Everything that a credential can have open about a task, at one server."""

    def __init__(self, client: AsyncClient, session: aiohttp.ClientSession, workload: str, task: str) -> None:
        self._client = client
        self._session = session
        self._workload = workload
        self._task = task
        self._stack = AsyncExitStack()
        self._ends: list[asyncio.Task[str]] = []

    async def open(self) -> None:
        await self._channel(self._client.run_command(self._task, ["sh", "-c", TICKING]))
        await self._channel(self._client.run_command(self._task, ["cat"]))
        await self._channel(self._client.attach(self._task))
        await self._forward()
        logs, events = f"/api/workloads/{self._workload}/logs?follow=true", "/api/events/stream"
        for path in (logs, events):
            answer = await self._stack.enter_async_context(self._session.get(path))
            assert answer.status == 200, await answer.text()
            await answer.content.readany()
            self._ends.append(asyncio.create_task(_rest(answer)))
        waiting = f"/api/workloads/{self._workload}/wait?for=ended&timeout=290"
        self._ends.append(asyncio.create_task(self._poll(waiting)))
        await self._upload()

    async def _forward(self) -> None:
        """A connection with the task's HTTP server, which waits for a request."""
        async with asyncio.timeout(LONG_SECONDS):
            while True:
                try:
                    return await self._channel(self._client.forward_to_task(self._task))
                except Unavailable as problem:
                    if problem.code != "port-not-answering":
                        raise
                    await asyncio.sleep(0.1)

    async def _upload(self) -> None:
        """An endless archive."""
        begun = asyncio.Event()

        async def archive() -> AsyncIterator[bytes]:
            member = tarfile.TarInfo("large")
            member.size = 2**30
            yield member.tobuf()
            while True:
                yield bytes(1024)
                begun.set()
                await asyncio.sleep(0.1)

        async def upload() -> str:
            path = f"/api/tasks/{self._task}/files"
            async with self._session.put(path, params={"path": "."}, data=archive()) as answer:
                return f"{answer.status} {await answer.text()}"

        self._ends.append(asyncio.create_task(upload()))
        await begun.wait()

    async def _channel(self, opening: Any) -> None:
        channel = await self._stack.enter_async_context(opening)
        self._ends.append(asyncio.create_task(_channel_ending(channel)))

    async def _poll(self, path: str) -> str:
        async with self._session.get(path) as answer:
            return f"{answer.status} {await answer.text()}"

    def still_open(self) -> bool:
        return not any(task.done() for task in self._ends)

    async def ends(self) -> list[str]:
        return await asyncio.gather(*self._ends)

    async def close(self) -> None:
        for task in self._ends:
            task.cancel()
        await asyncio.gather(*self._ends, return_exceptions=True)
        await self._stack.aclose()


async def _channel_ending(channel: Channel) -> str:
    while await channel.read() is not None:
        pass
    try:
        return f"exit code {await channel.exit_code()}"
    except NotAuthenticated as problem:
        return f"{problem.code} {problem.message}"


async def _rest(answer: aiohttp.ClientResponse) -> str:
    """The end of the stream's text."""
    text = (await answer.content.read()).decode()
    return text[-600:]


@pytest.fixture
async def opened_by(cluster: Cluster) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def open_at_both(credential: dict[str, Any], workload: str, task: str) -> list[Opened]:
            made = []
            for server in (cluster.near, cluster.far):
                client = await stack.enter_async_context(cluster.client(server, credential))
                keypair = credential.get("keypair")
                shown = aiohttp.encode_basic_auth(*keypair) if keypair else f"Bearer {credential['token']}"
                session = await stack.enter_async_context(
                    aiohttp.ClientSession(
                        server.url,
                        headers={"Authorization": shown},
                        timeout=aiohttp.ClientTimeout(total=None),
                    )
                )
                opened = Opened(client, session, workload, task)
                stack.push_async_callback(opened.close)
                await opened.open()
                made.append(opened)
            return made

        yield open_at_both


async def assert_all_end(opened: list[Opened]) -> None:
    async with asyncio.timeout(LONG_SECONDS):
        for one in opened:
            run, cat, attached, forward, logs, events, poll, upload = await one.ends()
            for channel in (run, cat, attached, forward):
                assert channel.startswith("access-revoked"), channel
            assert "[mooring] the output is cut off here: access was revoked" in logs
            assert "event: end" in events
            assert "access-revoked" in events
            for answer in (poll, upload):
                assert answer.startswith("401"), answer
                assert json.loads(answer[4:])["code"] == "access-revoked"


def deactivate_user(cluster: Cluster, username: str, _keypair: str) -> None:
    with cluster.near.client() as admin:
        admin.change_user(username, UserChange(active=False))


def change_password(cluster: Cluster, username: str, _keypair: str) -> None:
    with cluster.near.client() as admin:
        admin.change_user(username, UserChange(password="another password"))


def deactivate_keypair(cluster: Cluster, _username: str, keypair: str) -> None:
    with cluster.near.client() as admin:
        admin.change_keypair(keypair, KeypairChange(active=False))


def remove_keypair(cluster: Cluster, _username: str, keypair: str) -> None:
    with cluster.near.client() as admin:
        admin.remove_keypair(keypair)


def let_keypair_expire(cluster: Cluster, _username: str, keypair: str) -> None:
    """Move the end of the keypair into the past; the shortest life that a request can ask for is a minute."""

    async def expire(connection: Connection) -> None:
        this = keypairs.c.access_key == keypair
        await connection.execute(update(keypairs).where(this).values(expires_at=clock.now() - timedelta(seconds=1)))

    cluster.write(expire)


def revoke_each_login(cluster: Cluster, username: str, _keypair: str) -> None:
    with cluster.near.client() as admin:
        for login in admin.logins(user=username):
            admin.end_login(str(login.id))


def revoke_signing_key(cluster: Cluster, _username: str, _keypair: str) -> None:
    key_id = signing.from_text(OLD_KEY).newest.id
    cluster.write(lambda connection: signing_keys.revoke(connection, key_id, clock.now()))


def deactivate_domain(cluster: Cluster, _username: str, _keypair: str) -> None:
    with cluster.near.client() as admin:
        admin.change_domain("closing", TenantChange(active=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "revoke", "domain"),
    [
        ("token", deactivate_user, DOMAIN),
        ("token", change_password, DOMAIN),
        ("token", revoke_each_login, DOMAIN),
        ("token", deactivate_domain, "closing"),
        ("keypair", deactivate_user, DOMAIN),
        ("keypair", deactivate_keypair, DOMAIN),
        ("keypair", remove_keypair, DOMAIN),
        ("keypair", let_keypair_expire, DOMAIN),
        ("old-token", revoke_signing_key, DOMAIN),
    ],
)
async def test_open_connections_end_on_every_server_with_their_credential(
    cluster: Cluster, opened_by: Callable[..., Any], by: str, revoke: Callable[[Cluster, str, str], None], domain: str
) -> None:
    name = f"{by}-{revoke.__name__.replace('_', '-')}"
    if domain != DOMAIN:
        with cluster.near.client() as admin:
            admin.create_domain(domain)
    await asyncio.to_thread(make_user, cluster, name, domain)
    task = await asyncio.to_thread(make_task, cluster, name, name)
    keypair = ""
    credential = cluster.token_of_old_key(name) if by == "old-token" else cluster.token(name)
    if by == "keypair":
        with cluster.near.client(name) as client:
            made = client.create_keypair(KeypairRequest(scope="work"))
        keypair, credential = made.access_key, {"keypair": (made.access_key, made.secret)}
    opened = await opened_by(credential, name, task)
    await asyncio.to_thread(make_user, cluster, f"{name}-other", domain)
    assert all(one.still_open() for one in opened)
    await asyncio.to_thread(revoke, cluster, name, keypair)
    await assert_all_end(opened)


@pytest.mark.parametrize(
    ("by", "revoke"),
    [("token", deactivate_user), ("token", revoke_each_login), ("keypair", deactivate_keypair)],
)
async def test_submissions_with_a_login_in_use_end_on_every_server_with_their_credential(
    cluster: Cluster, by: str, revoke: Callable[[Cluster, str, str], None]
) -> None:
    name = f"submits-{by}-{revoke.__name__.replace('_', '-')}"
    await asyncio.to_thread(make_user, cluster, name)
    keypair, credential = "", cluster.token(name)
    if by == "keypair":
        with cluster.near.client(name) as client:
            made = client.create_keypair(KeypairRequest(scope="work"))
        keypair, credential = made.access_key, {"keypair": (made.access_key, made.secret)}
    for server in (cluster.near, cluster.far):
        async with cluster.client(server, credential) as client:
            for _ in range(3):
                assert await accepts_work(client)
    await asyncio.to_thread(revoke, cluster, name, keypair)
    async with cluster.client(cluster.near, credential) as client:
        assert not await accepts_work(client), "at the server that revoked it, from the next request on"
    async with cluster.client(cluster.far, credential) as client, asyncio.timeout(LONG_SECONDS):
        while await accepts_work(client):
            pass
        assert not await accepts_work(client)


async def accepts_work(client: AsyncClient) -> bool:
    try:
        await client.submit(WorkloadRequest.model_validate({"containers": [{"command": ["true"]}]}))
    except NotAuthenticated:
        return False
    return True


def test_servers_recheck_often_enough_for_the_documented_bound() -> None:
    # The rest is for the query itself and for the reason to reach the client.
    assert RECHECK_SECONDS + LAST_MESSAGE_SECONDS <= MAX_SECONDS / 2


def take_role(cluster: Cluster, username: str) -> None:
    with cluster.near.client() as admin:
        admin.add_member(SECOND, MemberRequest(username=username, role="user"), domain=DOMAIN)


def remove_membership(cluster: Cluster, username: str) -> None:
    with cluster.near.client() as admin:
        admin.remove_member(SECOND, username, domain=DOMAIN)


@pytest.mark.parametrize("lose", [take_role, remove_membership])
async def test_a_project_admin_who_loses_the_role_or_the_membership_loses_access_to_the_work_of_others(
    cluster: Cluster, opened_by: Callable[..., Any], lose: Callable[[Cluster, str], None]
) -> None:
    name = lose.__name__.replace("_", "-")
    owner, overseer, overseen = f"owner-{name}", f"overseer-{name}", f"overseen-{name}"
    for username in (owner, overseer):
        await asyncio.to_thread(make_user, cluster, username)
    with cluster.near.client() as admin:
        admin.add_member(SECOND, MemberRequest(username=owner), domain=DOMAIN)
        admin.add_member(SECOND, MemberRequest(username=overseer, role="project-admin"), domain=DOMAIN)
    task = await asyncio.to_thread(make_task, cluster, owner, overseen, project=SECOND)
    with cluster.near.client(owner) as client:
        workload = str(client.workload(overseen).id)
    with cluster.near.client(overseer) as client:
        made = client.create_keypair(KeypairRequest(scope="all", project=SECOND))
    by_token = await opened_by(cluster.token(overseer), workload, task)
    by_keypair = await opened_by({"keypair": (made.access_key, made.secret)}, workload, task)
    own = await opened_by(cluster.token(owner), workload, task)
    await asyncio.to_thread(lose, cluster, overseer)
    await assert_all_end(by_token)
    await assert_all_end(by_keypair)
    assert all(one.still_open() for one in own)


async def test_a_member_with_live_work_is_cut_off_by_deactivation_before_the_membership_can_end(
    cluster: Cluster, opened_by: Callable[..., Any]
) -> None:
    await asyncio.to_thread(make_user, cluster, "leaving")
    with cluster.near.client() as admin:
        admin.add_member(SECOND, MemberRequest(username="leaving"), domain=DOMAIN)
    task = await asyncio.to_thread(make_task, cluster, "leaving", "last-work", project=SECOND)
    with cluster.near.client("leaving") as client:
        workload = str(client.workload("last-work").id)
    opened = await opened_by(cluster.token("leaving"), workload, task)
    with pytest.raises(Conflict) as refused:
        await asyncio.to_thread(remove_membership, cluster, "leaving")
    assert refused.value.code == "in-use"
    assert "deactivate the user to end its access now" in refused.value.message
    await asyncio.to_thread(deactivate_user, cluster, "leaving", "")
    await assert_all_end(opened)


@pytest.mark.slow
async def test_files_that_are_being_fetched_are_cut_off(cluster: Cluster) -> None:
    await asyncio.to_thread(make_user, cluster, "reader")
    task = await asyncio.to_thread(make_task, cluster, "reader", "reading")
    credential = cluster.token("reader")
    making = ["sh", "-c", "mkdir big; head -c 300000000 /dev/zero > big/zeros"]
    async with cluster.client(cluster.near, credential) as client, client.run_command(task, making) as made:
        assert await made.exit_code() == 0
    headers = {"Authorization": f"Bearer {credential['token']}"}
    async with (
        asyncio.timeout(LONG_SECONDS),
        aiohttp.ClientSession(cluster.near.url, headers=headers) as session,
        session.get(f"/api/tasks/{task}/files", params={"path": "big"}) as answer,
    ):
        assert answer.status == 200
        await answer.content.readexactly(1000)
        await asyncio.to_thread(deactivate_user, cluster, "reader", "")
        await asyncio.to_thread(eventually, lambda: _revoked(cluster.near, "reader"))
        # Nobody has read for as long as that took, so that most of it was still to come when the access ended.
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()


def _revoked(server: Server, username: str) -> bool:
    return any("Access was revoked" in line and f"user={username}" in line for line in server.log.splitlines())
