"""One database for all simulated processes: real SQLite in memory, behind a gate that lets one call in at a time.

The schedule says when a call gets its turn and what becomes of it: nothing, an error before the commit, a commit whose
answer is lost, a process that dies before or after the commit, or one that freezes in the middle and whose session is
ended meanwhile, as PostgreSQL does.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any, NamedTuple, Self, TypeVar

import aiosqlite
from msgspec import json
from sqlalchemy import Connection as SyncConnection
from sqlalchemy import Executable
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from mooring.coordination.leadership import Leadership
from mooring.model.events import Topics
from mooring.store.core.engine import Connection, Database, retry
from mooring.store.core.sqlite import Deferred, do_deferred
from tests.fault_schedules.leases import TTL_SECONDS
from tests.fault_schedules.loop import Process, SimulatedLoop, running_process

R = TypeVar("R")
_URL = "sqlite+aiosqlite://"
FROZEN_SECONDS = 3 * TTL_SECONDS
"""The longest freeze. Most freezes outlast the lease, and some do not."""
_QUICKEST_SECONDS, _SLOWEST_SECONDS = 0.0005, 0.01


class Fate(StrEnum):
    """The outcome of a call."""

    WELL = "well"
    SLOW = "slow"
    REFUSED = "refused"
    LOST_ANSWER = "lost answer"
    CRASH_BEFORE = "crash before the commit"
    CRASH_AFTER = "crash after the commit"
    FROZEN_BEFORE = "frozen before its transaction"
    FROZEN_WITHIN = "frozen within its transaction"
    FROZEN_AFTER = "frozen after the commit"


_OF_READS = frozenset({Fate.WELL, Fate.SLOW, Fate.REFUSED, Fate.FROZEN_BEFORE})


class Role(StrEnum):
    """The purpose of a call."""

    STANDBY = "standby"
    """Includes the reads of a leader."""
    TERM = "term"
    """A write by a leader, or by a process that believes it leads."""
    AGENTS = "agents"
    CLIENTS = "clients"


@dataclass
class InjectedFault:
    """A fate for the first call that it can apply to, after a number of spared calls."""

    fate: Fate
    role: Role
    spared: int

    def applies(self, role: Role, possible: frozenset[Fate]) -> bool:
        if role is not self.role or self.fate not in possible:
            return False
        self.spared -= 1
        return self.spared < 0


class Store:
    """SQLite in memory, with a prepared state to reset it to."""

    def __init__(self, template: sqlite3.Connection) -> None:
        self._template = template
        self.raw = sqlite3.connect(":memory:", isolation_level=None)
        self.raw.execute("pragma foreign_keys=on")
        self.engine: AsyncEngine = create_async_engine(
            _URL, poolclass=StaticPool, creator=partial(_Driver, self.raw), json_deserializer=json.decode
        )
        self._connection: _Immediate | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """The shared connection: opening one takes longer than most queries. An open transaction is rolled back."""
        connection = self._connection = self._connection or await _Immediate(self.engine).open()
        connection.sync.begin()
        self.raw.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.sync.rollback()

    def reset(self) -> None:
        self._template.backup(self.raw)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.sync.close()

    def one(self, query: str, *parameters: object) -> Any:
        return self.raw.execute(query, parameters).fetchone()[0]


class _Immediate(AsyncConnection):
    """A connection that never yields to the event loop: each call completes before anything else can happen."""

    async def open(self) -> Self:
        await self.start()
        return self

    @property
    def sync(self) -> SyncConnection:
        assert self.sync_connection is not None
        return self.sync_connection

    async def execute(self, statement: Executable, parameters: Any = None, **options: Any) -> Any:
        return self.sync.execute(statement, parameters, **options)

    async def commit(self) -> None:
        self.sync.commit()

    async def rollback(self) -> None:
        self.sync.rollback()


class _Driver:
    """A stand-in for the driver's connection that SQLAlchemy expects, with SQLite's own cursors."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = _Inline(connection)
        self.cursor = connection.cursor
        self.commit, self.rollback = connection.commit, connection.rollback
        self.create_function = connection.create_function


