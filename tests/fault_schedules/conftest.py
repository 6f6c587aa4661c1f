"""The initial state of every schedule, created once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault_schedules import schedules
from tests.fault_schedules.world import Prepared


@pytest.fixture(scope="session")
def prepared(sqlite_template: Path) -> Iterator[Prepared]:
    world = schedules.prepare(sqlite_template)
    yield world
    world.store.close()
