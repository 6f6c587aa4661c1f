"""The agents connected to this process: their sessions, messages to them and messages from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from uuid import UUID

import msgspec
import structlog

from mooring.api.agents.agent_config import AgentConfig
from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.desired_state import DesiredStateSender
from mooring.api.agents.heartbeat_writer import HeartbeatWriter
from mooring.api.agents.measured_usage import MeasuredUse
from mooring.api.agents.reports import apply_report
from mooring.api.agents.secret_decryption import SecretDecryption
from mooring.api.agents.stray_tasks import log_quarantined, quarantine_strays
from mooring.api.middleware.load_shedding.fair_queue import FairQueue
from mooring.api.streams.channel_relay import Channel, TaskChannels, able
from mooring.api.streams.task_output import TaskOutput
from mooring.clock import now
from mooring.coordination.outage import Outage
from mooring.coordination.signals import Signal
from mooring.model.errors import NotFound
from mooring.model.lifecycle import TaskStatus
from mooring.model.nodes.heartbeats import Pace
from mooring.model.resources.devices import Device
from mooring.security.encryption import SecretBox
from mooring.store.control import events
from mooring.store.core.engine import (
    Connection,
    Database,
    is_temporary,
)
from mooring.store.nodes import (
    desired_tasks,
    nodes,
)
from mooring.store.workloads import volumes
from mooring.telemetry import metrics
from mooring.wire.agents.agent_protocol import (
    WELCOMED_SINCE,
    BackgroundTaskState,
    ChannelData,
    ChannelEnd,
    ChannelWindow,
    Facts,
    Heartbeat,
    Hello,
    Images,
    LogChunk,
    Measures,
    Purpose,
    Report,
    Strays,
    VolumesGone,
)

_log = structlog.get_logger(__name__)
_FOLLOW_SECONDS = 30.0
_HELD_BACK_SECONDS = 0.05
_STARTED = frozenset({TaskStatus.RUNNING, events.RENEWED})
"""Kinds of events of tasks that others of their session may wait for."""
_HELLOS_AT_ONCE = 8
"""Agents that connect at the same time; more of them queue, since the rest of the server needs the database as well."""
_MAX_QUEUED_HELLOS = 10_000
_HELLO_WAIT_SECONDS = 300.0


class AgentHub:
    def __init__(
        self,
        database: Database,
        signal: Signal,
        pace: Pace | None = None,
        quarantine_grace: timedelta = timedelta(hours=1),
        decryption: SecretDecryption | None = None,
        server_url: str | None = None,
    ) -> None:
        """Without `decryption` no task gets secrets. `server_url`: address of this server for other servers."""
        self._database = database
        self._signal = signal
        self._quarantine_grace = quarantine_grace
        self._server_url = server_url
        self._sessions: dict[UUID, list[AgentSession]] = {}
        """By node, the newest last. All get messages: a broken one may be noticed after its agent connected again."""
        self._config = AgentConfig(pace or Pace())
        self._output = TaskOutput()
        self._channels = TaskChannels()
        self.measured = MeasuredUse()
        self._heartbeats = HeartbeatWriter(database, self._sessions)
        self._desired = DesiredStateSender(database, decryption or SecretDecryption(SecretBox(None)))
        self.hellos = FairQueue(
            _HELLOS_AT_ONCE,
            queue_length=_MAX_QUEUED_HELLOS,
            wait_seconds=_HELLO_WAIT_SECONDS,
            max_queued_flows=_MAX_QUEUED_HELLOS,
        )
        """Limits the agents that connect at the same time, by address until they are authenticated, then by node."""

    # --- loops of this process ---

    async def follow(self) -> None:
        """Notify sessions of nodes whose tasks changed, and all when the agents' configuration did, indefinitely."""
        outage = Outage("The database", "agents get no new orders")
        position: int | None = None
        seen = self._signal.count
        while True:
            if not self._sessions:
                # An agent that connects gets everything anyway, and its connection is a commit.
                position = None
                seen = await self._signal.wait(_FOLLOW_SECONDS, seen)
                continue
            stale = not self._config.fresh
            try:
                async with self._database.read() as connection:
                    if position is None:
                        position = await events.position(connection)
                        self._notify(self._sessions)
                        # The next read finds out whether there are events that are not readable yet.
                        stale = held_back = True
                    else:
                        new_events, position, held_back = await events.since(connection, position)
                        self._notify(event.node_id for event in new_events if event.node_id is not None)
                        started = {
                            e.workload_id for e in new_events if e.workload_id is not None and e.kind in _STARTED
                        }
                        self._notify(await desired_tasks.waiting_for_others(connection, started))
                        self._notify_waiting_for(
                            event.object_id for event in new_events if event.kind == events.SECRETS
                        )
                        if new_events:
                            # Strays are handled elsewhere.
                            strays = (node_id for node_id, own in self._sessions.items() if any(s.strays for s in own))
                            self._notify(strays)
                        stale = stale or any(
                            event.noun == "pool" and event.kind != events.PLACED for event in new_events
                        )
                    if stale and await self._config.read(connection):
                        self._notify(self._sessions, orders=False)
            except Exception as error:
                outage.failed(error)
                if not is_temporary(error):
                    _log.exception("Cannot follow the event feed for the agents; trying again")
                position = None
                await asyncio.sleep(1.0)
                continue
            outage.over()
            seen = await self._signal.wait(_HELD_BACK_SECONDS if held_back else _FOLLOW_SECONDS, seen)

    async def write_heartbeats(self) -> None:
        await self._heartbeats.run()

    def _notify(self, node_ids: Iterable[UUID], *, orders: bool = True) -> None:
        for node_id in node_ids:
            for session in self._sessions.get(node_id, ()):
                session.notify(orders=orders)

    def _notify_waiting_for(self, projects: Iterable[UUID]) -> None:
        """Notify the sessions with unstarted tasks of these projects: their secrets have changed."""
        changed = set(projects)
        for session in (session for own in self._sessions.values() for session in own if changed):
            if any(each.project_id in changed for each in session.last_secrets.values()):
                session.notify()

    # --- one agent's stream ---

    async def connect(self, session: AgentSession, hello: Hello) -> None:
        facts = hello.facts

        async def work(connection: Connection) -> list[UUID]:
            await nodes.connected(
                connection,
                session.node_id,
                capacity=facts.capacity,
                architecture=facts.architecture,
                runtimes=facts.runtimes,
                enforces=facts.enforces,
                boot_id=facts.boot_id,
                agent_version=facts.agent_version,
                multi_tenant=facts.multi_tenant,
                isolation=facts.isolation,
                isolation_reason=facts.isolation_reason,
                named_devices=devices_of(facts),
                licence=facts.licence,
                machine_image=facts.machine_image,
                machine_image_version=facts.machine_image_version,
                address=facts.address,
                server_url=self._server_url,
                now=now(),
            )
            return await quarantine_strays(connection, session, hello.tasks, grace=self._quarantine_grace)

        with await self.hellos.seat(f"node {session.node_id}", patient=True):
            new = await self._database.write(work)
            # Here, where a failure ends the stream: an agent that is not welcomed says nothing and waits.
            if not self._config.fresh:
                async with self._database.read() as connection:
                    await self._config.read(connection)
        session.protocol = hello.protocol
        log_quarantined(new, session)
        self._sessions.setdefault(session.node_id, []).append(session)
        session.notify()
        metrics.agents_connected.set(len(self._sessions))
        _log.info(f"Agent of node {session.node_name} connected")

    def disconnect(self, session: AgentSession) -> None:
        session.open = False
        self._output.end(session)
        self._channels.end(session)
        own = self._sessions.get(session.node_id, [])
        if session not in own:
            return
        own.remove(session)
        if not own:
            del self._sessions[session.node_id]
            self.measured.forget(session, pool=self._config.pool_names.get(session.pool_id, ""))
        metrics.agents_connected.set(len(self._sessions))
        _log.info(f"Agent of node {session.node_name} disconnected")

    async def send_updates(self, session: AgentSession) -> None:
        """Send the welcome and the desired state whenever they change, until cancelled."""
        while True:
            await session.changed.wait()
            session.changed.clear()
            await self._send_welcome(session)
            if session.orders_changed:
                session.orders_changed = False
                await self._desired.send(session)

    async def _send_welcome(self, session: AgentSession) -> None:
        if session.protocol < WELCOMED_SINCE:
            return
        welcome = self._config.welcome(session.pool_id)
        if welcome != session.last_welcome:
            await session.send(welcome)
            session.last_welcome = welcome

    def beat(self, session: AgentSession, message: Heartbeat) -> None:
        self._heartbeats.add(session, message)

    def agent_tasks(self, *, without: UUID | None = None) -> list[BackgroundTaskState]:
        """Return the background tasks of connected agents that have failed, each named after its node.

        `without` is the node of the agent inside this server, whose tasks the server reports itself.
        """
        newest = (own[-1] for node_id, own in self._sessions.items() if node_id != without)
        found = {f"{session.node_name}: {task.name}": task for session in newest for task in session.background}
        return [msgspec.structs.replace(task, name=name) for name, task in found.items()]

    def measures(self, session: AgentSession, message: Measures) -> None:
        self.measured.take(session, message, pool=self._config.pool_names.get(session.pool_id, ""))

    async def strays(self, session: AgentSession, message: Strays) -> None:
        """Quarantine tasks that run on a node without being assigned to it."""
        try:
            new = await self._database.write(
                lambda connection: quarantine_strays(connection, session, message.tasks, grace=self._quarantine_grace)
            )
        except NotFound:
            # The node was removed: its agent is dismissed at its next heartbeat.
            return
        log_quarantined(new, session)
        session.strays = frozenset(task.task_id for task in message.tasks)
        session.notify()

    async def images(self, session: AgentSession, message: Images) -> None:
        """Store the images that are on the node, so that tasks go where theirs are."""
        with suppress(NotFound):
            await self._database.write(lambda each: nodes.set_images(each, session.node_id, message.images, now()))

    async def volumes_gone(self, session: AgentSession, message: VolumesGone) -> None:
        """Forget volumes that the node has deleted."""
        await self._database.write(lambda c: volumes.gone(c, session.node_id, message.volumes, now()))

    async def report(self, session: AgentSession, message: Report) -> None:
        await apply_report(self._database, session, message)

    # --- output of tasks ---

    def stream(
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
        return self._output.stream(
            self._newest(node_id),
            task_id,
            container,
            tail=tail,
            follow=follow,
            since=since,
            timestamps=timestamps,
        )

    def output(self, session: AgentSession, chunk: LogChunk) -> None:
        self._output.take(session, chunk)

    # --- connections to tasks ---

    def check(self, node_id: UUID) -> None:
        """Raise Unavailable if the node's agent is too old or not connected to this process."""
        able(self._newest(node_id))

    @asynccontextmanager
    async def open(
        self, task_id: UUID, node_id: UUID, container: str | None, purpose: Purpose
    ) -> AsyncIterator[Channel]:
        """Open a channel for the block, during which the task is not idle."""
        with self.measured.accessing(task_id):
            async with self._channels.open(self._newest(node_id), task_id, container, purpose) as channel:
                yield channel

    def channel(self, session: AgentSession, message: ChannelData | ChannelWindow | ChannelEnd) -> None:
        self._channels.take(session, message)

    def close_channels(self) -> None:
        """End all channels because the server stops."""
        self._channels.close_channels()

    def _newest(self, node_id: UUID) -> AgentSession | None:
        own = self._sessions.get(node_id)
        return own[-1] if own else None


def devices_of(facts: Facts) -> dict[str, list[Device]]:
    return {
        slot: [Device(device.index, device.capacity, device.model, device.memory) for device in named]
        for slot, named in facts.devices.items()
    }
