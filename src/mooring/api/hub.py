"""The agents connected to this process: who is there, what they are told, and what they report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import msgspec
import structlog
from fastapi import WebSocketDisconnect

from mooring import metrics
from mooring.api import confidences
from mooring.api.agent_session import AgentSession
from mooring.api.guidance import Guidance
from mooring.api.measured import MeasuredUse
from mooring.api.orders import desired_task
from mooring.api.task_channels import Channel, TaskChannels, able
from mooring.api.task_output import TaskOutput
from mooring.api.unsealing import Unsealing
from mooring.binding import preparing
from mooring.clock import now
from mooring.coordination.signals import Signal
from mooring.model import lifecycle
from mooring.model.devices import Device
from mooring.model.errors import NotFound
from mooring.model.heartbeats import Pace
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.sealing import Sealing
from mooring.store import (
    agents,
    attempts,
    events,
    heartbeats,
    holds,
    leadership,
    mounts,
    nodes,
    quarantine,
    transitions,
    volumes,
)
from mooring.store.changes import Applied, Change
from mooring.store.engine import Connection, Database
from mooring.store.loading import lock_owners
from mooring.store.narration import narrate
from mooring.wire.agent import (
    WELCOMED_SINCE,
    ChannelData,
    ChannelEnd,
    ChannelWindow,
    Desired,
    Facts,
    Heartbeat,
    Hello,
    Images,
    LivingTask,
    LogChunk,
    Measures,
    Purpose,
    Refused,
    RemovedVolume,
    Report,
    Strays,
    TaskReport,
    VolumesGone,
)

_log = structlog.get_logger(__name__)
_FOLLOW_SECONDS = 30.0
_HELD_BACK_SECONDS = 0.05
_BEAT_SECONDS = 1.0
_LONGEST_PROBLEM = 500
_LONGEST_ADDRESS = 63
_STARTED = frozenset({TaskStatus.RUNNING, events.RENEWED})
"""Kinds of events of tasks that others of their session may wait for."""
_HELLOS_AT_ONCE = 8
"""When all agents come at once, the others wait: the rest of the server needs the database as well."""


class AgentHub:
    def __init__(
        self,
        database: Database,
        signal: Signal,
        pace: Pace | None = None,
        quarantine_grace: timedelta = timedelta(hours=1),
        unsealing: Unsealing | None = None,
        server_url: str | None = None,
    ) -> None:
        """Without `unsealing` no task is told anything secret. `server_url`: where other servers reach this one."""
        self._database = database
        self._signal = signal
        self._quarantine_grace = quarantine_grace
        self._server_url = server_url
        self._unsealing = unsealing or Unsealing(Sealing(None))
        self._sessions: dict[UUID, list[AgentSession]] = {}
        """By node. A stream that is over may be found out later than its agent's next one: all of them are told."""
        self._guidance = Guidance(pace or Pace())
        self._output = TaskOutput()
        self._channels = TaskChannels()
        self.measured = MeasuredUse()
        self._beats: dict[UUID, heartbeats.Beat] = {}
        self.door = asyncio.Semaphore(_HELLOS_AT_ONCE)
        """Through which agents come in, a few at a time."""

    # --- loops of this process ---

    async def follow(self) -> None:
        """Wake the sessions of nodes whose tasks changed, and all where what agents are told did, for ever."""
        position: int | None = None
        seen = self._signal.count
        while True:
            stale = not self._guidance.fresh
            try:
                async with self._database.read() as connection:
                    if not self._sessions:
                        # Whoever connects is told everything anyway.
                        position = None
                    elif position is None:
                        position = await events.position(connection)
                        self._wake(self._sessions)
                        stale = True
                    else:
                        news, position = await events.since(connection, position)
                        self._wake(event.node_id for event in news if event.node_id is not None)
                        started = {e.workload_id for e in news if e.workload_id is not None and e.kind in _STARTED}
                        self._wake(await agents.waiting_for_others(connection, started))
                        self._wake_waiting_for(event.object_id for event in news if event.kind == events.SECRETS)
                        if news:
                            # What becomes of a stray happens elsewhere.
                            strays = (node_id for node_id, own in self._sessions.items() if any(s.strays for s in own))
                            self._wake(strays)
                        stale = stale or any(event.noun == "pool" and event.kind != events.PLACED for event in news)
                    if stale and await self._guidance.read(connection):
                        self._wake(self._sessions, orders=False)
                    held_back = position is not None and await events.held_back(connection, position)
            except Exception:
                _log.exception("Cannot follow the event feed for the agents; trying again")
                position = None
                await asyncio.sleep(1.0)
                continue
            seen = await self._signal.wait(_HELD_BACK_SECONDS if held_back else _FOLLOW_SECONDS, seen)

    async def write_heartbeats(self) -> None:
        """Write the heartbeats of all agents together, once a second. Few of them are worth waking anybody."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            beats, self._beats = list(self._beats.values()), {}
            if not beats:
                continue
            try:
                taken = await self._database.write(partial(_write_beats, beats), wakes=False)
                if taken.changed:
                    self._database.wake()
                for beat in beats:
                    if beat.node_id in taken.over:
                        await self._dismiss(beat)
            except Exception:
                _log.exception("Cannot write heartbeats; trying again with the next ones")

    async def _dismiss(self, beat: heartbeats.Beat) -> None:
        """The node was removed or joined again elsewhere: who beat for it is told to end its tasks and go."""
        for session in self._sessions.get(beat.node_id, [])[::-1]:
            if session.credential_hash == beat.credential_hash:
                message = f"node {session.node_name} was removed or has joined again with another credential"
                with suppress(WebSocketDisconnect):  # it has gone by itself
                    await session.send(Refused(code="credential-refused", message=message))

    def _wake(self, node_ids: Iterable[UUID], *, orders: bool = True) -> None:
        for node_id in node_ids:
            for session in self._sessions.get(node_id, ()):
                session.wake(orders=orders)

    def _wake_waiting_for(self, projects: Iterable[UUID]) -> None:
        """Tasks of these projects that have not started are told what is secret as it is now."""
        changed = set(projects)
        for session in (session for own in self._sessions.values() for session in own if changed):
            if any(each.project_id in changed for each in session.last_confidences.values()):
                session.wake()

    # --- one agent's stream ---

    async def enter(self, session: AgentSession, hello: Hello) -> None:
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
                named_devices=devices_of(facts),
                licence=facts.licence,
                machine_image=facts.machine_image,
                machine_image_version=facts.machine_image_version,
                address=facts.address,
                server_url=self._server_url,
                now=now(),
            )
            return await self._quarantine(connection, session, hello.tasks)

        async with self.door:
            new = await self._database.write(work)
            # Here, where a failure ends the stream: an agent that is not welcomed says nothing and waits.
            if not self._guidance.known:
                async with self._database.read() as connection:
                    await self._guidance.read(connection)
        session.protocol = hello.protocol
        _tell_of(new, session)
        self._sessions.setdefault(session.node_id, []).append(session)
        session.wake()
        metrics.agents_connected.set(len(self._sessions))
        _log.info(f"Agent of node {session.node_name} connected")

    def leave(self, session: AgentSession) -> None:
        session.open = False
        self._output.end(session)
        self._channels.end(session)
        own = self._sessions.get(session.node_id, [])
        if session not in own:
            return
        own.remove(session)
        if not own:
            del self._sessions[session.node_id]
            self.measured.forget(session, pool=self._guidance.pool_names.get(session.pool_id, ""))
        metrics.agents_connected.set(len(self._sessions))
        _log.info(f"Agent of node {session.node_name} disconnected")

    async def keep_informed(self, session: AgentSession) -> None:
        """Send the welcome and the desired state on every change of them, until cancelled."""
        while True:
            await session.changed.wait()
            session.changed.clear()
            await self._send_welcome(session)
            if session.orders_changed:
                session.orders_changed = False
                await self._send_desired(session)

    async def _send_welcome(self, session: AgentSession) -> None:
        if session.protocol < WELCOMED_SINCE:
            return
        welcome = self._guidance.welcome(session.pool_id)
        if welcome != session.last_welcome:
            await session.send(welcome)
            session.last_welcome = welcome

    async def _send_desired(self, session: AgentSession) -> None:
        async with self._database.read() as connection:
            term = await leadership.current_term(connection)
            rows = await agents.desired(connection, session.node_id)
            end = await quarantine.to_end(connection, session.node_id, session.strays)
            together = await agents.together(connection, rows)
            mounted = await mounts.of_workloads(connection, {row.workload_id for row in rows})
            tasks = [
                desired_task(row, together.get(row.workload_id, ()), mounted.get(row.workload_id, ())) for row in rows
            ]
            removed = await volumes.to_delete(connection, session.node_id)
            kept = await confidences.read(connection, tasks)
        going = [RemovedVolume(volume_id=row.id, project_id=row.project_id, path=row.folder) for row in removed]
        desired = Desired(term=term, tasks=tasks, end=end, removed_volumes=going)
        if (desired, kept) == (session.last_desired, session.last_confidences):
            return
        whole, refused = self._unsealing.whole(session, tasks, kept)
        if refused:
            await self._refuse(session, refused)
        await session.send(msgspec.structs.replace(desired, tasks=whole))
        session.last_desired, session.last_confidences = desired, kept

    async def _refuse(self, session: AgentSession, refused: Mapping[UUID, Reason]) -> None:
        """Tasks that cannot be told what they need end before they start; their node says when nothing is left."""

        async def work(connection: Connection) -> Applied:
            await lock_owners(connection, list(refused))
            unstarted = await agents.unstarted(connection, session.node_id, list(refused))
            reasons = {task_id: refused[task_id] for task_id in unstarted}
            changes = [Change(task_id, TaskStatus.FAILED, reason, freed=False) for task_id, reason in reasons.items()]
            return await _settle(connection, [], reasons, changes, actor="secrets", at=now())

        narrate(await self._database.write(work))

    def beat(self, session: AgentSession, message: Heartbeat) -> None:
        self._beats[session.node_id] = heartbeats.Beat(
            session.node_id,
            session.credential_hash,
            message.cpu_percent,
            message.memory_percent,
            message.disk_percent,
            _clean(message.problem) if message.problem else None,
        )

    def measures(self, session: AgentSession, message: Measures) -> None:
        self.measured.take(session, message, pool=self._guidance.pool_names.get(session.pool_id, ""))

    async def strays(self, session: AgentSession, message: Strays) -> None:
        """Take in which tasks live on a node that was not told to run them."""
        try:
            new = await self._database.write(lambda connection: self._quarantine(connection, session, message.tasks))
        except NotFound:
            # The node was removed: its agent is dismissed at its next heartbeat.
            return
        _tell_of(new, session)
        session.strays = frozenset(task.task_id for task in message.tasks)
        session.wake()

    async def images(self, session: AgentSession, message: Images) -> None:
        """Take in which images are on the node, so that tasks go where theirs are."""
        with suppress(NotFound):
            await self._database.write(lambda each: nodes.set_images(each, session.node_id, message.images, now()))

    async def volumes_gone(self, session: AgentSession, message: VolumesGone) -> None:
        """What its node deleted as it was told exists no longer."""
        await self._database.write(lambda c: volumes.gone(c, session.node_id, message.volumes, now()))

    async def _quarantine(
        self, connection: Connection, session: AgentSession, told: Sequence[LivingTask]
    ) -> list[UUID]:
        """Keep what the database does not know, and nothing new from the node; which of it was not kept before."""
        at = now()
        await nodes.lock(connection, session.node_id)
        living = {task.task_id: _clean(task.workload_name) for task in told}
        new = await quarantine.take(connection, session.node_id, living, grace=self._quarantine_grace, now=at)
        if await quarantine.reasons(connection, [session.node_id]):
            await nodes.close(connection, session.node_id, quarantine.REASON, now=at)
        return new

    async def report(self, session: AgentSession, message: Report) -> None:
        """Take in what became of tasks. An agent speaks for the tasks of its own node only."""
        if not message.tasks:
            return

        async def work(connection: Connection) -> Applied:
            at = now()
            told = [task.task_id for task in message.tasks]
            # All workloads before any task or node, as everywhere; and no task moves to another node from here on.
            await lock_owners(connection, told)
            own = await agents.owned(connection, session.node_id, told)
            reports = [task for task in message.tasks if task.task_id in own]
            actor = f"agent:{session.node_name}"
            prepared = [task.task_id for task in reports if task.status == "PREPARED"]
            refused = {task.task_id: _reason(task) for task in reports if task.status == "FAILED"}
            changes = [change for task in reports if (change := _change(task)) is not None]
            applied = await _settle(connection, prepared, refused, changes, actor=actor, at=at)
            progress = {task.task_id: _reason(task) for task in reports if task.status == "PREPARING" and task.reason}
            await agents.note_progress(connection, progress)
            await holds.prolong(connection, [task.task_id for task in reports if task.heard], at)
            gone = [task.task_id for task in reports if task.gone]
            if gone:
                await transitions.free_lost(connection, gone, at)
            return applied

        applied = await self._database.write(work)
        narrate(applied)
        for change, _ in applied.tasks:
            metrics.agent_reports.labels(change.new.value).inc()

    # --- output of tasks ---

    def stream(
        self, task_id: UUID, node_id: UUID, *, container: str, tail: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        return self._output.stream(self._newest(node_id), task_id, container, tail=tail, follow=follow)

    def output(self, session: AgentSession, chunk: LogChunk) -> None:
        self._output.take(session, chunk)

    # --- ways into tasks ---

    def check(self, node_id: UUID) -> None:
        """Unavailable where the node's agent is not connected to this very process, or too old."""
        able(self._newest(node_id))

    @asynccontextmanager
    async def open(
        self, task_id: UUID, node_id: UUID, container: str | None, purpose: Purpose
    ) -> AsyncIterator[Channel]:
        """A channel for the block, during which the task is not idle."""
        with self.measured.inside(task_id):
            async with self._channels.open(self._newest(node_id), task_id, container, purpose) as channel:
                yield channel

    def channel(self, session: AgentSession, message: ChannelData | ChannelWindow | ChannelEnd) -> None:
        self._channels.take(session, message)

    def hang_up(self) -> None:
        """The server stops: all ways in end with that reason."""
        self._channels.hang_up()

    def _newest(self, node_id: UUID) -> AgentSession | None:
        own = self._sessions.get(node_id)
        return own[-1] if own else None


