"""A whole API over a real database: the real intake and node administration, small stand-ins for what is remote."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

import httpx2
from argon2 import PasswordHasher
from fastapi import FastAPI
from sqlalchemy import func, select

from mooring import clock
from mooring.api.feed import EventFeed
from mooring.api.hub import AgentHub
from mooring.api.services import Services
from mooring.api.signing import SigningKey, SigningKeys
from mooring.api.tokens import Claims, Tokens
from mooring.coordination.signals import Signal
from mooring.intake.auditing import Auditor
from mooring.intake.bookings import Bookings
from mooring.intake.deployments import DeploymentAdmin
from mooring.intake.intake import Intake
from mooring.intake.nodes import NodeAdmin
from mooring.intake.pools import PoolAdmin
from mooring.intake.questions import Questions
from mooring.intake.quotas import QuotaAdmin
from mooring.intake.volumes import VolumeAdmin
from mooring.model.errors import Unavailable
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.tenants import Role
from mooring.store import actions, domains, memberships, pools, projects, tenants, transitions, users
from mooring.store.changes import Change
from mooring.store.engine import Connection, Database
from mooring.store.tables import metadata, nodes
from mooring.store.views import workloads as views
from tests.sealing import some_keys

ADMIN_PASSWORD = "admin123"
PASSWORD = "correct horse"
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
        self, task_id: UUID, node_id: UUID, *, container: str, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        asked = {"task_id": task_id, "node_id": node_id, "container": container, "tail": tail, "follow": follow}
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
    """A signal that tells when somebody waits for it."""

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

    async def checks(self) -> dict[str, str]:
        return self.found


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
                await memberships.add(connection, of, user, role, actor=actions.SERVER, now=clock.now())
            return user_id

        await self.services.database.write(create)
        return await self.token(username)

    async def token(self, username: str) -> dict[str, str]:
        """What a login would give, without the work of one."""
        async with self.services.database.read() as connection:
            found = await users.credentials(connection, username)
        assert found is not None
        signed = self.services.tokens.issue(Claims(found.user_id, found.token_epoch, clock.now()))
        return {"Authorization": f"Bearer {signed.text}"}

    async def submit(self, headers: dict[str, str], **more: Any) -> str:
        body = {"containers": [{"image": "nginx", "resources": {"cpu": "500m"}}], **more}
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
            found = await views.tasks_of(connection, UUID(workload_id))
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
        """How many rows every table has."""
        found: dict[str, int] = {}
        async with self.services.database.read() as connection:
            for table in metadata.sorted_tables:
                found[table.name] = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
        return found


@cache
def hashed(password: str) -> str:
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(password)


async def prepare(database: Database) -> tuple[Services, FakeLogs, WatchedSignal, FakeState]:
    """Services over a database after its first start, with a real and a simulated pool."""
    password_hash = hashed(ADMIN_PASSWORD)
    await database.write(lambda c: tenants.bootstrap(c, password_hash=password_hash, now=clock.now()))
    await database.write(lambda c: pools.ensure(c, "default", runtimes=["process"], simulated=False, now=clock.now()))
    await database.write(
        lambda c: pools.ensure(c, "simulated", runtimes=["container"], simulated=True, now=clock.now())
    )
    logs, changes, state = FakeLogs(), WatchedSignal(), FakeState()
    services = Services(
        database=database,
        intake=Intake(database),
        deployments=DeploymentAdmin(database),
        bookings=Bookings(database),
        questions=Questions(database),
        nodes=NodeAdmin(database, simulation_allowed=True),
        pools=PoolAdmin(database),
        quotas=QuotaAdmin(database),
        volumes=VolumeAdmin(database),
        logs=logs,
        ways_in=AgentHub(database, changes),
        changes=changes,
        feed=EventFeed(database, changes),
        state=state,
        auditor=Auditor(database),
        tokens=Tokens(KEYS),
        metrics_text=lambda: b"mooring_passes_total 3\n",
        version="1.2.3",
        public_url="http://mooring.test",
        sealing=some_keys(),
    )
    return services, logs, changes, state


async def real_pool_takes_containers(database: Database) -> None:
    """A pool of real nodes for containers, so that nothing is simulated."""
    await database.write(
        lambda c: pools.ensure(c, "real", runtimes=["container", "process"], simulated=False, now=clock.now())
    )
