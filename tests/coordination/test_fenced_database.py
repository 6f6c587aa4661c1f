"""The fenced database: a write commits as a whole under the current term, or not at all."""

import inspect
import pkgutil
from importlib import import_module
from typing import Any, get_type_hints

import pytest
from sqlalchemy import update

import mooring.controllers
from mooring.coordination.fenced_database import FencedDatabase
from mooring.coordination.leadership import Leadership
from mooring.model.errors import LeadershipLost
from mooring.store.core.engine import Connection, Database
from mooring.store.tables import pools
from tests.store.databases import on_sqlite
from tests.store.harness import Harness


async def write_term(connection: Connection, term: int) -> None:
    await connection.execute(update(pools).values(turn=term))


async def written(harness: Harness) -> set[int]:
    return {row.turn for row in await harness.rows(pools.select())}


@on_sqlite
async def test_write_passes_the_term_that_it_has_checked(harness: Harness):
    await harness.fenced.write(write_term)
    assert await written(harness) == {harness.leadership.term}


@on_sqlite
async def test_write_of_a_deposed_leader_fails_as_a_whole(harness: Harness):
    before = await written(harness)
    await Leadership(harness.database, "newer").begin_term()
    with pytest.raises(LeadershipLost, match="is over"):
        await harness.fenced.write(write_term)
    with pytest.raises(LeadershipLost, match="is over"):
        async with harness.fenced.fenced_read():
            pytest.fail("a deposed leader reads as if it led")
    assert await written(harness) == before


@on_sqlite
async def test_write_of_a_process_that_does_not_lead_is_never_sent(harness: Harness):
    before = await written(harness)
    with pytest.raises(LeadershipLost, match="does not lead"):
        await FencedDatabase(harness.database, Leadership(harness.database, "standby")).write(write_term)
    assert await written(harness) == before


def controllers() -> list[type[Any]]:
    """Return every control loop: the classes under mooring.controllers with a coroutine `once`."""
    modules = [
        import_module(found.name)
        for found in pkgutil.walk_packages(mooring.controllers.__path__, "mooring.controllers.")
        if not found.ispkg
    ]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and inspect.iscoroutinefunction(getattr(value, "once", None))
    ]


@pytest.mark.parametrize("controller", controllers(), ids=lambda controller: controller.__name__)
def test_no_controller_has_an_unfenced_database(controller: type[Any]):
    given = get_type_hints(controller.__init__)
    assert Database not in given.values()
    assert FencedDatabase in given.values() or controller.__name__ == "SchedulingLoop"


def test_all_controllers_are_found():
    assert len(controllers()) >= 18
