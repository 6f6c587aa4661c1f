"""A whole installation in one thread: servers with all their loops, agents on machines, and clients.

A seed decides the faults and their times.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import pytest
import structlog
import structlog.testing

from mooring import clock
from mooring.api.agents.hub import AgentHub
from mooring.controllers.leadership.leader import Leader
from mooring.controllers.upkeep.retention import Retention
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.model.events import Topic, Topics
from mooring.model.nodes.heartbeats import Pace
from mooring.scheduling.admission import registry
from mooring.scheduling.compiled import compilation
from mooring.scheduling.plugins import profiles
from mooring.services.administration.nodes import NodeAdmin
from mooring.services.submission.hooks import Hooks
from mooring.services.submission.submission import SubmissionService
from mooring.store.core import ids
from tests.fault_schedules import checks
from tests.fault_schedules.clients import SimulatedClient
from tests.fault_schedules.gate import Fate, Gate, GatedDatabase, InjectedFault, Role, Store
from tests.fault_schedules.leases import TTL_SECONDS, Leases, SimulatedElection
from tests.fault_schedules.loop import Process, SimulatedLoop
from tests.fault_schedules.machines import Machine, SimulatedAgent, Stream, serve
from tests.store.harness import Harness

SERVERS = 2
FAULTS_UNTIL_SECONDS = 4.0
REST_WITHIN_SECONDS = 90
PACE = Pace(least_seconds=1.0, grace_seconds=0.5, timeout_seconds=3.0)
RECONCILE_SECONDS = 15.0
_BAD_FATES = tuple(fate for fate in Fate if fate is not Fate.WELL)
_SPARED = (0, 0, 0, 1, 2, 4)
_DEPOSED = 0.4
"""The fraction of worlds in which a leader freezes at its first write, usually until another leads."""
_SIGNAL_SECONDS = 2.0
_LOOKED_AT = 0.25
"""The fraction of worlds whose records are also checked during the faults."""
_EXPECTED = (ConnectionError, LeadershipLost, TimeoutError)


@dataclass(frozen=True)
class Prepared:
    """The initial state of every world."""

    store: Store
    harness: Harness
    machines: dict[str, UUID]
    capacity: dict[str, int]


class Server:
    """A server process with a leader or standby, the agents' hub and the API."""

    def __init__(self, world: World, name: str) -> None:
        self.process = Process(name)
        self.signal = Signal()
        self.streams: list[Stream] = []
        self._signalled: set[Topic] = set()
        leaders, agents, clients = (
            GatedDatabase(world.gate, world.store, role) for role in (Role.STANDBY, Role.AGENTS, Role.CLIENTS)
        )
        self.leader = Leader(
            leaders,
            self.signal,
            name,
            SimulatedElection(world.leases, self.process),
            reconcile_interval=RECONCILE_SECONDS,
            pace=PACE,
            retention=Retention(),
        )
        leaders.leadership = self.leader.leadership
        self.hub = AgentHub(agents, self.signal, PACE)
        self.submissions = SubmissionService(clients, Hooks())
        self.nodes = NodeAdmin(clients, simulation_allowed=False)
        for work in (self.leader.run(), self.hub.follow(), self.hub.write_heartbeats()):
            self.process.start(work)

    def tell(self, after_seconds: float, topics: Topics) -> None:
        """Signal a commit. A pending signal covers all commits before it arrives."""
        if not self._signalled:
            self.process.call_later(after_seconds, self._signal)
        self._signalled |= topics or frozenset()

    def _signal(self) -> None:
        topics, self._signalled = frozenset(self._signalled), set()
        self.signal.send(topics)