class _Inline(aiosqlite.Connection):
    """The driver's connection without its thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(lambda: connection, iter_chunk_size=64)
        self._connection = connection

    async def _execute(self, fn: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return fn(*args, **kwargs)

    def defer(self, work: Deferred) -> None:
        do_deferred(self._conn, work)

    def __del__(self) -> None:
        """Do nothing: there is no thread to stop."""


class Gate:
    def __init__(self, loop: SimulatedLoop, store: Store, random: Random) -> None:
        self._loop = loop
        self._store = store
        self._random = random
        self._inside: Process | None = None
        self._digest = hashlib.blake2b()
        self.pending_faults: list[InjectedFault] = []
        """The fates still to come."""
        self.trace: list[str] = []
        """The events, in order."""
        self.injected: dict[Fate, int] = dict.fromkeys(Fate, 0)
        self.violations: list[str] = []
        """Kept here, since the faulty loops survive their own errors."""
        self.terms = 0
        """The number of terms that began."""
        self.on_commit: list[Callable[[Topics], None]] = []
        """Called with the topics after a commit that other processes are notified of."""

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def note(self, what: str) -> None:
        line = f"{self._loop.time():.6f} {what}"
        self._digest.update(line.encode())
        self.trace.append(line)

    def report_violation(self, what: str) -> None:
        """Record a violation."""
        self.note(f"VIOLATION: {what}")
        self.violations.append(what)

    async def write(self, role: Role, leadership: Leadership | None, work: Callable[[Connection], Awaitable[R]]) -> R:
        process = running_process()
        if leadership is not None and leadership.held:
            role = Role.TERM
        fate = await self._iterate(process, role, frozenset(Fate))
        before = self._now()
        async with self._transaction(process) as connection:
            result = await work(connection)
            if fate in (Fate.REFUSED, Fate.CRASH_BEFORE, Fate.FROZEN_WITHIN):
                await connection.rollback()
            else:
                await connection.commit()
                self._committed(process, leadership, before)
        if fate in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER):
            process.kill()
        elif fate in (Fate.FROZEN_WITHIN, Fate.FROZEN_AFTER):
            self._freeze(process)
        # A separate step: a dead process never reaches it, and a frozen one reaches it later.
        await asyncio.sleep(0)
        if fate in (Fate.REFUSED, Fate.LOST_ANSWER, Fate.FROZEN_WITHIN):
            raise ConnectionError(f"simulated: {fate}")
        return result

    @asynccontextmanager
    async def read(self, role: Role) -> AsyncIterator[Connection]:
        process = running_process()
        if await self._iterate(process, role, _OF_READS) is Fate.REFUSED:
            raise ConnectionError("simulated: refused")
        async with self._transaction(process) as connection:
            yield connection

    async def _iterate(self, process: Process, role: Role, possible: frozenset[Fate]) -> Fate:
        """Wait for this call's turn. No two calls have theirs at the same simulated time."""
        if self._loop.stopping:
            raise asyncio.CancelledError
        fate = self._fate(role, possible)
        if fate is not Fate.WELL:
            self.injected[fate] += 1
            self.note(f"{process.name}: {fate}")
        seconds = self._random.uniform(_QUICKEST_SECONDS, _SLOWEST_SECONDS)
        if fate is Fate.SLOW:
            seconds *= self._random.choice([10, 100, 500])
        await asyncio.sleep(seconds)
        if fate is Fate.FROZEN_BEFORE:
            # Later: another task of the process may be in a transaction now.
            self._freeze(process)
            await asyncio.sleep(0)
        return fate

    def _fate(self, role: Role, possible: frozenset[Fate]) -> Fate:
        for fault in self.pending_faults:
            if fault.applies(role, possible):
                self.pending_faults.remove(fault)
                return fault.fate
        return Fate.WELL

    def _freeze(self, process: Process) -> None:
        process.freeze(self._random.uniform(0.3, 1.0) * FROZEN_SECONDS)

    @asynccontextmanager
    async def _transaction(self, process: Process) -> AsyncIterator[Connection]:
        if self._inside is not None:
            self.report_violation(
                f"{process.name} comes in while a transaction of {self._inside.name} waits for something"
            )
            raise ConnectionError("simulated: the database is taken")
        self._inside = process
        try:
            async with self._store.transaction() as connection:
                yield connection
        finally:
            self._inside = None

    def _committed(self, process: Process, leadership: Leadership | None, before: _State) -> None:
        after = self._now()
        self.note(f"{process.name} wrote {after.changes - before.changes}")
        self.terms += after.term != before.term
        changed = after.changes > before.changes and after.term == before.term
        if leadership is not None and changed and not (leadership.held and leadership.term == after.term):
            own = f"term {leadership.term}" if leadership.held else "no term"
            self.report_violation(f"{process.name} wrote with {own} in term {after.term}")
        if after.revision > before.revision:
            topics = self._store.raw.execute(
                "SELECT DISTINCT noun, kind FROM events WHERE revision > ?", [before.revision]
            )
            committed = frozenset(topics.fetchall())
            for tell in self.on_commit:
                tell(committed)

    def _now(self) -> _State:
        query = "SELECT (SELECT max(term) FROM leadership), (SELECT coalesce(max(revision), 0) FROM events)"
        term, revision = self._store.raw.execute(query).fetchone()
        return _State(self._store.raw.total_changes, term, revision)


class _State(NamedTuple):
    changes: int
    term: int | None
    """None before the first leader."""
    revision: int


class GatedDatabase(Database):
    """A simulated process's access to the database. Its writes belong to the term of `leadership`."""

    def __init__(self, gate: Gate, store: Store, role: Role) -> None:
        self.url = make_url(_URL)
        self.dialect = "sqlite"
        self.on_commit = []
        self.engine = store.engine
        self.leadership: Leadership | None = None
        self._gate = gate
        self._role = role

    async def write(self, work: Callable[[Connection], Awaitable[R]], *, notify: bool = True) -> R:
        return await retry(partial(self._gate.write, self._role, self.leadership, work))

    async def ping(self) -> None:
        async with self.read():
            pass

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Connection]:
        async with self._gate.read(self._role) as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        async with self.read() as connection:
            yield connection


class DirectDatabase(GatedDatabase):
    """Access past the gate, for preparing and checking the world: no time passes and no fault occurs."""

    def __init__(self, store: Store) -> None:
        self.url = make_url(_URL)
        self.dialect = "sqlite"
        self.on_commit = []
        self.engine = store.engine
        self._store = store

    async def write(self, work: Callable[[Connection], Awaitable[R]], *, notify: bool = True) -> R:
        async with self._store.transaction() as connection:
            result = await work(connection)
            await connection.commit()
        return result

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Connection]:
        async with self._store.transaction() as connection:
            yield connection
