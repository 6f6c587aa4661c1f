"""What an operator does with the database itself while no server, or an old one, runs on it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mooring.clock import now
from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.sealing import SETTING, Sealing
from mooring.store import actions, copying, leadership, ledger, nodes, schema, sealed
from mooring.store.engine import Connection, Database, opened


@dataclass(frozen=True, slots=True)
class SchemaState:
    found: str | None
    """None: the database is empty."""
    wanted: str
    known: bool
    """Whether this version of Mooring knows the schema that was found."""

    @property
    def current(self) -> bool:
        return self.found == self.wanted


async def check(url: str) -> SchemaState:
    async with opened(url) as database:
        return await state(database)


async def state(database: Database) -> SchemaState:
    found = await schema.current(database.engine)
    return SchemaState(found, schema.newest(), found is None or schema.is_known(found))


async def upgrade(url: str) -> SchemaState:
    """Bring the tables to this version; what they were before."""
    async with opened(url) as database:
        before = await state(database)
        refuse_unknown(before)
        await schema.upgrade(database.engine)
        return before


def refuse_unknown(found: SchemaState) -> None:
    if not found.known:
        raise Conflict(
            f"the database has the schema {found.found} of a newer Mooring, and this one knows up to {found.wanted}: "
            "install the version that upgraded it, or restore a backup from before",
            code="schema-too-new",
        )


async def copy(source_url: str, target_url: str) -> dict[str, int]:
    """Move everything into an empty database, and prove that it arrived: row counts, and the audit of the books."""
    async with opened(source_url) as source, opened(target_url) as target:
        found = await state(source)
        if not found.current:
            raise Conflict(
                f"the source has the schema {found.found}, not {found.wanted}: run `mooring db upgrade` on it first",
                code="schema-outdated",
            )
        await schema.upgrade(target.engine)
        copied = await copying.copy(source, target)
        if await copying.count(target) != copied or await copying.count(source) != copied:
            raise Conflict(
                "the source changed while it was copied: stop its server, empty the target and copy again",
                code="source-changed",
            )
        async with target.snapshot() as connection:
            findings = (await ledger.audit(connection)).findings
        if findings:
            first = findings[0]
            raise Conflict(
                f"the audit of the copy found {len(findings)} differences, such as {first.rule}: {first.subject}",
                code="audit-failed",
            )
        return copied


def back_up(url: str, to: Path) -> None:
    copying.back_up(_file(url, "a PostgreSQL is backed up with its own pg_dump"), to)


async def restore(url: str, data: Path, copy: Path) -> Path | None:
    """Put a backup in the place of the database of this data folder; where what was there is kept, if anything was."""
    file = _file(url, "a PostgreSQL is restored with its own pg_restore")
    with only_server(data):
        at = now()
        incoming = file.with_name(f"{file.name}.restoring")
        incoming.unlink(missing_ok=True)
        copying.back_up(copy, incoming)
        try:
            incoming_url = f"sqlite+aiosqlite:///{incoming}"
            if (await check(incoming_url)).found is None:
                raise InvalidInput(f"{copy} is no database of Mooring", code="no-database")
            await upgrade(incoming_url)
            await restored(incoming_url)
        except MooringError:
            incoming.unlink()
            raise
        aside = file.with_name(f"{file.name}.before-{at:%Y%m%dT%H%M%SZ}")
        copying.put_in_place(incoming, file, aside)
        return aside if aside.exists() else None


async def restored(url: str) -> None:
    """A backup was put in the place of this database: nobody who led before leads, and no node is believed to be there.

    What such a node runs that the database does not know is told by its agent, before anything new comes to it.
    """
    async with opened(url) as database:
        await _refuse_other_schema(database)

        async def work(connection: Connection) -> None:
            await leadership.depose(connection)
            await nodes.unsee(connection, "not heard of since the database was restored", now())

        await database.write(work)


@dataclass(frozen=True, slots=True)
class Resealed:
    rows: int
    left: Mapping[str, int]
    """How many rows are still sealed with another key than the first, by its id: they did not open."""


async def reseal(url: str, sealing: Sealing) -> Resealed:
    """Seal all secrets with the first key, batch by batch: servers go on, and what is done stays done."""
    if not sealing.key_ids:
        raise Conflict(f"there are no sealing keys: name their file in {SETTING}", code="no-sealing-keys")
    async with opened(url) as database:
        await _refuse_other_schema(database)
        rows = 0
        position: sealed.Position | None = sealed.Position()
        while position is not None:
            number, position = await database.write(partial(sealed.reseal, sealing=sealing, position=position))
            rows += number
        first = sealing.key_ids[0]

        async def finish(connection: Connection) -> dict[str, int]:
            if rows:
                done = {"rows": rows}
                await actions.record(connection, actions.SERVER, "reseal", "sealing-key", first, now=now(), after=done)
            return await sealed.by_key(connection)

        by_key = await database.write(finish)
    return Resealed(rows, {key_id: number for key_id, number in by_key.items() if key_id != first})


@contextmanager
def only_server(data: Path) -> Iterator[None]:
    """One server per data folder, and none while its database is replaced: two would both be sure to lead."""
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"another server runs on the data folder {data}; stop it, or choose another with --data",
                code="already-running",
            ) from None
        yield


async def _refuse_other_schema(database: Database) -> None:
    found = await state(database)
    if not found.current:
        raise Conflict(
            f"the database has the schema {found.found}, not {found.wanted}: run `mooring db upgrade` first",
            code="schema-outdated",
        )


def _file(url: str, otherwise: str) -> Path:
    database = Database(url)
    if database.dialect != "sqlite":
        raise InvalidInput(otherwise, code="not-sqlite")
    assert database.url.database is not None
    return Path(database.url.database)
