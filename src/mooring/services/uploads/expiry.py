"""Expiry of uploads: those that no live workload uses and that have not been used for a while are removed."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import structlog

from mooring.clock import now
from mooring.concurrency import backoff
from mooring.services.uploads.content import ContentFolder
from mooring.services.uploads.uploads import remove
from mooring.store.core.engine import Database
from mooring.store.uploads import uploads

_log = structlog.get_logger(__name__)
_INTERVAL_SECONDS = 900.0
_INCOMPLETE = timedelta(days=1)
"""Time without progress after which an interrupted upload is removed."""


async def expire_forever(database: Database, content: ContentFolder, retention: timedelta) -> None:
    """Run on every server with an API; several servers with one folder do not disturb each other."""
    while True:
        await asyncio.sleep(backoff.jittered(_INTERVAL_SECONDS))
        await expire(database, content, retention)


async def expire(database: Database, content: ContentFolder, retention: timedelta) -> int:
    """Remove expired uploads with their content; return their number."""
    at = now()
    incomplete_before = at - min(_INCOMPLETE, retention)
    store_id = await asyncio.to_thread(content.store_id)
    async with database.read() as connection:
        due = await uploads.expired(connection, store_id, before=at - retention, incomplete_before=incomplete_before)
    removed = 0
    for upload_id in due:
        removed += await remove(database, content, upload_id, before=incomplete_before)
    async with database.read() as connection:
        projects = await uploads.projects_of_store(connection)
    await asyncio.to_thread(content.clean_up, projects, time.time() - _INCOMPLETE.total_seconds())
    if removed:
        _log.info(f"Removed {removed} uploads that were not used for {retention}")
    return removed
