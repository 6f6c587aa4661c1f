"""Presence: every server records its heartbeat and its kind of election."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from mooring.clock import monotonic, now
from mooring.coordination.outage import Outage
from mooring.model.errors import Conflict
from mooring.store.control import servers
from mooring.store.control.servers import ServerRecord
from mooring.store.core.engine import Connection, Database

_BEAT_SECONDS = 10.0
_POLL_SECONDS = 0.5
_REMEMBERED = timedelta(days=1)
_WORDS = {"alone": "no other service", "database": "the database", "etcd": "etcd"}
_GOODBYE_SECONDS = 2.0
SILENT_AFTER = timedelta(seconds=3 * _BEAT_SECONDS)
"""Silence after which a server counts as absent."""


def is_there(server: ServerRecord, at: datetime) -> bool:
    return at - server.last_seen_at < SILENT_AFTER


class Outages(Protocol):
    @property
    def outage(self) -> Outage | None: ...


async def attend(
    database: Database,
    name: str,
    *,
    role: str,
    url: str,
    version: str,
    election: str | None = None,
    candidate: Outages | None = None,
) -> None:
    """Record this server until cancelled, and at once when its candidate's outage changes; then remove the record."""
    server = ServerRecord(name, role, url, version, started_at=now(), last_seen_at=now(), election=election)
    outage = Outage("The database", "this server is missing from the list of servers")
    reported: tuple[str | None, datetime | None] | None = None
    beat_at = 0.0
    try:
        while True:
            if (found := _problem(candidate)) != reported or monotonic() >= beat_at:
                reported, beat_at = found, monotonic() + _BEAT_SECONDS
                record = replace(server, last_seen_at=now(), problem=found[0], problem_since=found[1])
                try:
                    await database.write(partial(_beat, server=record), notify=False)
                except Exception as error:
                    outage.failed(error)
                else:
                    outage.over()
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        with suppress(Exception):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await database.write(lambda c: servers.leave(c, name), notify=False)


def _problem(candidate: Outages | None) -> tuple[str | None, datetime | None]:
    found = None if candidate is None else candidate.outage
    return (None, None) if found is None else (found.reason, found.since)


async def refuse_other_election(database: Database, name: str, election: str) -> None:
    """Raise Conflict if a present server uses another kind of election, since each kind would elect a leader."""
    async with database.read() as connection:
        present = await servers.everyone(connection)
    at = now()
    for other in present:
        if other.election not in (None, election) and other.name != name and is_there(other, at):
            ago = (at - other.last_seen_at).total_seconds()
            raise Conflict(
                f"server {other.name} (seen {ago:.0f} s ago) elects the leader through {_WORDS[other.election or '']}, "
                f"and this server would through {_WORDS[election]}: all servers on one database elect in the same way. "
                "Set ETCD_HOST as it is set there; or, to change it, stop all servers first and wait "
                f"{SILENT_AFTER.total_seconds():.0f} s after one that was killed",
                code="election-mismatch",
            )


async def _beat(connection: Connection, server: ServerRecord) -> None:
    await servers.note(connection, server)
    await servers.forget(connection, server.last_seen_at - _REMEMBERED)