async def _settle(
    connection: Connection,
    prepared: Sequence[UUID],
    refused: Mapping[UUID, Reason],
    changes: Sequence[Change],
    *,
    actor: str,
    at: datetime,
) -> Applied:
    """What became of tasks: of those that were only to be made ready first, then of the others."""
    held = await preparing.take_reports(connection, prepared, refused, actor=actor, now=at)
    settled = {change.task_id for change, _ in held.tasks}
    others = [change for change in changes if change.task_id not in settled]
    applied = await transitions.apply(connection, others, actor=actor, now=at)
    applied.tasks += held.tasks
    applied.workloads += held.workloads
    await attempts.record_starts(connection, applied, at)
    return applied


def devices_of(facts: Facts) -> dict[str, list[Device]]:
    return {
        slot: [Device(device.index, device.capacity, device.model, device.memory) for device in named]
        for slot, named in facts.devices.items()
    }


def _clean(words: str) -> str:
    """Written together with what others say, and shown: no sign of it may be one that the database refuses."""
    return "".join(sign for sign in words if sign.isprintable())[:_LONGEST_PROBLEM]


def _tell_of(quarantined: Iterable[UUID], session: AgentSession) -> None:
    for task_id in quarantined:
        metrics.quarantined.inc()
        _log.warning(f"Task {task_id} runs on node {session.node_name}, and the database does not know it")


async def _write_beats(beats: list[heartbeats.Beat], connection: Connection) -> heartbeats.Taken:
    return await heartbeats.take(connection, beats, now())


def _reason(report: TaskReport) -> Reason:
    return Reason(report.code or "agent", report.reason[:500] or "the agent gave no reason", "agent", "change")


def _change(report: TaskReport) -> Change | None:
    if report.status == "PREPARED" or report.heard:
        return None
    status = TaskStatus(report.status)
    if status not in lifecycle.AGENT_REPORTS or (lifecycle.is_end(status) and not report.gone):
        # Its end counts when nothing is left of it on the node.
        return None
    # Who asked for the end has said why, and that is kept.
    reason = _reason(report) if report.reason and report.code != "stopped" else None
    return Change(
        report.task_id,
        status,
        reason,
        exit_code=report.exit_code,
        restarts=report.restarts,
        freed=report.gone,
        ready=report.ready,
        digests={_clean(name): _clean(digest) for name, digest in report.digests.items()},
        address=_clean(report.address)[:_LONGEST_ADDRESS] if report.address else None,
    )
