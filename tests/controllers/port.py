"""A leader with a clock that stands still until a test says otherwise, and short words for its timeslots."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from mooring.binding.binder import Binder
from mooring.controllers.scheduling import SchedulingLoop
from mooring.controllers.timeslots import TimeslotsLoop
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.slots import parse_amounts
from mooring.model.terms import Terms
from mooring.model.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.model.workloads import Kind
from mooring.store import time_limits, timeslots
from mooring.store.engine import Connection
from mooring.store.ids import new_id
from mooring.store.loading import lock_workloads
from mooring.store.tables import timeslots as timeslots_table
from mooring.store.timeslots import Move
from mooring.store.types import AnyRow
from tests.store.harbour import Harbour

S = TimeslotStatus
NINE = datetime(2027, 3, 1, 9, tzinfo=UTC)


class StandingClock:
    def __init__(self) -> None:
        self.at = NINE

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


class Port:
    def __init__(self, harbour: Harbour, clock: StandingClock) -> None:
        self.harbour = harbour
        self.clock = clock
        self.mirror = Mirror(harbour.database)
        self.scheduling = SchedulingLoop(self.mirror, Binder(harbour.database), harbour.office, reconcile_interval=1e9)
        self.timeslots = TimeslotsLoop(harbour.database, harbour.office)

    async def turn(self, **later: float) -> None:
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
        principal = self.harbour.principal
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
        await self.harbour.database.write(lambda c: timeslots.insert(c, [slot], self.clock.at))
        return slot.id

    async def book(self, name: str = "lecture", **how: Any) -> UUID:
        """Ask, and be answered."""
        timeslot_id = await self.ask(name, **how)
        await self.turn()
        return timeslot_id

    async def maintain(self, *node_ids: UUID, start: float = 60, minutes: float = 60) -> UUID:
        places = dict.fromkeys(node_ids, 1)
        kind = TimeslotKind.MAINTENANCE
        how: dict[str, Any] = {"status": S.CONFIRMED, "places": places, "request": {}, "kind": kind, "lead": 0}
        return await self.ask("upkeep", start=start, minutes=minutes, **how)

    async def cancel(self, timeslot_id: UUID) -> None:
        slot = await self.slot(timeslot_id)
        await self.harbour.database.write(lambda c: timeslots.move(c, [Move(slot, S.CANCELLED)], self.clock.at))

    async def submit(self, name: str, booking: UUID | None = None, *, cpu: int = 1, **more: Any) -> UUID:
        """A session, inside a timeslot or not."""
        terms = Terms(booking=booking, time_limit_seconds=more.pop("limit", None))
        return await self.harbour.submit(name, kind=Kind.SESSION, cpu=cpu, memory="1Mi", terms=terms, **more)

    async def run(self, workload_id: UUID) -> None:
        """What the agents of its nodes would report."""
        for task in await self.harbour.tasks(workload_id):
            await self.harbour.move(task, TaskStatus.PREPARING, TaskStatus.RUNNING)

    async def extend(self, workload_id: UUID, seconds: int) -> None:
        """Let it run for so long in all."""

        async def work(connection: Connection) -> None:
            workload = (await lock_workloads(connection, [workload_id]))[workload_id]
            await time_limits.change(connection, workload, seconds, actor="test", now=self.clock.at)

        await self.harbour.database.write(work)

    async def stopped(self, workload_id: UUID) -> None:
        for task in await self.harbour.tasks(workload_id):
            await self.harbour.move(task, TaskStatus.TERMINATING, TaskStatus.CANCELLED)

    async def slot(self, timeslot_id: UUID) -> Timeslot:
        async with self.harbour.database.read() as connection:
            return (await timeslots.load(connection, [timeslot_id]))[0]

    async def status(self, timeslot_id: UUID) -> str:
        return (await self.slot(timeslot_id)).status

    async def places(self, timeslot_id: UUID) -> Mapping[str, int]:
        """By the names of nodes."""
        found = (await self.slot(timeslot_id)).places
        return {(await self.harbour.node_row(node_id)).name: tasks for node_id, tasks in found.items()}

    async def row(self, timeslot_id: UUID) -> AnyRow:
        (found,) = await self.harbour.rows(timeslots_table.select().where(timeslots_table.c.id == timeslot_id))
        return found

    async def code(self, timeslot_id: UUID) -> str | None:
        reason = (await self.row(timeslot_id)).reason
        return None if reason is None else reason["code"]

    async def node_of(self, workload_id: UUID) -> list[str | None]:
        return [task.node_name for task in await self.harbour.tasks(workload_id)]

    async def why(self, workload_id: UUID) -> str:
        return str((await self.harbour.workload(workload_id)).reason["code"])
