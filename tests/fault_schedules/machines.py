"""Simulated machines and their agents: the agent's own rules (`reconcile`, `Outbox`) over simulated processes.

Processes on a machine survive its agent. Starting a task twice, or beyond the machine's capacity, is a violation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from uuid import UUID

from mooring.agent.connection.outbox import Outbox
from mooring.agent.reconcile import Plan, living, reconcile
from mooring.agent.runtimes.contract import Observed
from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.hub import AgentHub
from mooring.wire.agents.agent_protocol import (
    PROTOCOL,
    Desired,
    Facts,
    FromAgent,
    FromServer,
    Heartbeat,
    Hello,
    LivingTask,
    Received,
    Report,
    Strays,
    Welcome,
)
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.fault_schedules.loop import Process

_WAY_SECONDS = 0.01
_SCAN_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
"""Seconds between two iterations of an agent. Changes in between go into one report."""
_ENDED = Observed(status="FAILED", gone=True, code="killed", reason="the machine went down")


def credential_of(name: str) -> str:
    return f"credential of {name}"


class Stream:
    """The messages between an agent and a server. Neither end notices at once that the other is gone."""

    def __init__(self, agent: Process, server: Process) -> None:
        self.agent, self.server = agent, server
        self.to_server: asyncio.Queue[FromAgent | None] = asyncio.Queue()
        self.to_agent: asyncio.Queue[FromServer | None] = asyncio.Queue()
        self.lost = False
        """Messages from here on are lost."""

    async def tell_agent(self, message: FromServer) -> None:
        if not self.lost:
            self.agent.call_later(_WAY_SECONDS, self.to_agent.put_nowait, message)

    def tell_server(self, message: FromAgent) -> None:
        if not self.lost:
            self.server.call_later(_WAY_SECONDS, self.to_server.put_nowait, message)

    def close(self, after_seconds: float = 0.0) -> None:
        self.lost = True
        self.agent.call_later(after_seconds, self.to_agent.put_nowait, None)
        self.server.call_later(after_seconds, self.to_server.put_nowait, None)


async def serve(hub: AgentHub, stream: Stream, node_id: UUID, pool_id: UUID, name: str) -> None:
    """A server's end of a stream, as the API's route implements it."""
    session = AgentSession(node_id, name, pool_id, credential_of(name), stream.tell_agent)
    sender: asyncio.Task[None] | None = None
    try:
        while (message := await stream.to_server.get()) is not None:
            match message:
                case Hello():
                    await hub.connect(session, message)
                    sender = sender or asyncio.create_task(hub.send_updates(session))
                case Heartbeat():
                    hub.beat(session, message)
                case Report():
                    await hub.report(session, message)
                    await stream.tell_agent(Received(number=message.number))
                case Strays():
                    await hub.strays(session, message)
            if sender is not None and sender.done():
                await sender
    except ConnectionError:
        pass
    finally:
        if sender is not None:
            sender.cancel()
        hub.disconnect(session)
        stream.close(_WAY_SECONDS)


@dataclass
class _Running:
    order: DesiredTask
    seen: Observed


class Machine:
    """The actual containers of a machine. Only a restart of the machine loses them."""

    def __init__(
        self,
        name: str,
        node_id: UUID,
        capacity: dict[str, int],
        random: Random,
        started: dict[UUID, str],
        report_violation: Callable[[str], None],
    ) -> None:
        """`started` records every task ever started, and where. All machines share it."""
        self.name, self.node_id, self.capacity = name, node_id, capacity
        self.term = 0
        self.changed: Callable[[], None] = lambda: None
        self._random = random
        self._started = started
        self._accuse = report_violation
        self._tasks: dict[UUID, _Running] = {}
        self._process = Process(f"machine {name}")

    @property
    def observed(self) -> dict[UUID, Observed]:
        return {task_id: task.seen for task_id, task in self._tasks.items()}

    @property
    def living(self) -> list[UUID]:
        return [task_id for task_id, task in self._tasks.items() if not task.seen.gone]

    def start(self, order: DesiredTask) -> None:
        if order.task_id in self._started:
            self._accuse(f"task {order.task_id} is started on {self.name} after {self._started[order.task_id]}")
        self._started[order.task_id] = self.name
        self._tasks[order.task_id] = _Running(order, Observed(status="PREPARING"))
        for slot, most in self.capacity.items():
            taken = sum(_asked(task.order, slot) for task in self._tasks.values() if not task.seen.gone)
            if taken > most:
                self._accuse(f"{taken} of {most} {slot} are taken on {self.name}")
        self._process.call_later(self._random.uniform(0.05, 1.5), self._run, order)

    def stop(self, task_id: UUID, grace_seconds: int | None) -> None:
        self._see(task_id, stop_grace_seconds=grace_seconds or 0)
        self._process.call_later(self._random.uniform(0.05, 1.0), self._end, task_id, "CANCELLED", 143, "stopped")

    def acknowledge(self, task_id: UUID) -> None:
        self._see(task_id, acknowledged=True)

    def restart(self) -> None:
        """Restart the machine: all its processes are gone."""
        for task in self._tasks.values():
            if not task.seen.ended:
                task.seen = replace(_ENDED, ran=task.seen.ran)

    def _run(self, order: DesiredTask) -> None:
        """Start a task whose command gives its duration in seconds and its exit."""
        if self._tasks[order.task_id].seen.ended:
            return
        self._see(order.task_id, status="RUNNING", ran=True)
        seconds, code = order.containers[0].command
        if seconds != "forever":
            status = "SUCCEEDED" if code == "0" else "FAILED"
            self._process.call_later(float(seconds), self._end, order.task_id, status, int(code), "")

    def _end(self, task_id: UUID, status: str, exit_code: int, code: str) -> None:
        if not self._tasks[task_id].seen.ended:
            self._see(task_id, status=status, exit_code=exit_code, code=code, gone=True)

    def _see(self, task_id: UUID, **changes: object) -> None:
        task = self._tasks[task_id]
        task.seen = replace(task.seen, **changes)  # type: ignore[arg-type]
        self.changed()


def _asked(order: DesiredTask, slot: str) -> int:
    return sum(container.slots.get(slot, 0) for container in order.containers)


class SimulatedAgent:
    """An agent process on a machine. After a restart it knows only the machine's own state."""

    def __init__(
        self, machine: Machine, process: Process, connect: Callable[[SimulatedAgent], Stream], random: Random
    ) -> None:
        self.machine, self.process = machine, process
        self.stream: Stream | None = None
        self._connect = connect
        self._random = random
        self._outbox = Outbox()
        self._orders: Desired | None = None
        self._received_strays: tuple[LivingTask, ...] = ()
        self._prepared: set[UUID] = set()
        self._welcomed: Stream | None = None
        self._beat_seconds = 1.0
        self._signal = asyncio.Event()

    async def run(self) -> None:
        self.machine.changed = self._signal.set
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_reconciled())
            group.create_task(self._keep_beating())
            while True:
                await self._converse()
                await asyncio.sleep(self._random.uniform(0.1, 1.0))

    async def _converse(self) -> None:
        stream = self._connect(self)
        self._outbox.connected()
        facts = Facts(
            hostname=self.machine.name,
            architecture="x86_64",
            capacity=self.machine.capacity,
            runtimes=["process"],
            boot_id="boot",
            agent_version="1",
            multi_tenant=True,
        )
        alive = living(self.machine.observed)
        stream.tell_server(Hello(protocol=PROTOCOL, facts=facts, tasks=list(alive)))
        self._received_strays = ()
        heard = False
        while (message := await stream.to_agent.get()) is not None:
            if isinstance(message, Desired) and message.term >= self.machine.term:
                self.machine.term, self._orders = message.term, message
                heard = True
            elif isinstance(message, Welcome):
                self._welcomed, self._beat_seconds = stream, message.heartbeat_seconds
            elif isinstance(message, Received):
                for task_id in self._outbox.received(message.number):
                    if task_id in self.machine.observed:
                        self.machine.acknowledge(task_id)
            self.stream = stream if heard else None
            self._signal.set()
        self.stream = self._welcomed = None

    async def _keep_beating(self) -> None:
        while True:
            if self._welcomed is not None:
                self._welcomed.tell_server(Heartbeat(cpu_percent=1, memory_percent=1, disk_percent=1))
            await asyncio.sleep(self._beat_seconds)

    async def _keep_reconciled(self) -> None:
        while True:
            self._signal.clear()
            if self._orders is not None:
                self._reconcile(self._orders)
            with suppress(TimeoutError):
                async with asyncio.timeout(_SCAN_SECONDS):
                    await self._signal.wait()
            await asyncio.sleep(_PAUSE_SECONDS)

    def _reconcile(self, orders: Desired) -> None:
        self._prepared &= {order.task_id for order in orders.tasks}
        plan = reconcile(orders.tasks, self.machine.observed, prepared=self._prepared, end=frozenset(orders.end))
        if self.stream is not None:
            self._tell(self.stream, plan)
        for stop in plan.stop:
            self.machine.stop(stop.task_id, stop.grace_seconds)
        for order in plan.prepare:
            self._prepared.add(order.task_id)
            self._signal.set()
        for order in plan.start:
            self.machine.start(order)

    def _tell(self, stream: Stream, plan: Plan) -> None:
        report = self._outbox.offer(plan.findings)
        if report is not None:
            stream.tell_server(report)
            if self._random.random() < 0.2:
                # Any message may be sent twice.
                stream.tell_server(report)
        if plan.strays != self._received_strays:
            stream.tell_server(Strays(tasks=list(plan.strays)))
            self._received_strays = plan.strays
