"""Signals between processes on one PostgreSQL: LISTEN on a dedicated connection."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from sqlalchemy.engine import URL

from mooring.coordination.outage import Outage
from mooring.coordination.signals import Signal
from mooring.store.control.events import read_notification
from mooring.store.core.engine import connect
from mooring.store.core.postgres import CHANNEL

_RECONNECT_SECONDS = 1.0


async def listen(url: URL, signal: Signal, *, own: str = "") -> None:
    """Forward the database's notifications to `signal` indefinitely, and reconnect after a lost connection.

    `own`: the origin of notifications that are left out, since this process signals its own commits itself.
    """
    outage = Outage("The database", "signals of other servers do not arrive, and their work is found by the timer")
    while True:
        try:
            await _listen_once(url, signal, own, outage)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            outage.failed(error)
        await asyncio.sleep(_RECONNECT_SECONDS)


async def _listen_once(url: URL, signal: Signal, own: str, outage: Outage) -> None:
    """Forward notifications until the connection is lost."""
    lost = asyncio.Event()

    def forward(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
        origin, topics = read_notification(payload)
        if not own or origin != own:
            signal.send(topics)

    connection = await connect(url)
    try:
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(CHANNEL, forward)
        outage.over()
        # Covers commits made before this connection listened.
        signal.send()
        await lost.wait()
    finally:
        await _close(connection)


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=1)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
