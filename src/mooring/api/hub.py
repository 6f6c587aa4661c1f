"""The agents connected to this process: who is there, whose desired state changed, and whose output is being read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Literal
from uuid import UUID

import structlog

from mooring import metrics
from mooring.binding import preparing
from mooring.clock import now
from mooring.coordination.signals import Signal
from mooring.model import lifecycle
from mooring.model.arrays import Array
from mooring.model.devices import Device
from mooring.model.errors import Unavailable
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads import Kind
from mooring.store import agents, attempts, events, leadership, nodes, transitions
from mooring.store.changes import Applied, Change
from mooring.store.engine import Connection, Database
from mooring.store.ids import new_id
from mooring.store.loading import lock_owners
from mooring.store.narration import narrate
from mooring.wire.agent import (
    ContainerSpec,
    Desired,
    DesiredTask,
    EndWarning,
    Facts,
    FromServer,
    Heartbeat,
    Hello,
    LogCancel,
    LogChunk,
    LogRequest,
    Owner,
    Refused,
    Report,
    TaskReport,
)

_log = structlog.get_logger(__name__)
_FOLLOW_SECONDS = 30.0
_HELD_BACK_SECONDS = 0.05
_BEAT_SECONDS = 1.0
_LONGEST_UNREAD_BYTES = 32 * 1024 * 1024

Send = Callable[[FromServer], Coroutine[Any, Any, None]]


@dataclass(eq=False, slots=True)
class AgentSession:
    """One open stream of one agent."""

    node_id: UUID
    node_name: str
    credential_hash: str
    send: Send
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    last_desired: Desired | None = None


@dataclass(slots=True)
class _Reader:
    """Someone who reads a task's output. The stream's reader never waits for it: it may have much unread, not all."""

    session: AgentSession
    chunks: asyncio.Queue[LogChunk] = field(default_factory=asyncio.Queue)
    unread_bytes: int = 0


class AgentHub:
    def __init__(self, database: Database, signal: Signal) -> None:
        self._database = database
        self._signal = signal
        self._sessions: dict[UUID, AgentSession] = {}
        self._readers: dict[UUID, _Reader] = {}
        self._beats: dict[UUID, nodes.Beat] = {}

    # --- loops of this process ---

    async def follow(self) -> None:
        """Wake the sessions of nodes whose tasks changed, for ever."""
        position: int | None = None
        seen = self._signal.count
        while True:
            try:
                async with self._database.read() as connection:
                    if not self._sessions:
                        # Whoever connects is told everything anyway.
                        position = None
                    elif position is None:
                        position = await events.position(connection)
                        self._wake(self._sessions)
                    else:
                        news, position = await events.since(connection, position)
                        self._wake(event.node_id for event in news if event.node_id is not None)
                    held_back = position is not None and await events.held_back(connection, position)
            except Exception:
                _log.exception("Cannot follow the event feed for the agents; trying again")
                position = None
                await asyncio.sleep(1.0)
                continue
            seen = await self._signal.wait(_HELD_BACK_SECONDS if held_back else _FOLLOW_SECONDS, seen)

    async def write_heartbeats(self) -> None:
        """Write the heartbeats of all agents together, once a second."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            beats, self._beats = list(self._beats.values()), {}
            if not beats:
                continue
            try:
                over = await self._database.write(partial(_write_beats, beats))
                for node_id in over:
                    await self._dismiss(node_id)
            except Exception:
                _log.exception("Cannot write heartbeats; trying again with the next ones")

    async def _dismiss(self, node_id: UUID) -> None:
        """The node was removed or joined again elsewhere: its agent is told to end its tasks and go."""
        session = self._sessions.get(node_id)
        if session is not None:
            message = f"node {session.node_name} was removed or has joined again with another credential"
            await session.send(Refused(code="credential-refused", message=message))

    def _wake(self, node_ids: Iterable[UUID]) -> None:
        for node_id in node_ids:
            session = self._sessions.get(node_id)
            if session is not None:
                session.changed.set()

    # --- one agent's stream ---

    async def enter(self, session: AgentSession, hello: Hello) -> None:
        facts = hello.facts

        async def work(connection: Connection) -> None:
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
                now=now(),
            )

        await self._database.write(work)
        self._sessions[session.node_id] = session
        session.changed.set()
        metrics.agents_connected.set(len(self._sessions))
        _log.info(f"Agent of node {session.node_name} connected")

    def leave(self, session: AgentSession) -> None:
        if self._sessions.get(session.node_id) is not session:
            return
        del self._sessions[session.node_id]
        metrics.agents_connected.set(len(self._sessions))
        _log.info(f"Agent of node {session.node_name} disconnected")
        gone = LogChunk(request_id=session.node_id, end=True, error="the agent's connection was lost")
        for reader in self._readers.values():
            if reader.session is session:
                reader.chunks.put_nowait(gone)

    async def send_desired(self, session: AgentSession) -> None:
        """Send the desired state on every change of it, until cancelled."""
        while True:
            await session.changed.wait()
            session.changed.clear()
            async with self._database.read() as connection:
                term = await leadership.current_term(connection)
                rows = await agents.desired(connection, session.node_id)
            desired = Desired(term=term, tasks=[_desired_task(row) for row in rows])
            if desired != session.last_desired:
                await session.send(desired)
                session.last_desired = desired

    def beat(self, session: AgentSession, message: Heartbeat) -> None:
        self._beats[session.node_id] = nodes.Beat(
            session.node_id,
            session.credential_hash,
            message.cpu_percent,
            message.memory_percent,
            message.disk_percent,
            message.problem[:500] if message.problem else None,
        )

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
            held = await preparing.take_reports(connection, prepared, refused, actor=actor, now=at)
            settled = {change.task_id for change, _ in held.tasks}
            changes = [
                change for task in reports if task.task_id not in settled and (change := _change(task)) is not None
            ]
            applied = await transitions.apply(connection, changes, actor=actor, now=at)
            applied.tasks += held.tasks
            applied.workloads += held.workloads
            await attempts.record_starts(connection, applied, at)
            gone = [task.task_id for task in reports if task.gone]
            if gone:
                await transitions.free_lost(connection, gone, at)
            return applied

        applied = await self._database.write(work)
        narrate(applied)
        for change, _ in applied.tasks:
            metrics.agent_reports.labels(change.new.value).inc()

    # --- output of tasks ---

    async def stream(self, task_id: UUID, node_id: UUID, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        session = self._sessions.get(node_id)
        if session is None:
            raise Unavailable("the task's node is not connected to this server at the moment", code="agent-unreachable")
        request_id = new_id()
        reader = self._readers[request_id] = _Reader(session)
        try:
            await session.send(LogRequest(request_id=request_id, task_id=task_id, tail=tail, follow=follow))
            while True:
                chunk = await reader.chunks.get()
                reader.unread_bytes -= len(chunk.data)
                if chunk.error:
                    raise Unavailable(f"the output cannot be read further: {chunk.error}", code="logs-unavailable")
                if chunk.data:
                    yield chunk.data
                if chunk.end:
                    return
        finally:
            del self._readers[request_id]
            if self._sessions.get(node_id) is session:
                await session.send(LogCancel(request_id=request_id))

    def output(self, session: AgentSession, chunk: LogChunk) -> None:
        reader = self._readers.get(chunk.request_id)
        if reader is None or reader.session is not session:
            return
        reader.unread_bytes += len(chunk.data)
        if reader.unread_bytes > _LONGEST_UNREAD_BYTES:
            chunk = LogChunk(request_id=chunk.request_id, end=True, error="the reader is too slow")
        reader.chunks.put_nowait(chunk)


def devices_of(facts: Facts) -> dict[str, list[Device]]:
    return {
        slot: [Device(device.index, device.capacity, device.model, device.memory) for device in named]
        for slot, named in facts.devices.items()
    }


async def _write_beats(beats: list[nodes.Beat], connection: Connection) -> set[UUID]:
    return await nodes.heartbeats(connection, beats, now())


def _reason(report: TaskReport) -> Reason:
    return Reason(report.code or "agent", report.reason[:500] or "the agent gave no reason", "agent", "change")


def _change(report: TaskReport) -> Change | None:
    if report.status == "PREPARED":
        return None
    status = TaskStatus(report.status)
    if status not in lifecycle.AGENT_REPORTS or (lifecycle.is_end(status) and not report.gone):
        # Its end counts when nothing is left of it on the node.
        return None
    # Who asked for the end has said why, and that is kept.
    reason = _reason(report) if report.reason and report.code != "stopped" else None
    return Change(
        report.task_id, status, reason, exit_code=report.exit_code, restarts=report.restarts, freed=report.gone
    )


def variables_of(kind: str, array: Mapping[str, int] | None, tasks: int, task_index: int) -> dict[str, str]:
    """What a task is told about its place in its workload: its index in an array, or its role in a session."""
    if array is not None:
        index = Array(**array, count=tasks).index(task_index)
        return {"MOORING_ARRAY_INDEX": str(index), "MOORING_ARRAY_COUNT": str(tasks)}
    if kind != Kind.SESSION:
        return {}
    return {"MOORING_TASK_ROLE": "sub" if task_index else "main", "MOORING_CLUSTER_SIZE": str(tasks)}


def _desired_task(row: Any) -> DesiredTask:
    template = row.template
    status = TaskStatus(row.status)
    run: Literal["prepare", "run"] = "prepare" if status is TaskStatus.RESERVED else "run"
    return DesiredTask(
        task_id=row.id,
        workload_id=row.workload_id,
        workload_name=row.name,
        index=row.task_index,
        attempt=row.attempt,
        action=run if status in lifecycle.ACTIVE else "stop",
        started=status is TaskStatus.RUNNING,
        owner=Owner(
            user_id=row.user_id,
            project_id=row.project_id,
            project_number=row.project_number,
            os_user=row.os_user,
        ),
        ports=[port for _, port in row.ports or ()],
        devices={slot: [(index, amount) for index, amount in shares] for slot, shares in (row.devices or {}).items()},
        variables=variables_of(row.kind, row.array, row.replicas, row.task_index),
        containers=[ContainerSpec(**container) for container in template["containers"]],
        restart=template["restart"],
        max_restarts=template["max_restarts"],
        grace_seconds=template["stop_grace_seconds"],
        warning=_warning(row),
    )


def _warning(row: Any) -> EndWarning | None:
    if row.deadline_at is None or row.warning_signal is None:
        return None
    at = row.deadline_at - timedelta(seconds=row.warning_seconds or 0)
    return EndWarning(at=at.timestamp(), signal=row.warning_signal)
