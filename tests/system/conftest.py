"""Servers for the system tests. Whatever a test starts here is audited, stopped and cleared away after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mooring.clock import AHEAD, Moved
from mooring.wire.api import JoinTokenRequest
from tests.system.servers import PASSWORD, Cli, NodeAgent, Program, Server, eventually, workspace


class Servers:
    """Starts servers and agents, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Program] = []
        self.trouble_expected = False
        """Set by a test that provokes errors in a server's log."""

    def prepare(
        self, *flags: str, name: str = "data", environment: Mapping[str, str] | None = None, data: Path | None = None
    ) -> Server:
        """A server that is not started yet."""
        server = Server(data or self.folder / name, flags, {"MOORING_ADMIN_PASSWORD": PASSWORD, **(environment or {})})
        self._started.append(server)
        return server

    def start(self, *flags: str, name: str = "data", environment: Mapping[str, str] | None = None) -> Server:
        return self.prepare(*flags, name=name, environment=environment).start()

    def start_in_the_past(self, *, environment: Mapping[str, str] | None = None) -> tuple[Server, Moved]:
        """A server with a node whose date is moved, and always in the past: tokens of the future are worth nothing."""
        file = self.folder / "ahead"
        clock = Moved(file)
        clock.move_to(datetime.now(UTC) - timedelta(minutes=40))
        # Nothing but the date moves: a heartbeat is late by it, and loops look more often than anything is due.
        patient = {AHEAD: str(file), "MOORING_NODE_TIMEOUT_SECONDS": "36000", "RECONCILE_INTERVAL": "0.2"}
        return self.start("--node-name", "here", environment=patient | dict(environment or {})), clock

    def agent(
        self,
        server: Server,
        name: str,
        token: str,
        *flags: str,
        node: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> NodeAgent:
        """An agent with a data folder of its own, named as its node unless told otherwise."""
        folder, named = self.folder / name, node or name
        agent = NodeAgent(folder, flags, environment or {}, server=server.url, name=named, token=token)
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
        """An agent whose node has joined and is ready."""
        with server.client() as client:
            token = client.create_join_token(JoinTokenRequest(name=name, pool=pool)).token
            agent = self.agent(server, name, token, *flags, environment=environment)
            eventually(lambda: any(node.name == name and node.status == "READY" for node in client.nodes().nodes))
        return agent

    def cli(self, name: str = "person") -> Cli:
        return Cli(self.folder / name)

    def check(self) -> None:
        """The audit after a test, and no exception in any log."""
        for program in self._started:
            if isinstance(program, Server) and program.alive:
                program.assert_books_agree()
            if not self.trouble_expected:
                assert "Traceback" not in program.log, program.log[-6000:]

    def end(self) -> None:
        """The quick way; how a server ends in order is a test of its own."""
        for program in reversed(self._started):
            if program.alive:
                program.kill()


@contextmanager
def running_servers() -> Iterator[Servers]:
    """What is started in the block is checked and ended after it."""
    with workspace() as folder:
        started = Servers(folder)
        try:
            yield started
            started.check()
        finally:
            started.end()


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    # The database is there before the servers, so that it is still there when they stop.
    for database in {"database_flags", "postgres_url"} & set(request.fixturenames):
        request.getfixturevalue(database)
    with running_servers() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def database_flags(request: pytest.FixtureRequest) -> list[str]:
    """What makes a server use the database at hand: the test runs once per kind. Simulated nodes are allowed."""
    if request.param == "sqlite":
        return []
    return ["--database", request.getfixturevalue("postgres_url"), "--demo"]
