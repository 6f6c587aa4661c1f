"""A leader with a clock that stands still until a test says otherwise, and short words for its timeslots."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from mooring.binding.binder import Binder
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.controllers.scheduling.timeslots import TimeslotsLoop
from mooring.mirror.mirror import Mirror
from mooring.model.calendar.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.model.lifecycle import TaskStatus
from mooring.model.resources.slots import parse_amounts
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import Kind
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.core.types import AnyRow
from mooring.store.reservations import timeslots
from mooring.store.reservations.timeslots import TimeslotUpdate
from mooring.store.tables import timeslots as timeslots_table
from mooring.store.workloads import time_limits
from tests.store.harness import Harness

S = TimeslotStatus
NINE = datetime(2027, 3, 1, 9, tzinfo=UTC)


class ManualClock:
    """A date that stands still, and seconds of which one passes between two looks at them."""

    def __init__(self) -> None:
        self.at = NINE
        self._looks = 0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        self._looks += 1
        return self.at.timestamp() + self._looks


class Port:
    def __init__(self, harness: Harness, clock: ManualClock) -> None:
        self.harness = harness
        self.clock = clock
        self.mirror = Mirror(harness.database)
        self.scheduling = SchedulingLoop(
            self.mirror, Binder(harness.database), harness.leadership, reconcile_interval=1e9
        )
        self.timeslots = TimeslotsLoop(harness.fenced)

    async def iterate(self, **later: float) -> None:
        """Let time pass, then everything that it brings about."""
        self.clock.at += timedelta(**later)
        for _ in range(4):
            while await self.timeslots.once():
                pass
            while await self.scheduling.once():
                pass

    async def ask(
        self,
        name: str = "lecture",
        *,
        cpu: int = 4,
        count: int = 1,
        start: float = 60,
        minutes: float = 60,
        lead: float = 35,
        kind: TimeslotKind = TimeslotKind.BOOKING,
        **more: Any,
    ) -> UUID:
        """Ask for a timeslot that starts so many minutes from now."""
        starts_at = self.clock.at + timedelta(minutes=start)
        principal = self.harness.principal
        values: dict[str, Any] = {
            "id": new_id(),
            "name": name,
            "kind": kind,
            "pool": "default",
            "status": S.REQUESTED,
            "starts_at": starts_at,
            "ends_at": starts_at + timedelta(minutes=minutes),
            "lead_seconds": int(lead * 60),
            "request": parse_amounts({"cpu": cpu, "memory": "1Mi"}),
            "count": count,
            "user_id": principal.user_id,
            "project_id": principal.project_id,
            "domain_id": principal.domain_id,
            "access_key": principal.access_key,
        }
        slot = Timeslot(**(values | more))
        await self.harness.database.write(lambda c: timeslots.insert(c, [slot], self.clock.at))
        return slot.id

    async def book(self, name: str = "lecture", **how: Any) -> UUID:
        """Ask, and be answered."""
        timeslot_id = await self.ask(name, **how)
        await self.iterate()
        return timeslot_id

    async def maintain(self, *node_ids: UUID, start: float = 60, minutes: float = 60) -> UUID:
        placements = dict.fromkeys(node_ids, 1)
        kind = TimeslotKind.MAINTENANCE
        how: dict[str, Any] = {"status": S.CONFIRMED, "placements": placements, "request": {}, "kind": kind, "lead": 0}
        return await self.ask("upkeep", start=start, minutes=minutes, **how)

    async def cancel(self, timeslot_id: UUID) -> None:
        slot = await self.slot(timeslot_id)
        await self.harness.database.write(
            lambda c: timeslots.apply_updates(c, [TimeslotUpdate(slot, S.CANCELLED)], self.clock.at)
        )

    async def submit(self, name: str, booking: UUID | None = None, *, cpu: int = 1, **more: Any) -> UUID:
        """A session, inside a timeslot or not."""
        schedule = ScheduleOptions(booking=booking, time_limit_seconds=more.pop("limit", None))
        return await self.harness.submit(name, kind=Kind.SESSION, cpu=cpu, memory="1Mi", schedule=schedule, **more)

    async def run(self, workload_id: UUID) -> None:
        """Report the tasks as running, as the agents of their nodes do."""
        for task in await self.harness.tasks(workload_id):
            await self.harness.move(task, TaskStatus.PREPARING, TaskStatus.RUNNING)

    async def extend(self, workload_id: UUID, seconds: int) -> None:
        """Let it run for this long in total."""

        async def work(connection: Connection) -> None:
            workload = (await lock_workloads(connection, [workload_id]))[workload_id]
            await time_limits.change(connection, workload, seconds, actor="test", now=self.clock.at)

        await self.harness.database.write(work)

    async def stopped(self, workload_id: UUID) -> None:
        for task in await self.harness.tasks(workload_id):
            await self.harness.move(task, TaskStatus.TERMINATING, TaskStatus.CANCELLED)

    async def slot(self, timeslot_id: UUID) -> Timeslot:
        async with self.harness.database.read() as connection:
            return (await timeslots.load(connection, [timeslot_id]))[0]

    async def status(self, timeslot_id: UUID) -> str:
        return (await self.slot(timeslot_id)).status

    async def placements(self, timeslot_id: UUID) -> Mapping[str, int]:
        """By the names of nodes."""
        found = (await self.slot(timeslot_id)).placements
        return {(await self.harness.node_row(node_id)).name: tasks for node_id, tasks in found.items()}

    async def row(self, timeslot_id: UUID) -> AnyRow:
        (found,) = await self.harness.rows(timeslots_table.select().where(timeslots_table.c.id == timeslot_id))
        return found

    async def code(self, timeslot_id: UUID) -> str | None:
        reason = (await self.row(timeslot_id)).reason
        return None if reason is None else reason["code"]

    async def node_of(self, workload_id: UUID) -> list[str | None]:
        return [task.node_name for task in await self.harness.tasks(workload_id)]

    async def why(self, workload_id: UUID) -> str:
        return str((await self.harness.workload(workload_id)).reason["code"])