class World:
    def __init__(self, loop: SimulatedLoop, prepared: Prepared, seed: int) -> None:
        self.random = Random(seed)
        self._nature = Process("nature")
        self.store = prepared.store
        self.harness = prepared.harness
        self.gate = Gate(loop, self.store, self.random)
        self.leases = Leases(self.random)
        self.servers: list[Server] = []
        self.started: dict[UUID, str] = {}
        self.machines = [
            Machine(name, node_id, prepared.capacity, self.random, self.started, self.gate.report_violation)
            for name, node_id in prepared.machines.items()
        ]
        self.agents: dict[str, SimulatedAgent] = {}
        self.client = SimulatedClient(self.harness.principal, self._any_server, self.random)
        self.faults = 0
        self._lost_signals = self.random.choice([0.0, 0.0, 0.3])
        self._workloads = 0
        self._over = False
        self.gate.on_commit += [self._tell_servers, lambda _topics: checks.check_machines(self)]

    # --- the run ---

    async def run(self) -> None:
        await self._set_up()
        for number in range(SERVERS):
            self._start_server(f"server {number}")
        for machine in self.machines:
            self._start_agent(machine)
        process = Process("client")
        asked = process.start(self._ask_for_things())
        await self._do_harm()
        if self.random.random() < _LOOKED_AT:
            await checks.check_books(self)
        self._heal()
        await asked
        for name in sorted(self.client.drained):
            await process.start(self.client.resume(name))
        await self._come_to_rest()

    async def _set_up(self) -> None:
        """Choose binding mode and preemption, which differ from world to world."""
        binding = self.random.choice(["optimistic", "optimistic", "pessimistic", "two_phase"])
        options: dict[str, Any] = {"binding": binding, "hold_seconds": 10}
        if self.random.random() < 0.4:
            options["preemption"] = {"mode": self.random.choice(["requeue", "terminate"])}
        await self.harness.set_options(**options)

    async def _ask_for_things(self) -> None:
        chance = self.random
        for _ in range(chance.choice([1, 1, 2])):
            await self.client.submit([self._request() for _ in range(chance.choice([1, 1, 2]))])
            await asyncio.sleep(chance.uniform(0, FAULTS_UNTIL_SECONDS))
            await self._change_something()

    async def _change_something(self) -> None:
        what = self.random.choice(["cancel", "scale", "drain", "resume", "nothing"])
        machine = self.random.choice(self.machines).name
        if what == "drain":
            await self.client.drain(machine, self.random.choice([None, 1]))
        elif what == "resume":
            await self.client.resume(machine)
        elif what in ("cancel", "scale") and self.client.accepted:
            name = self.random.choice(sorted(self.client.accepted))
            workload_id = self.client.accepted[name]
            if what == "cancel":
                await self.client.cancel(workload_id)
            elif name.startswith("service"):
                await self.client.scale(workload_id, self.random.randint(1, 3))

    def _request(self) -> dict[str, Any]:
        chance = self.random
        self._workloads += 1
        service = chance.random() < 0.3
        cpu = chance.choice(["500m", "1", "2"])
        request: dict[str, Any] = {
            "name": f"{'service' if service else 'job'}-{self._workloads}",
            "kind": "deployment" if service else "session",
            "replicas": chance.choice([1, 1, 2, 3]),
            "priority": chance.choice([10, 50]),
            "stop_grace_seconds": 1,
        }
        seconds = "forever" if service else f"{chance.uniform(0.1, 3):.3f}"
        code = "0" if service or chance.random() < 0.8 else "1"
        request["containers"] = [{"command": [seconds, code], "resources": {"cpu": cpu, "memory": "1Gi"}}]
        if not service:
            request["gang"] = chance.random() < 0.3
            request["retries"] = chance.choice([0, 0, 2])
        return request

    # --- faults ---

    async def _do_harm(self) -> None:
        """Choose some kinds of faults per world, so that frequent ones do not mask rare ones."""
        chance = self.random
        self.gate.pending_faults = self._plan_faults()
        harms = [self._kill_server, self._freeze_server, self._cut_off, self._lose_lease]
        harms += [self._kill_agent, self._freeze_agent, self._restart_machine, self._cut_stream]
        kinds = chance.sample(harms, chance.randint(1, 4))
        end = asyncio.get_running_loop().time() + FAULTS_UNTIL_SECONDS
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(chance.uniform(0.5, FAULTS_UNTIL_SECONDS))
            harm = chance.choice(kinds)
            self.faults += 1
            self.gate.note(f"fault: {harm.__name__}")
            harm()

    def _plan_faults(self) -> list[InjectedFault]:
        chance = self.random
        fates = chance.sample(_BAD_FATES, chance.randint(0, 4)) * chance.choice([1, 1, 2])
        pending_faults = [InjectedFault(fate, chance.choice(list(Role)), chance.choice(_SPARED)) for fate in fates]
        if chance.random() < _DEPOSED:
            pending_faults.insert(0, InjectedFault(Fate.FROZEN_BEFORE, Role.TERM, spared=0))
        return pending_faults

    def _heal(self) -> None:
        """End all faults: restart dead processes, resume frozen ones, and reconnect all parts."""
        self._over = True
        self.gate.pending_faults.clear()
        self._lost_signals = 0.0
        self.leases.cut_off.clear()
        self.gate.note("all is well again")

    def _kill_server(self) -> None:
        self.random.choice(self.servers).process.kill()

    def _freeze_server(self) -> None:
        self.random.choice(self.servers).process.freeze(self.random.uniform(0.2, 2.5) * TTL_SECONDS)

    def _cut_off(self) -> None:
        name = self.random.choice(self.servers).process.name
        self.leases.cut_off.add(name)
        self._nature.call_later(self.random.uniform(0.2, 2.5) * TTL_SECONDS, self.leases.cut_off.discard, name)

    def _lose_lease(self) -> None:
        self.leases.forget()

    def _kill_agent(self) -> None:
        self._any_agent().process.kill()

    def _freeze_agent(self) -> None:
        self._any_agent().process.freeze(self.random.uniform(0.2, 2.0) * PACE.timeout_seconds)

    def _restart_machine(self) -> None:
        agent = self._any_agent()
        agent.process.kill()
        agent.machine.restart()

    def _cut_stream(self) -> None:
        stream = self._any_agent().stream
        if stream is not None:
            stream.close(self.random.uniform(0.1, 1.5) * PACE.timeout_seconds)

    # --- servers and agents ---

    def _start_server(self, name: str) -> None:
        server = Server(self, name)
        self.servers = sorted([*(s for s in self.servers if s.process.alive), server], key=lambda s: s.process.name)
        server.process.on_death.append(lambda: self._after_death_of_server(server))

    def _after_death_of_server(self, server: Server) -> None:
        self.gate.note(f"{server.process.name} died")
        for stream in server.streams:
            stream.close(self.random.uniform(0.01, 2.0))
        self._nature.call_later(self._away_seconds(), self._start_server, server.process.name)

    def _start_agent(self, machine: Machine) -> None:
        process = Process(f"agent {machine.name}")
        agent = SimulatedAgent(machine, process, self._connect, self.random)
        self.agents[machine.name] = agent
        process.on_death.append(lambda: self._after_death_of_agent(agent))
        process.start(agent.run())

    def _after_death_of_agent(self, agent: SimulatedAgent) -> None:
        if agent.stream is not None:
            agent.stream.close(self.random.uniform(0.01, 2.0))
        self._nature.call_later(self._away_seconds(), self._start_agent, agent.machine)

    def _away_seconds(self) -> float:
        return 0.1 if self._over else self.random.choice([0.1, 1.0, 1.5 * PACE.timeout_seconds])

    def _connect(self, agent: SimulatedAgent) -> Stream:
        server = self._any_server()
        stream = Stream(agent.process, server.process)
        if not server.process.alive:
            stream.close()
            return stream
        server.streams.append(stream)
        machine = agent.machine
        server.process.start(serve(server.hub, stream, machine.node_id, self.harness.pool.id, machine.name))
        return stream

    def _any_server(self) -> Server:
        """Return a server that is not known to be dead, or any if all are: the caller finds out by itself."""
        return self.random.choice([s for s in self.servers if s.process.alive] or self.servers)

    def _any_agent(self) -> SimulatedAgent:
        return self.agents[self.random.choice(self.machines).name]

    def _tell_servers(self, topics: Topics) -> None:
        for server in self.servers:
            if self.random.random() >= self._lost_signals:
                server.tell(self.random.uniform(0.01, _SIGNAL_SECONDS), topics)

    # --- end ---

    async def _come_to_rest(self) -> None:
        """Wait until nothing is in progress. The checks look at work that is still pending then."""
        for _ in range(REST_WITHIN_SECONDS):
            if not self._restless:
                return
            await asyncio.sleep(1.0)

    @property
    def _restless(self) -> int:
        return int(
            self.store.one(
                "SELECT count(*) FROM tasks JOIN workloads ON workloads.id = tasks.workload_id"
                " WHERE tasks.status IN ('PENDING', 'RESERVED', 'SCHEDULED', 'PREPARING', 'TERMINATING')"
                " OR (tasks.status = 'RUNNING' AND workloads.kind = 'session')"
                " OR (tasks.node_id IS NOT NULL AND tasks.freed_at IS NULL AND tasks.status <> 'RUNNING')"
                " OR (tasks.current AND workloads.kind = 'deployment' AND workloads.ended_at IS NULL"
                " AND tasks.status <> 'RUNNING')"
            )
        )


