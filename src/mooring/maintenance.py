"""What an operator does with the database itself while no server, or an old one, runs on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mooring.model.errors import Conflict, InvalidInput
from mooring.store import copying, ledger, schema
from mooring.store.engine import Database, opened


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
        async with target.read() as connection:
            findings = (await ledger.audit(connection)).findings
        if findings:
            first = findings[0]
            raise Conflict(
                f"the audit of the copy found {len(findings)} differences, such as {first.rule}: {first.subject}",
                code="audit-failed",
            )
        return copied


def back_up(url: str, to: Path) -> None:
    database = Database(url)
    if database.dialect != "sqlite":
        raise InvalidInput("a PostgreSQL is backed up with its own pg_dump", code="not-sqlite")
    assert database.url.database is not None
    copying.back_up(Path(database.url.database), to)
