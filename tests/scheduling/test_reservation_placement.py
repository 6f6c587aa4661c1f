"""Work of a timeslot gets exactly the reserved capacity; other work gets none of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.decisions import Decision, Outcome
from mooring.model.lifecycle import NodeStatus
from mooring.model.policy.preemption import Preemption, RunningTask
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.workload import LONG_AGO, Workload
from mooring.scheduling import Cluster, Scheduler
from mooring.scheduling.admission import Admission, AdmissionContext
from mooring.scheduling.calendar.bookings import Booked, book
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.tenant_usage import Usage
from tests.scheduling.builders import NOW, WorkloadBuilder, chosen, id_of, node, workload
from tests.selection import examples

LAB = id_of("lab")
START = seconds_of(NOW)
HOUR = 3600


def reserved_work(name: str, slot: UUID = LAB) -> WorkloadBuilder:
    return workload(name)._with(booking=slot)


def world(*, is_open: bool = True, begins: int = 0, **cores: int) -> Scheduler:
    """Two nodes of eight cores; the timeslot has these cores of them, for an hour."""
    scheduler = Scheduler([node(name).cpu(8).memory("8Gi").node for name in ("a", "b")], compiled=False)
    left = {id_of(name): {"cpu": 1000 * count} for name, count in cores.items()}
    scheduler.cluster.timeslots.update(LAB, START + begins, START + HOUR, left, is_open=is_open)
    return scheduler


def decide(scheduler: Scheduler, *builders: WorkloadBuilder, seconds: int = 0) -> list[Decision]:
    at = NOW + timedelta(seconds=seconds)
    decisions = scheduler.run([builder.workload for builder in builders], at).decisions
    return [next(d for d in decisions if d.workload.id == builder.workload.id) for builder in builders]


def test_reserved_work_is_placed_where_its_timeslot_is():
    decision, outside = decide(world(b=8), reserved_work("lab-work").cpu(8), workload("other").cpu(4))
    assert chosen(decision) == ["b"]
    assert chosen(outside) == ["a"]


def test_others_do_not_get_the_capacity_of_a_timeslot():
    scheduler = world(a=8, b=6)
    decision, small = decide(scheduler, workload("large").cpu(3), workload("small").cpu(2))
    assert decision.outcome is Outcome.WAITING
    assert chosen(small) == ["b"]


def test_placements_reduce_the_remaining_capacity_of_a_timeslot():
    scheduler = world(a=4, b=2)
    first, second = decide(scheduler, reserved_work("first").cpu(2).replicas(2), reserved_work("second").cpu(2))
    assert sorted(chosen(first) + chosen(second)) == ["a", "a", "b"]
    (third,) = decide(scheduler, reserved_work("third").cpu(1))
    assert third.outcome is Outcome.WAITING
    assert third.reason is not None
    assert third.reason.code == "timeslot-full"
    assert third.reason.message == "its booking has nothing left on 2 nodes; one task requests 1 cpu"


def test_the_reason_states_the_remaining_capacity_if_no_node_has_enough_for_a_task():
    (decision,) = decide(world(a=4, b=2), reserved_work("wide").cpu(5))
    assert decision.reason is not None
    assert decision.reason.message == "its booking has 6 cpu left on 2 nodes; one task requests 5 cpu"


def test_a_gang_fits_in_the_timeslot_or_stays_pending():
    scheduler = world(a=4, b=2)
    gang, fitting = decide(
        scheduler, reserved_work("gang").cpu(2).replicas(4).gang(), reserved_work("fitting").cpu(2).replicas(3)
    )
    assert not gang.placements
    assert len(fitting.placements) == 3


def test_a_slot_that_was_not_booked_is_not_there():
    (decision,) = decide(world(a=8), reserved_work("work").cpu(1).memory("1Gi"))
    assert decision.reason is not None
    assert decision.reason.code == "timeslot-full"


def test_it_waits_until_its_timeslot_takes_work():
    scheduler = world(is_open=False, begins=600, a=8)
    result = scheduler.place([reserved_work("work").cpu(1).workload], NOW)
    (rejection,) = result.refused
    assert rejection.reason.code == "before-timeslot"
    assert rejection.awaits.until == NOW + timedelta(seconds=600)
    # It is due, but the timeslot is not open yet: the reason says so, and no time is awaited.
    later = scheduler.place([reserved_work("work").cpu(1).workload], NOW + timedelta(seconds=600))
    assert later.refused[0].awaits.until is None


def test_work_of_a_timeslot_that_is_not_confirmed_waits():
    (decision,) = decide(world(a=8), reserved_work("work", id_of("unknown")).cpu(1))
    assert decision.reason is not None
    assert (decision.reason.code, decision.reason.message) == ("before-timeslot", "its booking is not confirmed")


def test_nothing_starts_in_a_timeslot_that_is_over():
    (decision,) = decide(world(a=8), reserved_work("late").cpu(1), seconds=HOUR)
    assert decision.reason is not None
    assert decision.reason.code == "timeslot-over"


def test_it_ends_with_its_timeslot_though_its_limit_is_longer():
    scheduler = world(a=8)
    scheduler.cluster.timeslots.update(id_of("next"), START + HOUR, START + 2 * HOUR, {id_of("a"): {"cpu": 8000}})
    (decision,) = decide(scheduler, reserved_work("lab-work").cpu(8)._with(time_limit_seconds=10 * HOUR))
    assert chosen(decision) == ["a"]
    assert decision.workload.time_limit_seconds == 10 * HOUR
    # It is expected to be gone when the next timeslot begins.
    timeline, demand = scheduler.cluster.timeline, scheduler.cluster.demand((("cpu", 8000),))
    free_from = timeline.earliest(scheduler.cluster.rows, demand, 60, START).tolist()
    assert sorted(free_from) == [START, START + 2 * HOUR]


def test_a_node_of_its_timeslot_that_is_not_ready_takes_nothing_and_says_so():
    scheduler = world(a=8)
    scheduler.cluster.upsert(node("a").cpu(8).memory("8Gi").status(NodeStatus.DRAINING).node)
    (decision,) = decide(scheduler, reserved_work("work").cpu(1))
    assert decision.reason is not None
    assert decision.reason.message.startswith("0 of 1 node: 1 ")


def test_it_is_exempt_from_quotas_and_others_are_not_charged_for_it():
    scheduler, usage = world(a=8), Usage()
    user = Tenant(Scope.USER, str(id_of("someone")))
    usage.update(user, limits={"cpu": 1000}, used={})
    admission = Admission(AdmissionContext(NOW, usage))
    result = scheduler.place([reserved_work("lab-work").cpu(8).workload], NOW, admission=admission)
    assert result.placements == 1
    assert usage.used_by(user).get("cpu", 0) == 0


def test_an_explanation_places_nothing_and_shows_the_capacity_of_the_timeslot():
    scheduler = world(a=4)
    before = dict(scheduler.cluster.timeslots.left(LAB)[id_of("a")])
    explanation = scheduler.explain(reserved_work("work").cpu(4).workload, NOW)
    assert explanation.outcome is Outcome.PLACED
    assert (explanation.nodes, explanation.candidates) == (1, 1)
    assert scheduler.cluster.timeslots.left(LAB)[id_of("a")] == before
    assert scheduler.explain(workload("other").cpu(5).workload, NOW).candidates == 1
    decide(scheduler, reserved_work("work").cpu(4))
    full = scheduler.explain(reserved_work("more").cpu(1).workload, NOW)
    assert full.reason is not None
    assert full.reason.code == "timeslot-full"
    assert full.summary == "0 of 1 node: 1 has too little left of its booking"


def test_a_forgotten_timeslot_keeps_nothing():
    scheduler = world(a=8, b=8)
    scheduler.cluster.timeslots.forget(LAB)
    assert not scheduler.cluster.timeline.booked
    assert chosen(decide(scheduler, workload("other").cpu(8))[0])


@dataclass
class Running:
    node: str
    cores: int
    end: int | None
    slot: UUID | None = None


@dataclass
class Stored:
    begins: int
    ends: int
    cores: dict[str, int]


@dataclass
class Day:
    """A slow reference: all running tasks and all reservations, second by second."""

    cluster: Cluster
    running: list[Running] = field(default_factory=list)
    slots: dict[UUID, Stored] = field(default_factory=dict)
    now: int = 0

    def check(self) -> None:
        last = self.now + 60
        for name, cores in (("a", 6), ("b", 3)):
            for second in range(self.now, last):
                taken = sum(
                    each.cores for each in self.running if each.node == name and (each.end is None or each.end > second)
                )
                stored = sum(
                    slot.cores.get(name, 0) - self.taken_of(id, name, second)
                    for id, slot in self.slots.items()
                    if slot.begins <= second < slot.ends
                )
                assert taken + stored <= cores, f"{name} at {second}: {taken} taken, {stored} kept of {cores}"

    def advance(self, seconds: int) -> None:
        """Advance the time: remove ended tasks, and open timeslots that begin."""
        self.now += seconds
        self.running = [each for each in self.running if each.end is None or each.end > self.now]
        for name, cores in (("a", 6), ("b", 3)):
            own = [each for each in self.running if each.node == name]
            used = sum(each.cores for each in own)
            self.cluster.upsert(node(name).cpu(cores).used(cpu=used).node)
            last = [each.end if each.slot is None else self.slots[each.slot].ends for each in own]
            ends = {id_of(f"{name}{n}"): (last[n], {"cpu": 1000 * e.cores}) for n, e in enumerate(own)}
            known = {key: (end, amounts) for key, (end, amounts) in ends.items() if end is not None}
            self.cluster.set_expected_ends(id_of(name), known)
        for id, slot in list(self.slots.items()):
            if slot.ends <= self.now:
                self.cluster.timeslots.forget(id)
                del self.slots[id]
            else:
                left = {id_of(name): {"cpu": 1000 * (n - self.taken_of(id, name))} for name, n in slot.cores.items()}
                is_open = slot.begins <= self.now
                self.cluster.timeslots.update(id, slot.begins, slot.ends, left, is_open=is_open)

    def taken_of(self, slot: UUID, name: str, second: int = 0) -> int:
        """By its own work that is there then."""
        own = (each for each in self.running if each.node == name and each.slot == slot)
        return sum(each.cores for each in own if each.end is None or each.end > second)


STEP = st.tuples(
    st.sampled_from(["book", "inside", "inside", "outside", "outside", "wait"]),
    st.integers(1, 4),
    st.integers(0, 12),
    st.none() | st.integers(1, 15),
    st.integers(1, 3),
)


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(STEP, min_size=4, max_size=30))
def test_at_no_second_is_more_taken_and_reserved_than_a_node_has(steps: list[tuple[str, int, int, int | None, int]]):
    scheduler = Scheduler([node("a").cpu(6).node, node("b").cpu(3).node], compiled=False)
    day = Day(scheduler.cluster)
    for number, (what, cores, later, length, count) in enumerate(steps):
        at = LONG_AGO + timedelta(seconds=day.now)
        name = f"w{number}"
        if what == "wait":
            day.advance(cores)
        elif what == "book":
            _book(day, id_of(name), cores, count, day.now + later, length or 5)
        else:
            asked = workload(name).cpu(cores).replicas(count)._with(time_limit_seconds=length, created_at=at).workload
            slot = None
            if what == "inside" and day.slots:
                slot = sorted(day.slots)[later % len(day.slots)]
                asked = replace(asked, booking=slot)
            (decision,) = scheduler.run([asked], at).decisions
            _count(day, decision, cores, slot, asked)
        day.check()


def _book(day: Day, slot: UUID, cores: int, count: int, start: int, length: int) -> None:
    demand = day.cluster.demand((("cpu", 1000 * cores),))
    day.cluster.timeline.advance(day.now)
    answer = book(day.cluster, slot, day.cluster.rows, demand, count, start, start + length)
    if isinstance(answer, Booked):
        shares = {day.cluster.node(row).name: cores * tasks for row, tasks in answer.placements}
        day.slots[slot] = Stored(start, start + length, shares)
        left = {id_of(name): {"cpu": 1000 * share} for name, share in shares.items()}
        day.cluster.timeslots.update(slot, start, start + length, left, is_open=start <= day.now)


def _count(day: Day, decision: Decision, cores: int, slot: UUID | None, asked: Workload) -> None:
    end = None if asked.time_limit_seconds is None else day.now + asked.time_limit_seconds
    if slot is not None:
        last = day.slots[slot].ends
        end = last if end is None else min(end, last)
    day.running += [Running(placement.node_name, cores, end, slot) for placement in decision.placements]


@pytest.mark.parametrize("compiled", [False, True])
def test_no_task_is_preempted_for_promised_capacity(compiled: bool):
    old = RunningTask(id_of("old"), id_of("old"), id_of("n"), 1, {"cpu": 4000})
    one = node("n").cpu(8).used(cpu=4).tasks(1).node
    scheduler = Scheduler([one], preemption=Preemption(), running_tasks=[old], compiled=compiled)
    urgent = workload("urgent").cpu(6).priority(50)
    scheduler.cluster.timeslots.update(LAB, START, START + HOUR, {id_of("n"): {"cpu": 4000}})
    assert decide(scheduler, urgent)[0].outcome is Outcome.WAITING
    scheduler.cluster.timeslots.forget(LAB)
    assert decide(scheduler, urgent)[0].outcome is Outcome.RESERVED
