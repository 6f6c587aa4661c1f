"""A whole API over a real database: the real intake and node administration, small stand-ins for what is remote."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
from argon2 import PasswordHasher
from fastapi import FastAPI
from sqlalchemy import func, select

from mooring import clock
from mooring.api.agents.hub import AgentHub
from mooring.api.auth.login_cache import LoginCache
from mooring.api.auth.login_records import LoginRecords
from mooring.api.auth.signing import SigningKey, SigningKeys
from mooring.api.auth.tokens import Claims, Tokens
from mooring.api.services import Readiness, Services
from mooring.api.streams.event_feed import EventFeed
from mooring.api.streams.open_connections import OpenConnections
from mooring.coordination.signals import Signal
from mooring.model.errors import Unavailable
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import PoolPolicy
from mooring.model.reasons import Reason
from mooring.model.tenancy.tenants import Role
from mooring.services.administration.audit import Auditor
from mooring.services.administration.defragmentation import Defragmentation
from mooring.services.administration.nodes import NodeAdmin
from mooring.services.administration.pools import PoolAdmin
from mooring.services.administration.quotas import QuotaAdmin
from mooring.services.administration.shares import Shares
from mooring.services.administration.volumes import VolumeAdmin
from mooring.services.bookings.bookings import Bookings
from mooring.services.deployments.deployments import DeploymentAdmin
from mooring.services.queries.queries import Queries
from mooring.services.submission.submission import SubmissionService
from mooring.services.uploads.content import ContentFolder
from mooring.services.uploads.uploads import UploadLimits, Uploads
from mooring.services.what_if.what_if import WhatIf
from mooring.simulation.what_if.process import Bounds
from mooring.store.commit import transitions
from mooring.store.commit.status_changes import Change
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import pools
from mooring.store.tables import metadata, nodes
from mooring.store.tenancy import (
    admin_actions,
    domains,
    memberships,
    projects,
    tenants,
    users,
)
from mooring.store.views import workloads as views
from tests.sealing import some_keys

ADMIN_PASSWORD = "admin123"
PASSWORD = "correct horse"
NO_DEFAULT_REQUESTS = PoolPolicy("locality", default_cpu=0, default_memory=0)
"""The policy of the pools, so that a workload requests what a test says and nothing else."""
KEYS = SigningKeys([SigningKey(b"k" * 32)])


@dataclass
class FakeLogs:
    """The nodes' side of output: pieces by task, or a node that does not answer."""

    pieces: list[bytes] = field(default_factory=lambda: [b"one\n", b"two\n"])
    fails_after: int | None = None
    silent: bool = False
    asking: asyncio.Event = field(default_factory=asyncio.Event)
    closed: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def stream(
        self,
        task_id: UUID,
        node_id: UUID,
        *,
        container: str,
        tail: int | None,
        follow: bool,
        since: float | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[bytes]:
        asked = {"task_id": task_id, "node_id": node_id, "container": container, "tail": tail, "follow": follow}
        asked |= {"since": since} if since is not None else {}
        asked |= {"timestamps": True} if timestamps else {}
        self.asked.append(asked)
        self.asking.set()
        try:
            if self.silent:
                await asyncio.Event().wait()
            for number, piece in enumerate(self.pieces):
                if number == self.fails_after:
                    raise Unavailable("node n1 does not answer")
                yield piece
        finally:
            self.closed += 1


class WatchedSignal(Signal):
    """A signal that reports when a request waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = asyncio.Event()
        self.timeouts: list[float] = []

    async def wait(self, timeout: float, seen: int | None = None) -> int:
        self.timeouts.append(timeout)
        self.waiting.set()
        return await super().wait(timeout, seen)


@dataclass
class FakeState:
    role: str = "leader"
    last_pass_at: datetime | None = None
    last_pass_ms: float | None = 1.5
    passes: int = 3
    found: dict[str, str] = field(default_factory=lambda: {"database": "ok"})
    degraded: dict[str, str] = field(default_factory=dict)

    async def readiness(self) -> Readiness:
        return Readiness(self.found, self.degraded)


@dataclass
class World:
    services: Services
    app: FastAPI
    client: httpx2.AsyncClient
    logs: FakeLogs
    changes: WatchedSignal
    state: FakeState

    async def login(self, username: str, password: str = PASSWORD) -> dict[str, str]:
        answer = await self.client.post("/api/auth/login", json={"username": username, "password": password})
        assert answer.status_code == 200, answer.text
        return {"Authorization": f"Bearer {answer.json()['access_token']}"}

    async def admin(self) -> dict[str, str]:
        return await self.token("admin")

    async def user(
        self,
        username: str,
        *,
        role: Role = Role.USER,
        domain: str = tenants.DEFAULT_DOMAIN,
        project: str = tenants.DEFAULT_PROJECT,
    ) -> dict[str, str]:
        """A new user, logged in; with the role of a project's admin it is that of its project."""

        async def create(connection: Connection) -> UUID:
            user_id = await users.create(
                connection,
                username=username,
                role=Role.USER if role is Role.PROJECT_ADMIN else role,
                domain_id=await domains.ensure(connection, domain, clock.now()),
                project=project,
                password_hash=hashed(PASSWORD),
                now=clock.now(),
            )
            if role is Role.PROJECT_ADMIN:
                of = await projects.find(connection, domain, project)
                user = await users.find(connection, username)
                await memberships.add(connection, of, user, role, actor=admin_actions.SERVER, now=clock.now())
            return user_id

        await self.services.database.write(create)
        return await self.token(username)

    async def token(self, username: str) -> dict[str, str]:
        """The header of a login, without the cost of one."""
        async with self.services.database.read() as connection:
            found = await users.credentials(connection, username)
        assert found is not None
        signed = self.services.tokens.issue(Claims(found.user_id, found.token_epoch, clock.now()))
        return {"Authorization": f"Bearer {signed.text}"}

    async def submit(self, headers: dict[str, str], **more: Any) -> str:
        """Submit a workload of one container, to the simulated pool unless another one is named."""
        body = {"containers": [{"image": "nginx", "resources": {"cpu": "500m"}}], "pool": "simulated", **more}
        answer = await self.client.post("/api/workloads", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        workload_id: str = answer.json()["id"]
        return workload_id

    async def add_node(self, name: str, **more: Any) -> None:
        body = {"name": name, "simulated": True, "resources": {"cpu": 8, "memory": "16Gi", "storage": "1Ti"}, **more}
        answer = await self.client.post("/api/nodes", json=body, headers=await self.admin())
        assert answer.status_code == 201, answer.text

    async def move(self, workload_id: str, *statuses: TaskStatus, node: str = "n1", index: int = 0) -> None:
        """Bring one task through these statuses as the scheduler and an agent would."""
        async with self.services.database.read() as connection:
            workload = await views.by_id(connection, UUID(workload_id))
            assert workload is not None
            found = await views.tasks_of(connection, workload)
            task = [task for task in found if task.task_index == index][-1]
            node_id = (await connection.execute(select(nodes.c.id).where(nodes.c.name == node))).scalar_one()
        for status in statuses:
            placed = status is TaskStatus.SCHEDULED
            change = Change(
                task.id,
                status,
                reason=Reason("broke", "it broke", "agent") if status is TaskStatus.FAILED else None,
                node_id=node_id if placed else None,
                node_name=node if placed else None,
                score=870_000 if placed else None,
            )
            await self.apply(change)

    async def apply(self, change: Change) -> None:
        await self.services.database.write(
            lambda c: transitions.apply(c, [change], actor="scheduler", now=clock.now(), term=1)
        )

    async def counts(self) -> dict[str, int]:
        """Number of rows of every table."""
        found: dict[str, int] = {}
        async with self.services.database.read() as connection:
            for table in metadata.sorted_tables:
                found[table.name] = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
        return found


@cache
def hashed(password: str) -> str:
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(password)


async def prepare(
    database: Database, uploads: Path = Path("/nonexistent")
) -> tuple[Services, FakeLogs, WatchedSignal, FakeState]:
    """Services over a database after its first start, with a real and a simulated pool."""
    password_hash = hashed(ADMIN_PASSWORD)
    await database.write(lambda c: tenants.bootstrap(c, password_hash=password_hash, now=clock.now()))
    runtimes = ["container", "process"]
    await database.write(
        lambda c: pools.ensure(
            c, "default", runtimes=runtimes, simulated=False, policy=NO_DEFAULT_REQUESTS, now=clock.now()
        )
    )
    await database.write(
        lambda c: pools.ensure(
            c, "simulated", runtimes=["container"], simulated=True, policy=NO_DEFAULT_REQUESTS, now=clock.now()
        )
    )
    logs, changes, state = FakeLogs(), WatchedSignal(), FakeState()
    configuration = ConfigurationVersion()
    database.on_commit.append(configuration.receive)
    queries = Queries(database)
    services = Services(
        database=database,
        submissions=SubmissionService(database, configuration=configuration),
        deployments=DeploymentAdmin(database),
        bookings=Bookings(database),
        queries=queries,
        what_if=WhatIf(queries, Bounds(60, 4 << 30, niceness=0)),
        nodes=NodeAdmin(database, simulation_allowed=True),
        pools=PoolAdmin(database),
        defragmentation=Defragmentation(database),
        quotas=QuotaAdmin(database),
        shares=Shares(database),
        volumes=VolumeAdmin(database),
        uploads=Uploads(
            database, ContentFolder(uploads), UploadLimits(project_bytes=20_000_000, user_bytes=25_000_000)
        ),
        logs=logs,
        task_access=AgentHub(database, changes),
        feed=EventFeed(database, changes),
        state=state,
        auditor=Auditor(database),
        tokens=Tokens(KEYS),
        connections=OpenConnections(database),
        login_records=LoginRecords(database),
        metrics_text=lambda: b"mooring_passes_total 3\n",
        version="1.2.3",
        public_url="http://mooring.test",
        secret_box=some_keys(),
        logins=LoginCache(configuration),
    )
    return services, logs, changes, state


async def real_pool_takes_containers(database: Database) -> None:
    """A pool of real nodes for containers, so that nothing is simulated."""
    await database.write(
        lambda c: pools.ensure(c, "real", runtimes=["container", "process"], simulated=False, now=clock.now())
    )
