"""One server process: the API and, as its role says, a scheduler and an agent, from its start to its stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog
import uvicorn

from mooring.api.agents.hub import AgentHub
from mooring.api.streams.event_feed import EventFeed
from mooring.api.streams.open_connections import OpenConnections
from mooring.concurrency.background import BackgroundTask, BackgroundTasks
from mooring.controllers.leadership.leader import Leader
from mooring.coordination import postgres
from mooring.coordination.etcd import signals as etcd_signals
from mooring.coordination.etcd.client import EtcdClient
from mooring.coordination.etcd.signals import Announcer
from mooring.coordination.presence import attend
from mooring.coordination.signals import Signal
from mooring.server.election import election_kind
from mooring.server.listen_address import (
    url_for_others,
)
from mooring.server.readiness import ServerState
from mooring.services.uploads.content import ContentFolder
from mooring.services.uploads.expiry import expire_forever
from mooring.settings import Settings
from mooring.store.control import background_tasks
from mooring.store.core.engine import Database

if TYPE_CHECKING:
    from mooring.agent.agent import Agent

_log = structlog.get_logger(__name__)
_REPORT_SECONDS = 5.0
_NAMED_TASKS = 10


class ServerProcess:
    """The parts of one process that live as long as it does."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        name: str,
        url: str,
        *,
        signal: Signal,
        hub: AgentHub,
        leader: Leader | None,
        etcd: EtcdClient | None,
    ) -> None:
        self.settings = settings
        self.database = database
        self.name = name
        self.url = url
        self.signal = signal
        self.hub = hub
        self.leader = leader
        self.feed = EventFeed(database, signal)
        self.connections = OpenConnections(database)
        self.upload_content = ContentFolder(settings.uploads)
        self._etcd = etcd
        self._announcer = None if etcd is None else Announcer(etcd, name)
        database.on_commit.append(signal.send)
        if self._announcer is not None:
            database.on_commit.append(self._announcer.announce)
        self.background = BackgroundTasks()
        self.of_agent = BackgroundTasks()
        self._agent_ended = asyncio.Event()
        """Not set while it runs."""
        self.state = ServerState(database, leader, timedelta(seconds=settings.leader_lease_ttl), self._tasks)
        self.agent: Agent | None = None
        self.uvicorn: uvicorn.Server | None = None

    async def run(self, listener: socket.socket) -> None:
        """Serve until a signal says stop; then agent, loops and API end in this order, so that no report is lost."""
        assert self.uvicorn is not None
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        # uvicorn would take the signals for itself, and they are for the whole process.
        serving = asyncio.create_task(self.uvicorn._serve([listener]))
        self.start_background()
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        _log.info("Shutting down")
        self.state.stopping = True
        self.feed.close()
        self.hub.close_channels()
        await self.stop_background()
        self.uvicorn.should_exit = True
        stopping.cancel()
        await serving
        _log.info("Graceful shutdown complete")

    def start_background(self) -> None:
        """Start every background task of this process, besides the API itself."""
        tasks = self.background
        tasks.start("presence", self._attend, essential=False)
        tasks.start("task reports", self._report_tasks, essential=False)
        if self.settings.role != "scheduler":
            tasks.start("agent orders", self.hub.follow)
            tasks.start("heartbeats", self.hub.write_heartbeats)
            tasks.start("revocation", self.connections.follow)
            measured = partial(self.hub.measured.write_periodically, self.database, self.settings.heartbeat_seconds)
            tasks.start("measures", measured, essential=False)
            retention = timedelta(days=self.settings.upload_retention_days)
            expiring = partial(expire_forever, self.database, self.upload_content, retention)
            tasks.start("upload expiry", expiring, essential=False)
        if self._etcd is not None and self._announcer is not None:
            tasks.start("signals from etcd", partial(etcd_signals.listen, self._etcd, self.signal, own=self.name))
            tasks.start("signals to etcd", self._announcer.run)
        elif self.database.dialect == "postgresql":
            tasks.start(
                "signals from the database",
                partial(postgres.listen, self.database.url, self.signal, own=self.database.origin),
            )
        if self.leader is not None:
            tasks.start("leader", self._lead)
        if self.agent is not None:
            self.of_agent.start("agent", self._run_agent)

    async def stop_background(self) -> None:
        """Stop the agent first, so that none of its reports is lost."""
        if self.agent is not None:
            left = self.agent.ordered_tasks() if self.settings.on_stop == "leave" else []
            self.agent.stop(terminate=self.settings.on_stop == "stop")
            await self._agent_ended.wait()
            if left:
                _log.info(tasks_left_text(left))
        await self.of_agent.close()
        await self.background.close()
        if self.leader is not None:
            await self.leader.close()
        if self._etcd is not None:
            await self._etcd.close()

    async def _lead(self) -> None:
        assert self.leader is not None
        await self.leader.keep_leading()
        # Deposed although no other server should lead: /ready names the new leader; campaigning again would not help.
        await asyncio.Event().wait()

    async def _run_agent(self) -> None:
        """Run this machine's agent; the API and the scheduler continue without it."""
        from mooring.agent.connection.stream import AgentRefused

        assert self.agent is not None
        self._agent_ended.clear()
        try:
            await self.agent.run()
        except AgentRefused as refusal:
            self.state.agent_problem = refusal.message
            _log.error(f"The agent of this machine stopped, and its node will be lost: {refusal.message}")
        finally:
            self._agent_ended.set()
        await asyncio.Event().wait()

    def _tasks(self) -> list[BackgroundTask]:
        """Return the background tasks of this server and of the agent inside it."""
        found = [*self.background.states, *self.of_agent.states]
        if self.agent is not None:
            found += [replace(task, name=f"agent: {task.name}") for task in self.agent.background_tasks()]
        return found

    async def _report_tasks(self) -> None:
        """Write the state of all background tasks where every server can read it."""
        while True:
            own_node = self.agent.node_id if self.agent is not None else None
            states: list[background_tasks.TaskState] = [*self.state.tasks(), *self.hub.agent_tasks(without=own_node)]
            await self.database.write(partial(background_tasks.report, server=self.name, states=states), notify=False)
            await asyncio.sleep(_REPORT_SECONDS)

    async def _attend(self) -> None:
        url = url_for_others(self.settings, self.url)
        await attend(
            self.database,
            self.name,
            role=self.settings.role,
            url=url,
            version=version("mooring"),
            election=election_kind(self.settings, self.database) if self.leader else None,
            candidate=self.leader,
        )


def tasks_left_text(names: Sequence[str]) -> str:
    """Return a line about tasks that continue to run while the server is stopped; the first few are named."""
    named = ", ".join(names[:_NAMED_TASKS])
    more = f" and {len(names) - _NAMED_TASKS} more" if len(names) > _NAMED_TASKS else ""
    count = "1 task continues" if len(names) == 1 else f"{len(names)} tasks continue"
    return (
        f"{count} to run on this machine: {named}{more}; the next start finds them, and --on-stop stop would end them"
    )
