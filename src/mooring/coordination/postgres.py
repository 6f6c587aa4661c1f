"""Signals between processes on one PostgreSQL: LISTEN, on a connection of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import structlog
from sqlalchemy.engine import URL

from mooring.coordination.signals import Signal
from mooring.store.engine import connect
from mooring.store.events import CHANNEL

_log = structlog.get_logger(__name__)
_RECONNECT_SECONDS = 1.0


async def listen(url: URL, signal: Signal) -> None:
    """Pass the database's notifications on to `signal`, for ever; a lost connection is opened again."""
    while True:
        lost = asyncio.Event()
        try:
            connection = await connect(url)
        except (OSError, asyncpg.PostgresError) as error:
            _log.warning("Cannot listen for signals; passes run on the timer", error=str(error))
            await asyncio.sleep(_RECONNECT_SECONDS)
            continue
        try:
            connection.add_termination_listener(lambda _, lost=lost: lost.set())
            await connection.add_listener(CHANNEL, lambda *_: signal.send())
            # What was committed while nobody listened.
            signal.send()
            await lost.wait()
        finally:
            await _close(connection)


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=1)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
