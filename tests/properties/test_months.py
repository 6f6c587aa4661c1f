"""Months of bookings with a clock of their own: whatever is booked, changed, cancelled or lost, promises hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest

from mooring.controllers.scheduling.reservations import Reservations
from mooring.controllers.scheduling.timeslots import due_actions
from mooring.mirror.calendar import Calendar
from mooring.mirror.schedulers import work_of
from mooring.model.calendar.timeslots import (
    OVER,
    Timeslot,
    TimeslotKind,
    TimeslotStatus,
)
from mooring.model.decisions import Decision
from mooring.model.policy.pools import HeadOfLine
from mooring.model.workloads.workload import Task, Workload
from mooring.scheduling import Cluster, Scheduler
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.cluster.arrays import Rows
from mooring.store.reservations.due_timeslots import DueTimeslot, TimeslotUse
from mooring.store.reservations.timeslots import TimeslotUpdate
from tests.scheduling.builders import NOW, id_of, node

S = TimeslotStatus
NODES = {"a": 8, "b": 4, "c": 4}
HOUR = timedelta(hours=1)


@dataclass
class Run:
    """A task on a node."""

    node: str
    cores: int
    ends_at: datetime | None
    slot: UUID | None
    owner: UUID


@dataclass
class Months:
    """The store and the nodes of a small cluster, in memory; the rest is as the leader has it."""

    random: Random
    now: datetime = NOW
    runs: dict[UUID, Run] = field(default_factory=dict)
    waiting: dict[UUID, Workload] = field(default_factory=dict)
    slots: dict[UUID, Timeslot] = field(default_factory=dict)
    cores: dict[str, int] = field(default_factory=lambda: dict(NODES))
    down: set[str] = field(default_factory=set)
    placed: set[UUID] = field(default_factory=set)
    planned: dict[UUID, datetime] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        self.cluster = Cluster()
        self.scheduler = Scheduler(cluster=self.cluster, head_of_line=HeadOfLine.BACKFILL, compiled=False)
        self.calendar = Calendar(self.cluster)
        self.reservations = Reservations(self.cluster, self.calendar, self.rows_for)
        self.update_nodes()

    def rows_for(self, slot: Timeslot) -> Rows:
        return self.scheduler.rows_for(work_of(slot, "process"))

    def new_id(self) -> UUID:
        """They grow with time, as those of the store do."""
        self.number += 1
        return UUID(int=self.number)

    # --- what the mirror does ---

    def update_nodes(self) -> None:
        for name, cores in self.cores.items():
            own = {id: run for id, run in self.runs.items() if run.node == name}
            used = sum(run.cores for run in own.values())
            received = node(name).cpu(cores).used(cpu=used).tasks(len(own))
            self.cluster.upsert((received.unschedulable() if name in self.down else received).node)
            ends = {
                # Until the end of a timeslot, capacity released inside it belongs to it alone.
                id: (seconds_of(self.slots[run.slot].ends_at if run.slot else run.ends_at), {"cpu": 1000 * run.cores})
                for id, run in own.items()
                if run.ends_at is not None
            }
            self.cluster.set_expected_ends(id_of(name), ends)
        for slot_id in self.slots:
            occupied: dict[UUID, dict[str, int]] = {}
            for run in self.runs.values():
                if run.slot == slot_id:
                    amounts = occupied.setdefault(id_of(run.node), {"cpu": 0})
                    amounts["cpu"] += 1000 * run.cores
            self.calendar.set_occupied(slot_id, occupied)
        self.calendar.note_nodes({id_of(name) for name in self.cores})

    def put(self, slot: Timeslot) -> None:
        self.slots[slot.id] = slot
        self.calendar.put(slot)

    # --- what the store does ---

    def commit(self, updates: list[TimeslotUpdate]) -> list[Timeslot]:
        updated: list[Timeslot] = []
        for update in updates:
            placements = update.slot.placements if update.placements is None else update.placements
            slot = replace(update.slot, status=update.status, placements=placements, version=update.slot.version + 1)
            updated.append(slot)
            old = self.slots.get(slot.replaces) if slot.replaces and slot.status is S.CONFIRMED else None
            if old is not None:
                for run in self.runs.values():
                    if run.slot == old.id:
                        run.slot, run.ends_at = slot.id, slot.ends_at
                self.waiting = {
                    id: replace(w, booking=slot.id) if w.booking == old.id else w for id, w in self.waiting.items()
                }
                if old.id in self.placed:
                    self.placed.add(slot.id)
                updated.append(replace(old, status=S.CANCELLED))
        for slot in updated:
            if slot.status in OVER:
                self.slots.pop(slot.id, None)
                self.runs = {id: run for id, run in self.runs.items() if run.slot != slot.id}
                self.waiting = {id: w for id, w in self.waiting.items() if w.booking != slot.id}
            else:
                self.slots[slot.id] = slot
        return updated

    # --- what the leader does ---

    def wait_until(self, time: datetime) -> None:
        """The leader runs whenever something is due."""
        while (moment := min((due for due in self.due() if due > self.now), default=time)) < time:
            self.now = moment
            self.iterate()
        self.now = time

    def due(self) -> Iterator[datetime]:
        yield from self.planned.values()
        for run in self.runs.values():
            if run.ends_at is not None:
                yield run.ends_at
        for slot in self.slots.values():
            yield from (slot.eligible_at, slot.ends_at)

    def iterate(self) -> None:
        """Until nothing moves: by time, then what is asked and lost, then what waits."""
        before, tasks = self.planned, {id: workload.tasks for id, workload in self.waiting.items()}
        self.pass_over_all()
        self.check()
        for workload_id, start in before.items():
            # I10: who was promised a start has it, however much was booked and placed since.
            if workload_id in self.waiting and self.waiting[workload_id].tasks == tasks[workload_id]:
                assert self.planned.get(workload_id, start) <= start, "its start was put off"
                assert start > self.now, "its start was planned and came, and it waits"

    def pass_over_all(self) -> None:
        while self.by_time() or self.decide():
            pass
        waiting = sorted(self.waiting.values(), key=lambda w: w.id)
        decisions = self.scheduler.place(waiting, self.now).decisions
        for decision in decisions:
            self.start(decision)
        self.planned = {d.workload.id: d.planned_start for d in decisions if d.planned_start is not None}
        self.update_nodes()

    def by_time(self) -> bool:
        self.runs = {id: run for id, run in self.runs.items() if run.ends_at is None or run.ends_at > self.now}
        self.update_nodes()
        due = due_actions([DueTimeslot(slot, True) for slot in self.slots.values()], self.use(), {}, self.now)
        for slot in self.commit(due.updates):
            if slot.status in OVER:
                self.calendar.drop(slot.id)
            else:
                self.calendar.put(slot)
        return bool(due.updates)

    def decide(self) -> bool:
        updates = self.reservations.decide(self.now)
        self.reservations.settle(updates, self.commit(updates))
        return bool(updates)

    def use(self) -> dict[UUID, TimeslotUse]:
        inside = {run.slot for run in self.runs.values()}
        return {id: TimeslotUse(1, 0, id in self.placed, id in inside, None) for id in self.slots}

    def start(self, decision: Decision) -> None:
        workload = decision.workload
        for placement in decision.placements:
            limit, slot = workload.time_limit_seconds, workload.booking
            ends = [] if limit is None else [self.now + timedelta(seconds=limit)]
            ends += [] if slot is None else [self.slots[slot].ends_at]
            run = Run(placement.node_name, workload.request["cpu"] // 1000, min(ends, default=None), slot, workload.id)
            self.runs[placement.task_id] = run
            if slot is not None:
                self.placed.add(slot)
        placed = {placement.task_id for placement in decision.placements}
        left = tuple(task for task in workload.tasks if task.id not in placed)
        if left:
            self.waiting[workload.id] = replace(workload, tasks=left)
        else:
            del self.waiting[workload.id]

    # --- what people and machines do ---

    def ask(self) -> None:
        starts_at = self.now + self.random.randrange(0, 24 * 14) * HOUR / 2
        self.put(
            Timeslot(
                id=self.new_id(),
                name="slot",
                kind=self.random.choice([TimeslotKind.LAB, TimeslotKind.BOOKING]),
                pool="default",
                status=S.REQUESTED,
                starts_at=starts_at,
                ends_at=starts_at + self.random.randrange(1, 48) * HOUR / 2,
                lead_seconds=self.random.choice([0, 600, 2100]),
                request={"cpu": 1000 * self.random.randrange(1, 5)},
                count=self.random.randrange(1, 4),
                release_after_seconds=self.random.choice([None, 3600]),
            )
        )

    def change(self) -> None:
        """Longer, shorter, or more of it."""
        live = [slot for slot in self.slots.values() if slot.status in (S.CONFIRMED, S.ACTIVE) and slot.request]
        if live:
            old = self.random.choice(live)
            ends_at = max(old.starts_at + HOUR, old.ends_at + self.random.randrange(-4, 8) * HOUR)
            count = old.count + self.random.choice([0, 0, 1])
            changed = replace(old, status=S.REQUESTED, replaces=old.id, placements={}, version=1)
            self.put(replace(changed, id=self.new_id(), ends_at=ends_at, count=count))

    def cancel(self) -> None:
        live = [slot for slot in self.slots.values() if slot.status is not S.REQUESTED]
        if live:
            slot = self.random.choice(live)
            for gone in self.commit([TimeslotUpdate(slot, S.CANCELLED)]):
                self.calendar.drop(gone.id)

    def submit(self) -> None:
        """Work inside a timeslot that takes some, or beside all of them."""
        open_ones = [slot for slot in self.slots.values() if slot.status is S.ACTIVE and slot.request]
        slot = self.random.choice(open_ones) if open_ones and self.random.random() < 0.6 else None
        cores = slot.request["cpu"] // 1000 if slot is not None else self.random.randrange(1, 6)
        workload_id = self.new_id()
        limited = self.random.random() < 0.9
        self.waiting[workload_id] = Workload(
            id=workload_id,
            name=f"w{workload_id.int}",
            request={"cpu": 1000 * cores},
            tasks=tuple(Task(self.new_id(), n) for n in range(self.random.randrange(1, 3))),
            created_at=self.now,
            time_limit_seconds=self.random.randrange(1, 48) * 1800 if limited else None,
            booking=None if slot is None else slot.id,
        )

    def stop(self) -> None:
        if self.runs:
            del self.runs[self.random.choice(sorted(self.runs))]

    def lose_or_find(self) -> None:
        """A node goes with what ran there, comes back, or is of another size."""
        name = self.random.choice(sorted(NODES))
        if name in self.down:
            self.down.discard(name)
        elif self.random.random() < 0.5:
            self.down.add(name)
            self.runs = {id: run for id, run in self.runs.items() if run.node != name}
        else:
            used = sum(run.cores for run in self.runs.values() if run.node == name)
            self.cores[name] = max(used, self.random.choice([NODES[name], NODES[name] - 2]))
        self.planned = {}

    def maintain(self) -> None:
        starts_at = self.now + self.random.randrange(0, 72) * HOUR
        kind, ends_at = TimeslotKind.MAINTENANCE, starts_at + self.random.randrange(1, 24) * HOUR
        placements = {id_of(self.random.choice(sorted(NODES))): 1}
        self.put(
            Timeslot(
                self.new_id(), "upkeep", kind, "default", S.CONFIRMED, starts_at, ends_at, 0, placements=placements
            )
        )
        self.planned = {}

    # --- what must hold ---

    def check(self) -> None:
        for name, cores in self.cores.items():
            taken = sum(run.cores for run in self.runs.values() if run.node == name)
            assert taken <= cores
            if name in self.down:
                continue
            windows = list(self.windows(name))
            for moment in {self.now, *(begins for _, begins, _, _ in windows)}:
                inside = [w for w in windows if w[1] <= moment < w[2]]
                promised = sum(amount for *_, amount in inside)
                assert promised <= cores, f"I15: {promised} of {cores} cores of {name} are promised at {moment}"
                others = sum(
                    run.cores
                    for run in self.runs.values()
                    if run.node == name
                    and (run.ends_at is None or run.ends_at > moment)
                    and run.slot not in {id for id, *_ in inside}
                )
                if cores == NODES[name]:
                    # What runs on a node that shrank runs on there.
                    assert promised + others <= cores, f"{name} at {moment}: {promised} promised, {others} taken"

    def windows(self, name: str) -> Iterator[tuple[UUID, datetime, datetime, int]]:
        for slot in self.slots.values():
            tasks = slot.placements.get(id_of(name), 0)
            if tasks and slot.status in (S.CONFIRMED, S.ACTIVE) and slot.kind is not TimeslotKind.MAINTENANCE:
                yield slot.id, max(slot.eligible_at, self.now), slot.ends_at, tasks * slot.request["cpu"] // 1000


STEPS = [
    *[Months.ask] * 6,
    *[Months.submit] * 6,
    Months.change,
    Months.cancel,
    Months.stop,
    Months.maintain,
    Months.lose_or_find,
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 8, 23, 27])
def test_invariants_hold_for_months(seed: int):
    months = Months(Random(seed))
    confirmed = 0
    while months.now < NOW + timedelta(days=60):
        months.wait_until(months.now + months.random.randrange(1, 16) * HOUR / 2)
        months.random.choice(STEPS)(months)
        months.iterate()
        confirmed += sum(slot.status in (S.CONFIRMED, S.ACTIVE) for slot in months.slots.values())
    assert confirmed > 100
