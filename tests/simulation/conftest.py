"""The world that every schedule begins with, made once."""

from pathlib import Path

import pytest

from tests.simulation import schedules
from tests.simulation.world import Prepared


@pytest.fixture(scope="session")
def prepared(sqlite_template: Path) -> Prepared:
    return schedules.prepare(sqlite_template)
