"""Whatever happens to nodes and tasks: what could be placed is placed, and what could not is left alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mooring.model.decisions import Outcome
from mooring.model.labels import equal_to
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import HeadOfLine
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    Spread,
    Taint,
    TaskTerm,
    Toleration,
)
from mooring.model.workloads.workload import Workload
from mooring.scheduling.tenant_usage import Usage
from tests.scheduling.builders import NodeBuilder, WorkloadBuilder, id_of, node, workload
from tests.scheduling.queue.queue_world import World
from tests.selection import examples

ZONES = ("a", "b", None)
APPS = ("web", "db")
NAMES = tuple(f"n{number}" for number in range(5))
TAINT = Taint("dedicated", "db")

constraints = st.builds(
    Constraints,
    labels=st.sampled_from([(), *((("app", app),) for app in APPS)]),
    node_selector=st.sampled_from([(), (), (("zone", "a"),)]),
    tolerations=st.sampled_from([(), (Toleration("dedicated", exists=True),)]),
    affinity=st.sampled_from([(), (), (TaskTerm("zone", equal_to({"app": "web"})),)]),
    anti_affinity=st.sampled_from([(), (), (TaskTerm("zone", equal_to({"app": "db"})),)]),
    spread=st.sampled_from([(), (), (Spread("zone", 1, equal_to({"app": "web"})),)]),
    host_ports=st.sampled_from([(), (), (), (HostPort(80),)]),
    ports_wanted=st.sampled_from([0, 0, 0, 1]),
    licence=st.sampled_from([None, None, None, "personal"]),
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    zone = draw(st.sampled_from(ZONES))
    return replace(
        node(name).cpu(draw(st.integers(0, 6))).slot("gpu", draw(st.integers(0, 2))).node,
        labels={} if zone is None else {"zone": zone},
        schedulable=draw(st.sampled_from([True, True, True, False])),
        taints=draw(st.sampled_from([(), (), (), (TAINT,)])),
        max_tasks=draw(st.sampled_from([None, None, 1, 3])),
        licence=draw(st.sampled_from([None, "personal", "enterprise"])),
        owner=draw(st.sampled_from([None, None, None, id_of("ann"), id_of("ben")])),
        pool=draw(st.sampled_from(["default", "default", "default", "other"])),
        port_range=(2000, draw(st.integers(2000, 2001))),
    )


@st.composite
def workloads(draw: st.DrawFn, name: str) -> WorkloadBuilder:
    builder = workload(name).cpu(draw(st.integers(0, 4))).user(draw(st.sampled_from(["ann", "ben", "cas"])))
    if draw(st.booleans()):
        builder = builder.slot("gpu", draw(st.integers(0, 2)))
    if draw(st.booleans()):
        builder = builder.replicas(draw(st.integers(2, 3))).max_per_node(draw(st.sampled_from([None, 1])))
        if draw(st.booleans()):
            builder = builder.gang()
    return WorkloadBuilder(replace(builder.workload, constraints=draw(st.just(Constraints()) | constraints)))


class PendingQueueMachine(RuleBasedStateMachine):
    """After every change the queue iterates until it is idle; then nothing may be left that a pass would place."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.number = 0
        self.changed: set[str] = set()
        """Work that is handed out because it came or changed, not because of a hint."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        for name in NAMES[:3]:
            self.world.add(NodeBuilder(data.draw(nodes(name))))

    @rule(data=st.data(), count=st.integers(1, 3))
    def submit(self, data: st.DataObject, count: int) -> None:
        drawn = data.draw(workloads("w"))
        for _ in range(count):
            self.number += 1
            name = f"w{self.number}"
            tasks = workload(name).replicas(len(drawn.workload.tasks)).workload.tasks
            each = replace(drawn.workload, id=id_of(name), name=name, tasks=tasks)
            self.world.submit(WorkloadBuilder(each))
            self.changed.add(name)

    @precondition(lambda self: self.world.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.world.withdraw(data.draw(st.sampled_from(sorted(self.world.waiting))))

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), count=st.integers(1, 3))
    def end(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.world.running))):
            self.world.end(self.world.running[data.draw(st.integers(0, len(self.world.running) - 1))])

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), app=st.sampled_from(APPS))
    def relabel(self, data: st.DataObject, app: str) -> None:
        self.world.relabel(self.world.running[data.draw(st.integers(0, len(self.world.running) - 1))], app=app)

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def change_node(self, data: st.DataObject, name: str) -> None:
        """It comes, or everything about it may change but its name."""
        changed = data.draw(nodes(name))
        self._note_owners(changed)
        self.world.add(NodeBuilder(changed))

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data())
    def change_one_thing(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.nodes)))
        drawn = data.draw(nodes(name))
        field = data.draw(st.sampled_from(["labels", "schedulable", "taints", "allocatable", "max_tasks", "licence"]))
        self.world.change(name, **{field: getattr(drawn, field)})

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        self.world.remove(data.draw(st.sampled_from(sorted(self.world.nodes))))

    @invariant()
    def what_could_be_placed_is_placed(self) -> None:
        world = self.world
        for _ in range(50):
            before = dict(world.waiting)
            self._only_placeable_workloads_are_requeued()
            if not world.pending_queue.has_more_work and world.waiting == before:
                break
        else:
            pytest.fail("the queue never becomes idle")
        assert world.iterate_by_timer().placed == []
        assert world.pending_queue.found_by_timer == 0

    def _only_placeable_workloads_are_requeued(self) -> None:
        """Apart from new and changed work. Gangs are requeued by amounts, not by nodes."""
        world = self.world
        possible = {
            name
            for name, waiting in world.waiting.items()
            if waiting.gang or world.scheduler.explain(waiting, world.now).outcome is Outcome.PLACED
        }
        iteration = world.iterate()
        assert set(iteration.tried) - self.changed <= possible
        self.changed = {name for name in iteration.placed if name in world.waiting}

    def _note_owners(self, node: Node) -> None:
        """Note the workloads of a new node owner as changed, because placement treats them differently from then on."""
        if node.owner is not None and node.owner not in self.world.cluster.owners:
            self.changed |= {name for name, each in self.world.waiting.items() if _belongs(each, node)}


def _belongs(waiting: Workload, node: Node) -> bool:
    return waiting.user_id == node.owner


TestPendingQueue = PendingQueueMachine.TestCase
TestPendingQueue.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)


@settings(max_examples=examples(40), deadline=None)
@given(
    head_of_line=st.sampled_from(HeadOfLine),
    limits=st.fixed_dictionaries({"ann": st.integers(1, 8), "ben": st.integers(1, 8)}),
    story=st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(["ann", "ben", "cas"]),
                st.integers(1, 6),
                st.integers(1, 3),
                st.sampled_from([1, 9]),
                st.sampled_from([None, 60, 600, 3600]),
            ),
            st.integers(0, 9),
            st.sampled_from([timedelta(minutes=1), timedelta(minutes=10), timedelta(hours=1)]),
        ),
        max_size=25,
    ),
)
def test_workloads_held_back_by_quotas_or_the_queue_head_are_requeued_by_their_cure(
    head_of_line: HeadOfLine,
    limits: dict[str, int],
    story: list[tuple[str, int, int, int, int | None] | int | timedelta],
) -> None:
    usage = Usage()
    for user, cores in limits.items():
        usage.update(Tenant(Scope.USER, str(id_of(user))), limits={"cpu": cores * 1000}, name=user)
    world = World([node("n1").cpu(4), node("n2").cpu(6)], head_of_line=head_of_line, usage=usage)
    for number, event in enumerate(story):
        if isinstance(event, int):
            if world.running:
                world.end(world.running[event % len(world.running)])
        elif isinstance(event, timedelta):
            world.now += event
        else:
            user, cpu, tasks, priority, seconds = event
            built = workload(f"w{number}").user(user).cpu(cpu).replicas(tasks).priority(priority).limit(seconds)
            world.submit(built.created(-number))
        for _ in range(50):
            if not world.iterate().tried and not world.pending_queue.has_more_work:
                break
        for user, cores in limits.items():
            used = sum(task.request["cpu"] for task in world.running if task.user_id == id_of(user))
            assert used <= cores * 1000
    assert world.iterate_by_timer().placed == []
    assert world.pending_queue.found_by_timer == 0