# Searching all installed packages takes longer than most schedules.
_installed = cache(entry_points)


@contextmanager
def simulated(report_violation: Callable[[str], None], seed: int = 0) -> Iterator[SimulatedLoop]:
    """Simulate time, ids and randomness. Report errors that loops survive, unless they were injected."""
    # There are no sockets, signals or subprocesses here.
    loop = SimulatedLoop()  # type: ignore[abstract]
    numbers = count()

    def uuid7() -> UUID:
        """Return ids in order of creation, as the real ones are."""
        milliseconds = int(loop.now().timestamp() * 1000)
        return UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62 | next(numbers))

    def survived(_logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        error = sys.exc_info()[1]
        if method == "error" and error is not None and not isinstance(error, _EXPECTED):
            report_violation(f"{event.get('event')}: {type(error).__name__}: {error}")
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    with pytest.MonkeyPatch.context() as patch, structlog.testing.capture_logs():
        # Replaces one that would keep every record.
        processors[:] = [survived]
        patch.setattr(clock, "source", loop)
        for module in (profiles, registry):
            patch.setattr(module, "entry_points", _installed)
        patch.setattr(ids, "uuid7", uuid7)
        patch.setattr(compilation, "start", lambda **_: None)
        patch.setattr(random, "uniform", Random(seed).uniform)
        yield loop
