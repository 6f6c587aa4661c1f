"""Tasks cancelled while the database does not answer leave no traceback, no delay and no connection behind."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text

from mooring.store.core.engine import Database

PATIENT = 60.0


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    database = Database(postgres_url, name="cancelled")
    yield database
    await database.close()


@pytest.mark.parametrize("busy", [True, False])
async def test_a_task_cancelled_again_while_its_connection_closes_logs_no_traceback(
    database: Database, caplog: pytest.LogCaptureFixture, busy: bool
):
    backends: list[int] = []
    asked = asyncio.Event()

    async def work() -> None:
        async with database.engine.begin() as connection:
            backends.append((await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one())
            asked.set()
            # Frozen from here on: neither a statement nor the rollback is answered.
            await (connection.execute(text("SELECT pg_sleep(600)")) if busy else asyncio.Event().wait())

    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(work())
        await asyncio.wait_for(asked.wait(), PATIENT)
        os.kill(backends[0], signal.SIGSTOP)
        try:
            async with asyncio.timeout(PATIENT):
                while not task.done():
                    task.cancel()
                    await asyncio.wait({task}, timeout=0.1)
            assert task.cancelled()
        finally:
            os.kill(backends[0], signal.SIGCONT)
    assert [record.getMessage() for record in caplog.records] == []


async def test_closing_a_database_closes_its_connections(postgres_url: str):
    database = Database(postgres_url, name="closed")
    async with database.read() as first, database.read() as second:
        for connection in (first, second):
            await connection.execute(text("SELECT 1"))
    await database.ping()
    await database.close()
    onlooker = await asyncpg.connect(postgres_url.replace("+asyncpg", ""))
    try:
        left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'closed'"
        async with asyncio.timeout(PATIENT):
            while await onlooker.fetchval(left):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        await onlooker.close()
