"""Requests beyond slots: work that fits beside a plan's needs starts, and the plan's promise holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.decisions import Decision
from mooring.model.policy.pools import Backfill, HeadOfLine
from mooring.model.resources.devices import Device
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.explain.explanation import forget
from tests.scheduling.builders import NOW, NodeBuilder, node, workload

GPU, CORE = 1000, 1000


@dataclass(frozen=True)
class Job:
    arrives: int
    cores: int
    gpus: int
    port: int
    """0 for none."""
    licence: bool
    limit: int | None
    runs: int
    tasks: int
    """They start together."""


@dataclass(frozen=True)
class Machine:
    cores: int
    gpus: int
    tasks: int
    licence: bool


machines = st.builds(Machine, st.integers(1, 6), st.integers(0, 3), st.integers(1, 5), st.booleans())


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    limit = None if draw(st.integers(0, 7)) == 0 else draw(st.integers(1, 30))
    return Job(
        arrives=draw(st.integers(0, 40)),
        cores=draw(st.integers(1, 3)),
        gpus=draw(st.sampled_from([0, 0, 1, 2])),
        port=draw(st.sampled_from([0, 0, 0, 80, 81])),
        licence=draw(st.integers(0, 5)) == 0,
        limit=limit,
        runs=draw(st.integers(1, limit or 30)),
        tasks=draw(st.sampled_from([1, 1, 2, 3])),
    )


@dataclass
class Load:
    """The load of a node at one time."""

    cores: int = 0
    gpus: int = 0
    tasks: int = 0
    licences: int = 0
    ports: set[int] = field(default_factory=set)
    doubled: bool = False

    def add(self, job: Job) -> None:
        self.cores += job.cores
        self.gpus += job.gpus
        self.tasks += 1
        self.licences += job.licence
        if job.port:
            self.doubled |= job.port in self.ports
            self.ports.add(job.port)

    def fits(self, machine: Machine) -> bool:
        sessions = 2 if machine.licence else 0
        return (
            self.cores <= machine.cores
            and self.gpus <= machine.gpus
            and self.tasks <= machine.tasks
            and self.licences <= sessions
            and not self.doubled
        )


@dataclass
class World:
    machines: list[Machine]
    queue: list[Job]
    scheduler: Scheduler
    waiting: dict[str, Workload] = field(default_factory=dict)
    ends: list[tuple[int, str]] = field(default_factory=list)
    running: dict[str, Decision] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    planned: dict[str, int] = field(default_factory=dict)

    def job(self, name: str) -> Job:
        return self.queue[int(name[1:])]

    def tasks_on(self, name: str, machine: int) -> int:
        return sum(each.node_name == f"n{machine}" for each in self.running[name].placements)

    def load(self, machine: int, time: int, now: int) -> Load:
        """Return the load of a machine at a time, by the time limits of its running tasks."""
        load = Load()
        for name in self.running:
            job = self.job(name)
            stays = time == now or job.limit is None or self.since[name] + job.limit > time
            for _ in range(self.tasks_on(name, machine) if stays else 0):
                load.add(job)
        return load

    def schedule(self, time: int) -> None:
        result = self.scheduler.place(list(self.waiting.values()), at(time))
        heads: dict[str, int] = {}
        for decision in result.decisions:
            name = decision.workload.name
            if decision.planned_start is not None:
                heads[name] = seconds_of(decision.planned_start) - seconds_of(NOW)
                self.planned.setdefault(name, heads[name])
            if decision.placements:
                self.running[name], self.since[name] = decision, time
                del self.waiting[name]
                heappush(self.ends, (time + self.job(name).runs, name))
        self.check(time, heads)

    def check(self, time: int, heads: dict[str, int]) -> None:
        """Nobody waits for whom there is a machine, now and beside the plan."""
        rows = {self.scheduler.cluster.row_of(node.id): node for node in self.scheduler.cluster.nodes if node}
        plans = self.scheduler.cluster.timeline.planned
        for machine in range(len(self.machines)):
            assert self.load(machine, time, time).fits(self.machines[machine])
        for name in self.waiting.keys() - heads.keys():
            job = self.job(name)
            if job.tasks > 1:
                continue
            for machine, has in enumerate(self.machines):
                here = self.load(machine, time, time)
                here.add(job)
                if not here.fits(has):
                    continue
                beside = True
                # One start is planned, as the pool's depth says.
                for head, start in heads.items():
                    if job.limit is not None and time + job.limit <= start:
                        continue
                    then = self.load(machine, start, time)
                    then.add(job)
                    for _ in range(sum(plan.tasks for plan in plans if rows[plan.row].name == f"n{machine}")):
                        then.add(self.job(head))
                    beside &= then.fits(has)
                assert not beside, f"{name} waits at {time} although machine {machine} has what it asks for"


def at(time: int) -> datetime:
    return NOW + timedelta(seconds=time)


def built(number: int, machine: Machine) -> NodeBuilder:
    made = node(f"n{number}").cpu(machine.cores).slot("gpu", machine.gpus).tasks(0, at_most=machine.tasks).node
    devices = tuple(Device(index, GPU) for index in range(machine.gpus))
    licence = "personal" if machine.licence else None
    return NodeBuilder(replace(made, devices={"gpu": devices}, licence=licence, licence_sessions=2))


def simulated(machines: list[Machine], queue: list[Job], *, compiled: bool) -> World:
    scheduler = Scheduler(
        [built(number, machine).node for number, machine in enumerate(machines)],
        head_of_line=HeadOfLine.BACKFILL,
        # All arrivals and ends are within 70 seconds, so that work is passed for less and for more than this.
        backfill=Backfill(max_bypass_seconds=10),
        compiled=compiled,
    )
    world = World(machines, queue, scheduler)
    arrivals = sorted((job.arrives, number) for number, job in enumerate(queue))
    while arrivals or world.ends:
        time = min([*(first for first, _ in arrivals[:1]), *(end for end, _ in world.ends[:1])])
        while world.ends and world.ends[0][0] <= time:
            name = heappop(world.ends)[1]
            forget(scheduler.cluster, world.running.pop(name))
        while arrivals and arrivals[0][0] <= time:
            _, number = arrivals.pop(0)
            job = queue[number]
            constraints = Constraints(
                host_ports=(HostPort(job.port),) if job.port else (), licence="personal" if job.licence else None
            )
            made = workload(f"j{number}").cpu(job.cores).replicas(job.tasks).gang().workload
            request = {**made.request, "gpu": job.gpus * GPU} if job.gpus else made.request
            world.waiting[f"j{number}"] = replace(
                made,
                request=request,
                constraints=constraints,
                created_at=at(job.arrives) + timedelta(microseconds=number),
                time_limit_seconds=job.limit,
                stop_grace_seconds=0,
            )
        world.schedule(time)
    return world


@pytest.mark.parametrize("compiled", [False, True])
@settings(max_examples=60, deadline=None)
@given(st.lists(machines, min_size=1, max_size=3), st.lists(jobs(), min_size=2, max_size=12))
def test_work_that_fits_beside_the_plan_starts_and_the_plan_holds(
    compiled: bool, machines: list[Machine], queue: list[Job]
):
    world = simulated(machines, queue, compiled=compiled)
    for name, planned in world.planned.items():
        assert world.since[name] <= planned
