"""One damaged cell or lost row after a random history: mended to what was there, or reported as ambiguous."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from sqlalchemy import Table, and_, delete, insert, select, update

from mooring.model.lifecycle import TaskStatus, WorkloadStatus, is_end
from mooring.store.core.types import AnyRow
from mooring.store.tables import (
    device_allocations,
    holds,
    metadata,
    node_devices,
    node_resources,
    nodes,
    port_allocations,
    resource_allocations,
    tasks,
    tenant_resources,
    workloads,
)
from tests.properties.machine import on, run
from tests.properties.test_commitments import Commitments
from tests.store.audit.damage import Busy
from tests.store.harness import LONG_AGO

CELLS: dict[Table, tuple[str, ...]] = {
    tasks: (
        "status",
        "node_id",
        "node_name",
        "requested_slots",
        "occupied_slots",
        "ports",
        "devices",
        "created_at",
        "scheduled_at",
        "started_at",
        "ended_at",
        "freed_at",
    ),
    resource_allocations: (
        "requested",
        "held",
        "reserved",
        "used",
        "created_at",
        "held_at",
        "reserved_at",
        "used_at",
        "freed_at",
    ),
    device_allocations: ("amount", "freed_at", "node_id"),
    port_allocations: ("task_id",),
    holds: ("node_id", "created_at"),
    workloads: ("status", "ended_at", "requested_slots"),
    node_resources: ("capacity", "allocatable", "held", "reserved", "used", "leaving"),
    node_devices: ("taken",),
    tenant_resources: ("reserved", "used"),
}
LOST_ROWS = (resource_allocations, device_allocations, port_allocations, holds, node_resources)
NAMES = st.sampled_from([table.name for table in CELLS])
PICK = st.integers(0, 1000)


class Damaged(Commitments):
    @precondition(lambda self: self.workload_ids)
    @rule(damages=st.lists(st.tuples(NAMES, PICK, PICK, PICK), min_size=4, max_size=8))
    def cells(self, damages: list[tuple[str, int, int, int]]) -> None:
        for name, *picks in damages:
            self.do(self._damage_cell(metadata.tables[name], *picks))

    @precondition(lambda self: self.workload_ids)
    @rule(name=st.sampled_from([table.name for table in LOST_ROWS]), row=PICK)
    def lost(self, name: str, row: int) -> None:
        self.do(self._lose_row(metadata.tables[name], row))

    async def _damage_cell(self, table: Table, row: int, column: int, how: int) -> None:
        rows = await self.harness.rows(select(table).order_by(*table.primary_key.columns))
        if not rows:
            return
        damaged, name = rows[row % len(rows)], CELLS[table][column % len(CELLS[table])]
        if _has_no_other_source(table, name, damaged):
            return
        before = getattr(damaged, name)
        value = await self._other(table, name, before, how)
        if value == before or (value is None and not table.c[name].nullable):
            return
        statement = update(table).where(_key(table, damaged))
        await self._is_mended_or_reported(
            statement.values({name: value}),
            statement.values({name: before}),
            f"{table.name}.{name}: {before} to {value}",
        )

    async def _lose_row(self, table: Table, row: int) -> None:
        rows = await self.harness.rows(select(table).order_by(*table.primary_key.columns))
        if not rows:
            return
        lost = rows[row % len(rows)]
        # The rows of devices that a task had once are a record of their own.
        if table is device_allocations and lost.freed_at is not None:
            return
        gone = delete(table).where(_key(table, lost))
        again = insert(table).values(dict(lost._mapping))
        await self._is_mended_or_reported(gone, again, f"{table.name}: {lost} deleted", undo_first=gone)

    async def _is_mended_or_reported(self, damage: Any, undo: Any, what: str, *, undo_first: Any = None) -> None:
        busy = Busy(self.harness, [], {})
        before = _comparable(await busy.state())
        # A machine that came back smaller is above capacity without any damage.
        known = await self.harness.findings()
        await self.harness.execute(damage)
        found = [each for each in await self.harness.findings() if each not in known]
        assert found, f"{what} is not found"
        done = await self.harness.repair()
        left = [each for each in await self.harness.findings() if each not in known]
        if not left:
            assert _comparable(await busy.state()) == before, f"{what} is mended to another state: {done.corrections}"
            return
        assert any(finding.ambiguous for finding in left), f"{what} is found and not mended: {left}"
        if undo_first is not None:
            await self.harness.execute(undo_first)
        await self.harness.execute(undo)
        await self.harness.repair()
        assert _comparable(await busy.state()) == before, f"{what} was in doubt, and something was changed"

    async def _other(self, table: Table, name: str, before: Any, how: int) -> Any:
        """Another value of the same kind, or none."""
        if name == "status":
            statuses = list(TaskStatus) if table is tasks else list(WorkloadStatus)
            return statuses[how % len(statuses)].value
        if name == "node_id":
            ids = [row.id for row in await self.harness.rows(select(nodes.c.id).order_by(nodes.c.id))]
            return [*ids, None][how % (len(ids) + 1)]
        if name == "task_id":
            ids = [row.id for row in await self.harness.rows(select(tasks.c.id).order_by(tasks.c.id))]
            return ids[how % len(ids)]
        if name == "node_name":
            return ["elsewhere", None][how % 2]
        if name.endswith("_at"):
            moment: datetime = before or LONG_AGO
            return [moment + timedelta(hours=1), None][how % 2]
        if name in ("ports", "devices"):
            return None
        if name.endswith("_slots"):
            return [{}, {"cpu": 1}, {**before, "cpu": 7}][how % 3]
        return [0, before + 1, before + 1000][how % 3]


def _has_no_other_source(table: Table, name: str, row: AnyRow) -> bool:
    """The node of a task that is over may have been removed, and nothing else has to know which one it was."""
    over = table is tasks and is_end(TaskStatus(row.status)) and row.freed_at is not None
    return over and name in ("node_id", "node_name")


def _key(table: Table, row: AnyRow) -> Any:
    return and_(*(column == getattr(row, column.name) for column in table.primary_key.columns))


def _comparable(state: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The terms of a hold that was lost are as those of a new one, and a counter of nothing need not be there."""
    terms = {"purpose", "expires_at"}
    held = [{name: value for name, value in row.items() if name not in terms} for row in state["holds"]]
    charged = [row for row in state["tenant_resources"] if row["used"] or row["reserved"]]
    return {**state, "holds": sorted(held, key=str), "tenant_resources": charged}


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_damage_is_repaired_exactly_or_reported(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    examples = 5 if database == "sqlite" else 2
    run(on(database, Damaged, request, tmp_path), monkeypatch, max_examples=examples, stateful_step_count=30)


@pytest.mark.soak
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_damage_is_repaired_over_long_histories(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run(on(database, Damaged, request, tmp_path), monkeypatch, max_examples=40, stateful_step_count=50)
