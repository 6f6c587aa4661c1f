"""Presence: every server says now and then that it is there, and for how long the silent ones are remembered."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from mooring.clock import now
from mooring.store import servers
from mooring.store.engine import Connection, Database
from mooring.store.servers import ServerRecord

_log = structlog.get_logger(__name__)
_BEAT_SECONDS = 10.0
_REMEMBERED = timedelta(days=1)
_GOODBYE_SECONDS = 2.0
SILENT_AFTER = timedelta(seconds=3 * _BEAT_SECONDS)
"""Who was not seen for so long does not count on."""


def is_there(server: ServerRecord, at: datetime) -> bool:
    return at - server.last_seen_at < SILENT_AFTER


async def attend(database: Database, name: str, *, role: str, url: str, version: str) -> None:
    """Be seen until cancelled; who leaves in order is taken off the list."""
    server = ServerRecord(name, role, url, version, started_at=now(), last_seen_at=now())
    try:
        while True:
            try:
                await database.write(lambda c: _beat(c, replace(server, last_seen_at=now())), wakes=False)
            except Exception as error:
                _log.warning("Cannot say that this server is there", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(_BEAT_SECONDS)
    finally:
        with suppress(Exception):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await database.write(lambda c: servers.leave(c, name), wakes=False)


async def _beat(connection: Connection, server: ServerRecord) -> None:
    await servers.note(connection, server)
    await servers.forget(connection, server.last_seen_at - _REMEMBERED)
