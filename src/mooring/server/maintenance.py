"""Maintenance of the database by an operator: upgrade, copy, backup, restore, and re-encryption of secrets."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mooring.clock import now
from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.security.encryption import SETTING, SecretBox
from mooring.store.audit import ledger_rules
from mooring.store.control import leadership
from mooring.store.core import database_copy, schema
from mooring.store.core.engine import Connection, Database, opened
from mooring.store.nodes import nodes
from mooring.store.tenancy import admin_actions, sealed_rows


@dataclass(frozen=True, slots=True)
class SchemaState:
    found: str | None
    """None: the database is empty."""
    wanted: str
    known: bool
    """True if this version of Mooring knows the schema that was found."""
    lost_transactions: int = 0
    """Transactions that were committed and are missing, since the log of a SQLite file was damaged."""

    @property
    def current(self) -> bool:
        return self.found == self.wanted

    @property
    def unreleased(self) -> bool:
        return self.found is not None and schema.is_unreleased(self.found)


async def check(url: str) -> SchemaState:
    async with opened(url) as database:
        return await state(database)


async def state(database: Database) -> SchemaState:
    found = await schema.current(database.engine)
    lost = await database.lost_transactions()
    return SchemaState(found, schema.newest(), found is None or schema.is_known(found), lost)


async def upgrade(url: str) -> SchemaState:
    """Upgrade the tables to this version; return their state before."""
    async with opened(url) as database:
        before = await state(database)
        refuse_unknown(before)
        await schema.upgrade(database.engine)
        return before


def refuse_unknown(found: SchemaState) -> None:
    if found.unreleased:
        raise Conflict(
            f"the database has schema {found.found} of a version of Mooring that was never released, and this version "
            "cannot upgrade it: start with an empty database (another --data folder or --database URL, or move this "
            "one away) and submit the workloads again",
            code="schema-unreleased",
        )
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
        refuse_unknown(found)
        if not found.current:
            raise Conflict(
                f"the source has schema {found.found or 'none'}, not {found.wanted}: "
                "run `mooring db upgrade` on it first",
                code="schema-outdated",
            )
        await schema.upgrade(target.engine)
        copied = await database_copy.copy(source, target)
        if await database_copy.count(target) != copied or await database_copy.count(source) != copied:
            raise Conflict(
                "the source changed while it was copied: stop its server, empty the target and copy again",
                code="source-changed",
            )
        async with target.snapshot() as connection:
            findings = (await ledger_rules.audit(connection)).findings
        if findings:
            first = findings[0]
            raise Conflict(
                f"the audit of the copy found {len(findings)} differences, such as {first.rule}: {first.subject}",
                code="audit-failed",
            )
        return copied


def back_up(url: str, to: Path) -> None:
    database_copy.back_up(_file(url, "use pg_dump to back up PostgreSQL"), to)


async def restore(url: str, data: Path, copy: Path) -> Path | None:
    """Replace the database of this data folder with a backup. Return the path of the previous database, if any."""
    file = _file(url, "use pg_restore to restore PostgreSQL")
    with only_server(data):
        at = now()
        incoming = file.with_name(f"{file.name}.restoring")
        incoming.unlink(missing_ok=True)
        database_copy.back_up(copy, incoming)
        try:
            incoming_url = f"sqlite+aiosqlite:///{incoming}"
            if (await check(incoming_url)).found is None:
                raise InvalidInput(f"{copy} is not a database of Mooring", code="no-database")
            await upgrade(incoming_url)
            await restored(incoming_url)
        except MooringError:
            incoming.unlink()
            raise
        previous = file.with_name(f"{file.name}.before-{at:%Y%m%dT%H%M%SZ}")
        database_copy.put_in_place(incoming, file, previous)
        return previous if previous.exists() else None


async def restored(url: str) -> None:
    """A backup was put in the place of this database."""
    async with opened(url) as database:
        await _refuse_other_schema(database)
        await database.write(partial(_distrust, reason="not heard of since the database was restored"))


async def _distrust(connection: Connection, *, reason: str) -> None:
    """The database is older than the cluster: no former leader leads, and every node is suspect.

    Tasks that a suspect node runs and the database does not know are named by its agent before it gets new ones.
    """
    await leadership.depose(connection)
    await nodes.unsee(connection, reason, now())


async def accept_lost_transactions(database: Database) -> int:
    """Report and record transactions that a damaged log lost, and continue as after a restore. Return their number."""
    lost = await database.lost_transactions()
    if lost:
        said = f"{lost} committed transaction{'s are' if lost != 1 else ' is'} missing"

        async def work(connection: Connection) -> None:
            await _distrust(connection, reason=f"not heard of since the database lost its newest state: {said}")
            await admin_actions.record(
                connection, admin_actions.SERVER, "lose", "database", "transactions", now=now(), after={"lost": lost}
            )

        await database.write(work)
        await database.accept_loss()
    return lost


@dataclass(frozen=True, slots=True)
class Resealed:
    rows: int
    left: Mapping[str, int]
    """Number of rows still encrypted with another key than the first, by key id: they could not be decrypted."""


async def reseal(url: str, secret_box: SecretBox) -> Resealed:
    """Encrypt all secrets with the first key, in batches: servers continue, and finished batches stay."""
    if not secret_box.key_ids:
        raise Conflict(f"there are no sealing keys: name their file in {SETTING}", code="no-sealing-keys")
    async with opened(url) as database:
        await _refuse_other_schema(database)
        rows = 0
        position: sealed_rows.Position | None = sealed_rows.Position()
        while position is not None:
            number, position = await database.write(
                partial(sealed_rows.reseal, secret_box=secret_box, position=position)
            )
            rows += number
        first = secret_box.key_ids[0]

        async def finish(connection: Connection) -> dict[str, int]:
            if rows:
                done = {"rows": rows}
                await admin_actions.record(
                    connection, admin_actions.SERVER, "reseal", "sealing-key", first, now=now(), after=done
                )
            return await sealed_rows.by_key(connection)

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
    refuse_unknown(found)
    if not found.current:
        raise Conflict(
            f"the database has schema {found.found or 'none'}, not {found.wanted}: run `mooring db upgrade` first",
            code="schema-outdated",
        )


def _file(url: str, otherwise: str) -> Path:
    database = Database(url)
    if database.dialect != "sqlite":
        raise InvalidInput(otherwise, code="not-sqlite")
    assert database.url.database is not None
    return Path(database.url.database)
