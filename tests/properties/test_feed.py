"""The feed as readers resume it, while real transactions of PostgreSQL are open, commit in any order or roll back."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mooring.clock import now
from mooring.model.events import Cursor, parse_cursor
from mooring.store.control import events, feed
from mooring.store.core.engine import Database
from mooring.store.core.ids import new_id
from mooring.store.views.events import Watch, page
from tests.selection import examples

WRITERS = 4
Step = tuple[str, int]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, WRITERS - 1)),
        st.tuples(st.sampled_from(["commit", "roll back"]), st.integers(0, WRITERS - 1)),
        st.tuples(st.just("read"), st.integers(1, 3)),
        st.tuples(st.just("forget"), st.just(0)),
    ),
    min_size=10,
    max_size=40,
)


@dataclass
class Reader:
    """Reads a page of a few events at a time and remembers nothing but the cursor, as text."""

    cursor: str
    read: list[tuple[Cursor, UUID]] = field(default_factory=list)

    async def look(self, database: Database, limit: int) -> bool:
        async with database.read() as connection:
            found = await page(connection, parse_cursor(self.cursor), watch=Watch(), limit=limit)
        self.cursor = str(found.next)
        self.read += [(event.cursor, event.object_id) for event in found.events]
        return found.more


@given(taken=steps)
@example(taken=[("write", 0), ("write", 1), ("commit", 1), ("read", 3)])
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_resumed_reader_gets_every_committed_event_once_and_in_one_order(
    shared_postgres_url: str, taken: Sequence[Step]
):
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(scenario(shared_postgres_url, taken))


async def scenario(url: str, taken: Sequence[Step]) -> None:
    database = Database(url)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        async with database.read() as connection:
            reader = Reader(str(await feed.end(connection)))
        writers = [await stack.enter_async_context(database.engine.connect()) for _ in range(WRITERS)]
        written: list[list[UUID]] = [[] for _ in range(WRITERS)]
        committed: set[UUID] = set()
        for what, number in taken:
            match what:
                case "write":
                    one = new_id()
                    await events.append(writers[number], [events.NewEvent("node", one, 1, "x")], now())
                    written[number].append(one)
                case "read":
                    await reader.look(database, number)
                case "forget":
                    # What is older than a day is none of these: the reader is not disturbed.
                    await database.write(lambda c: feed.purge(c, now() - timedelta(days=1)))
                case _:
                    await (writers[number].commit() if what == "commit" else writers[number].rollback())
                    committed |= set(written[number]) if what == "commit" else set()
                    written[number].clear()
        # Those that were slow come last, behind everything that was read.
        for writer, ids in zip(writers, written, strict=True):
            await writer.commit()
            committed |= set(ids)
        while await reader.look(database, 2):
            pass
    cursors = [cursor for cursor, _ in reader.read]
    assert cursors == sorted(set(cursors))
    assert len(reader.read) == len(committed)
    assert {one for _, one in reader.read} == committed
