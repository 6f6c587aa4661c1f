"""Expiry of uploads: those that no live workload uses and that have not been used for a while are removed.

So are the remains of crashes: files of interrupted requests, and content that no upload contains.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.concurrency import backoff
from mooring.concurrency.workers import uninterrupted
from mooring.services.uploads.content import ContentFolder
from mooring.services.uploads.uploads import remove, remove_unused
from mooring.store.core.chunks import chunks as parts
from mooring.store.core.engine import Connection, Database
from mooring.store.uploads import chunks, uploads

_log = structlog.get_logger(__name__)
_INTERVAL_SECONDS = 900.0
_SWEEP_EVERY = 96
"""Intervals between two sweeps: once a day, since a sweep lists all content."""
_CHECKED_AT_ONCE = 1000
_INCOMPLETE = timedelta(days=1)
"""Time without progress after which an interrupted upload is removed."""


async def expire_forever(database: Database, content: ContentFolder, retention: timedelta) -> None:
    """Run on every server with an API; several servers with one folder do not disturb each other."""
    for interval in itertools.count():
        await asyncio.sleep(backoff.jittered(_INTERVAL_SECONDS))
        await expire(database, content, retention)
        if interval % _SWEEP_EVERY == 0:
            await sweep(database, content)


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
        interrupted = await chunks.projects_with_unused(connection)
    for project_id in interrupted:
        await remove_unused(database, content, project_id)
    if removed:
        _log.info(f"Removed {removed} uploads that were not used for {retention}")
    return removed


async def sweep(database: Database, content: ContentFolder) -> int:
    """Remove files of interrupted requests, content without a chunk in the database, and folders of projects that do
    not exist; return the number of chunks removed.
    """
    partial_before = time.time() - _INCOMPLETE.total_seconds()
    projects = await asyncio.to_thread(content.projects)
    async with database.read() as connection:
        known = await chunks.known_projects(connection, projects)
    removed = 0
    for project_id in projects:
        await asyncio.to_thread(content.remove_partial, project_id, partial_before)
        for part in parts(await asyncio.to_thread(content.digests, project_id), _CHECKED_AT_ONCE):
            removed += await _remove_uncharged(database, content, project_id, part)
        if project_id not in known:
            await asyncio.to_thread(content.remove_empty, project_id)
    if removed:
        _log.warning(f"Removed {removed} chunks of content that belonged to no upload")
    return removed


async def _remove_uncharged(
    database: Database, content: ContentFolder, project_id: UUID, digests: Sequence[str]
) -> int:
    async with database.read() as connection:
        uncharged = await chunks.absent(connection, project_id, digests)
    if not uncharged:
        return 0

    async def work(connection: Connection) -> int:
        # Again with the lock: an upload may contain it by now.
        await chunks.lock_project(connection, project_id)
        still = await chunks.absent(connection, project_id, uncharged)
        await uninterrupted(content.remove, project_id, still)
        return len(still)

    return await database.write(work, notify=False)
