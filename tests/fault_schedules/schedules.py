"""Runs of single schedules: a seed in, the outcome out."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from mooring.model.resources.slots import parse_amounts
from mooring.store.core.engine import Connection
from mooring.store.nodes import nodes
from tests.fault_schedules import checks
from tests.fault_schedules.gate import DirectDatabase, Fate, Store
from tests.fault_schedules.machines import credential_of
from tests.fault_schedules.world import Prepared, World, simulated
from tests.store.harness import Harness

MACHINES = 2


@dataclass(frozen=True)
class Outcome:
    seed: int
    violations: list[str]
    digest: str
    trace: list[str]
    injected: dict[Fate, int]
    faults: int
    seconds: float
    terms: int
    started: int


def prepare(migrated: Path) -> Prepared:
    """Create the database that all schedules begin with: tenants, a pool and machines."""
    template = sqlite3.connect(":memory:", isolation_level=None)
    with sqlite3.connect(migrated) as source:
        source.backup(template)
    source.close()
    store = Store(template)
    store.reset()
    capacity = parse_amounts({"cpu": 4, "memory": "16Gi"})

    async def seed() -> Prepared:
        harness = await Harness.open(DirectDatabase(store))
        names = [f"machine-{number}" for number in range(MACHINES)]
        machines = {name: await harness.node(name, cpu=4) for name in names}
        for name, node_id in machines.items():
            await harness.database.write(partial(_renew, node_id, credential_of(name)))
        return Prepared(store, harness, machines, capacity)

    failures: list[str] = []
    with simulated(failures.append) as loop:
        prepared = loop.run(seed())
    assert not failures
    store.raw.backup(template)
    return prepared


async def _renew(node_id: UUID, credential: str, connection: Connection) -> None:
    await nodes.renew_credential(connection, node_id, credential)


def run(prepared: Prepared, seed: int) -> Outcome:
    """Run a schedule. The same seed gives the same outcome."""
    prepared.store.reset()
    failures: list[str] = []
    with simulated(failures.append, seed) as loop:
        world = World(loop, prepared, seed)

        async def story() -> None:
            await world.run()
            await checks.check_end(world)

        try:
            loop.run(story())
        except AssertionError as error:
            failures.append(f"{type(error).__name__}: {error}")
    return Outcome(
        seed=seed,
        violations=[*world.gate.violations, *failures, *loop.failures],
        digest=world.gate.digest,
        trace=world.gate.trace,
        injected=world.gate.injected,
        faults=world.faults,
        seconds=loop.time(),
        terms=world.gate.terms,
        started=len(world.started),
    )
