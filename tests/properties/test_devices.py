"""Devices under random fractional load, from the decision to the ledger: each share on its device, none given twice."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from mooring.binding.binder import Binder
from mooring.controllers.nodes.simulation import SimulationLoop
from mooring.controllers.scheduling.holds import HoldsLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.resources.devices import WHOLE
from mooring.model.workloads.workload import Kind
from mooring.scheduling.cluster.device_sharing import allocate
from mooring.services.administration.pools import PoolAdmin
from mooring.store.core.engine import Database
from mooring.store.core.types import AnyRow
from mooring.store.tables import node_devices, tasks
from mooring.wire.cluster.pools import PoolChange
from tests.properties import proofs
from tests.selection import examples
from tests.servers import PostgresServer
from tests.store.harness import Harness

Step = tuple[str, int]
MACHINES = st.lists(st.integers(1, 4), min_size=1, max_size=3)
# How much the tasks of a new workload ask for, in thousandths of a device; or the end of one of those that run.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from([1, 10, 250, 330, 500, 700, 999, 1000, 1500, 2000, 2500])),
        st.tuples(st.just("end"), st.integers(0, 9)),
    ),
    min_size=6,
    max_size=14,
)
BINDINGS = st.sampled_from(["optimistic", "pessimistic", "two_phase"])
EVERYTHING = list(HealthCheck)


@given(machines=MACHINES, steps=STEPS, binding=BINDINGS, fragmentation=st.booleans())
@settings(max_examples=examples(8), deadline=None, suppress_health_check=EVERYTHING)
def test_no_device_is_allocated_twice_on_sqlite(
    sqlite_template: Path, machines: list[int], steps: list[Step], binding: str, fragmentation: bool
):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mooring.db"
        shutil.copy(sqlite_template, file)
        run(f"sqlite+aiosqlite:///{file}", machines, steps, binding, fragmentation)


@pytest.mark.slow
@given(machines=MACHINES, steps=STEPS, binding=BINDINGS, fragmentation=st.booleans())
@settings(max_examples=examples(3), deadline=None, suppress_health_check=EVERYTHING)
def test_no_device_is_allocated_twice_on_postgresql(
    postgres_server: PostgresServer,
    postgres_template: str,
    machines: list[int],
    steps: list[Step],
    binding: str,
    fragmentation: bool,
):
    name = postgres_server.create_database(template=postgres_template)
    run(postgres_server.url(name), machines, steps, binding, fragmentation)
    postgres_server.drop_database(name)


def run(url: str, machines: Sequence[int], steps: Sequence[Step], binding: str, fragmentation: bool) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(load(Database(url), machines, steps, binding, fragmentation))


async def load(
    database: Database, machines: Sequence[int], steps: Sequence[Step], binding: str, fragmentation: bool
) -> None:
    harness = await Harness.open(database)
    change = PoolChange.model_validate({"binding": binding, "fragmentation": fragmentation})
    await PoolAdmin(database).change("default", change)
    for number, gpus in enumerate(machines):
        await harness.node(f"n{number}", cpu=64, memory="64Gi", simulated=True, slots={"gpu": gpus})
    scheduling = SchedulingLoop(Mirror(database), Binder(database), harness.leadership)
    loops = (scheduling, SimulationLoop(harness.fenced), HoldsLoop(harness.fenced))
    running: list[UUID] = []
    for number, (what, amount) in enumerate(steps):
        if what == "submit":
            slots = {"gpu": f"{amount}m"}
            running.append(await harness.submit(f"w{number}", kind=Kind.SESSION, replicas=2, cpu="1m", slots=slots))
        elif running:
            await harness.stop(running.pop(amount % len(running)))
            await loops[1].once()
        for loop in (*loops, loops[1]):
            await loop.once()
        await check(harness, fragmentation)
    scheduling.close()
    await database.close()


async def check(harness: Harness, fragmentation: bool) -> None:
    await proofs.check_devices(harness)
    assert await proofs.excesses(harness) == {}
    assert await harness.findings() == []
    free: dict[UUID, list[int]] = {}
    for row in await harness.rows(select(node_devices).order_by(node_devices.c.node_id, node_devices.c.device_index)):
        free.setdefault(row.node_id, []).append(row.capacity - row.taken)
    for task in await harness.rows(select(tasks)):
        if task.status == "RUNNING":
            check_shares(task, fragmentation)
        elif task.status == "PENDING":
            # Nobody waits for what there is.
            asked = task.requested_slots["gpu"]
            assert all(allocate(left, asked, fragmentation=fragmentation) is None for left in free.values())


def check_shares(task: AnyRow, fragmentation: bool) -> None:
    """As few devices as can hold it, unless it may be split; each once, in shares that are alike."""
    asked = task.requested_slots["gpu"]
    indexes = [index for index, _ in task.devices["gpu"]]
    shares = [share for _, share in task.devices["gpu"]]
    assert len(set(indexes)) == len(indexes)
    assert sum(shares) == asked
    assert max(shares) - min(shares) <= 1
    fewest = -(-asked // WHOLE)
    assert len(shares) == fewest or (fragmentation and len(shares) > fewest)
