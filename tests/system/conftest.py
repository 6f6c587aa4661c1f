"""Servers for the system tests. The servers that a test starts are audited, stopped and removed after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mooring.clock import AHEAD, ShiftedClock
from mooring.wire.cluster.nodes import JoinTokenRequest
from tests.system.servers import PASSWORD, Cli, NodeAgent, Program, Server, eventually, is_ready, workspace


class Servers:
    """Starts servers and agents, and ends all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Program] = []
        self.trouble_expected = False
        """Set by a test that provokes errors in a server's log."""

    def prepare(
        self, *flags: str, name: str = "data", environment: Mapping[str, str] | None = None, data: Path | None = None
    ) -> Server:
        """A server that is not started yet."""
        environment = {"MOORING_ADMIN_PASSWORD": PASSWORD, **(environment or {})}
        server = Server(data or self.folder / name, flags, environment, forks=True)
        self._started.append(server)
        return server

    def start(self, *flags: str, name: str = "data", environment: Mapping[str, str] | None = None) -> Server:
        return self.prepare(*flags, name=name, environment=environment).start()

    def start_in_the_past(self, *, environment: Mapping[str, str] | None = None) -> tuple[Server, ShiftedClock]:
        """Start a server and a node on a movable clock, always in the past: tokens from the future are invalid."""
        file = self.folder / "ahead"
        clock = ShiftedClock(file)
        clock.move_to(datetime.now(UTC) - timedelta(minutes=40))
        # Only the date moves: heartbeats seem late by as much, and loops must run more often than anything is due.
        patient = {AHEAD: str(file), "MOORING_NODE_TIMEOUT_SECONDS": "36000", "RECONCILE_INTERVAL": "0.2"}
        server = self.start("--node-name", "here", environment=patient | dict(environment or {}))
        # Bookings would be rejected before its node has joined.
        with server.client() as client:
            eventually(lambda: is_ready(client, "here"))
        return server, clock

    def agent(
        self,
        server: Server,
        name: str,
        token: str,
        *flags: str,
        node: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> NodeAgent:
        """Start an agent with its own data folder, named after its node by default."""
        folder, named = self.folder / name, node or name
        agent = NodeAgent(folder, flags, environment or {}, forks=True, server=server.url, name=named, token=token)
        agent.launch()
        self._started.append(agent)
        return agent

    def node(
        self,
        server: Server,
        name: str,
        *flags: str,
        pool: str = "default",
        environment: Mapping[str, str] | None = None,
    ) -> NodeAgent:
        """Start an agent and wait until its node is ready."""
        with server.client() as client:
            token = client.create_join_token(JoinTokenRequest(name=name, pool=pool)).token
            agent = self.agent(server, name, token, *flags, environment=environment)
            eventually(lambda: is_ready(client, name))
        return agent

    def cli(self, name: str = "person") -> Cli:
        return Cli(self.folder / name)

    def check(self) -> None:
        """Audit every running server and check that no log has a traceback."""
        for program in self._started:
            if isinstance(program, Server) and program.alive:
                program.assert_books_agree()
            if not self.trouble_expected:
                assert "Traceback" not in program.log, program.log[-6000:]

    def end(self) -> None:
        """Kill all programs, which is quick. The orderly shutdown has its own tests."""
        for program in reversed(self._started):
            if program.alive:
                program.kill()


@contextmanager
def running_servers() -> Iterator[Servers]:
    """Check and end the servers started in the block."""
    with workspace() as folder:
        started = Servers(folder)
        try:
            yield started
            started.check()
        finally:
            started.end()


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    # Created before the servers, so that the database still exists when they stop.
    for database in {"database_flags", "postgres_url"} & set(request.fixturenames):
        request.getfixturevalue(database)
    with running_servers() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def database_flags(request: pytest.FixtureRequest) -> list[str]:
    """The flags that select a server's database. The test runs once per kind, and simulated nodes are allowed."""
    if request.param == "sqlite":
        return []
    return ["--database", request.getfixturevalue("postgres_url"), "--demo"]
