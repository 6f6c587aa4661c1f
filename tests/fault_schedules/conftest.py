"""The initial state of every schedule, created once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation import schedules
from tests.simulation.world import Prepared


@pytest.fixture(scope="session")
def prepared(sqlite_template: Path) -> Iterator[Prepared]:
    world = schedules.prepare(sqlite_template)
    yield world
    world.store.close()
