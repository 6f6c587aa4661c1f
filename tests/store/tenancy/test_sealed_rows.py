"""Rotation: everything is sealed with the first key, batch by batch, and what does not open is counted."""

import base64
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import select

from mooring.clock import now
from mooring.model.errors import Conflict
from mooring.security.encryption import SecretBox
from mooring.server import maintenance
from mooring.store import tables
from mooring.store.core.engine import Connection, Database
from mooring.store.tenancy import (
    admin_actions,
    projects,
    registry_logins,
    sealed_rows,
    secrets,
    tenants,
)
from mooring.store.tenancy.sealed_rows import Position
from tests.store.databases import on_sqlite
from tests.store.harness import Harness


def keys(file: Path, *letters: str) -> SecretBox:
    lines = (f"{letter}:{base64.b64encode(letter.encode() * 32).decode()}\n" for letter in letters)
    file.write_text("".join(lines))
    file.chmod(0o600)
    return SecretBox(file)


async def fill(database: Database, secret_box: SecretBox, *names: str) -> UUID:
    async def work(connection: Connection) -> UUID:
        project = await projects.find(connection, tenants.DEFAULT_DOMAIN, tenants.DEFAULT_PROJECT)
        for name in names:
            value = f"what {name} says".encode()
            await secrets.put(connection, project, name, value, secret_box, actor=admin_actions.SERVER, now=now())
        await registry_logins.put(
            connection, project, f"{names[0]}.org", "me", "word", secret_box, actor=admin_actions.SERVER, now=now()
        )
        return project.id

    return await database.write(work)


async def opened(database: Database, project_id: UUID, secret_box: SecretBox, *names: str) -> list[bytes]:
    async with database.read() as connection:
        stored = await sealed_rows.named(connection, tables.secrets, {project_id: names})
        logins = await sealed_rows.named(connection, tables.registry_logins, {project_id: [f"{names[0]}.org"]})
    return [each.open(secret_box) for each in (*stored.values(), *logins.values())]


async def test_everything_is_sealed_with_the_first_key_and_the_old_one_can_go(
    harness: Harness, migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sealed_rows, "_BATCH", 2)
    names = [f"s{number}" for number in range(5)]
    project_id = await fill(harness.database, keys(tmp_path / "keys", "a"), *names)
    both = keys(tmp_path / "keys", "b", "a")
    done = await maintenance.reseal(migrated_url, both)
    assert (done.rows, done.left) == (6, {})
    values = await opened(harness.database, project_id, keys(tmp_path / "keys", "b"), *names)
    assert sorted(values) == [*(f"what {name} says".encode() for name in names), b"word"]
    assert (await maintenance.reseal(migrated_url, keys(tmp_path / "keys", "b"))).rows == 0
    (received,) = await harness.rows(select(tables.admin_actions).where(tables.admin_actions.c.action == "reseal"))
    assert (received.object, received.after) == ("b", {"rows": 6})


@on_sqlite
async def test_an_interrupted_rotation_continues_where_it_stopped(
    harness: Harness, migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sealed_rows, "_BATCH", 2)
    await fill(harness.database, keys(tmp_path / "keys", "a"), "one", "two", "three")
    both = keys(tmp_path / "keys", "b", "a")
    first, position = await harness.database.write(
        lambda c: sealed_rows.reseal(c, secret_box=both, position=Position())
    )
    assert (first, position is None) == (2, False)
    async with harness.database.read() as connection:
        assert await sealed_rows.by_key(connection) == {"a": 2, "b": 2}
    assert (await maintenance.reseal(migrated_url, both)).rows == 2


@on_sqlite
async def test_values_that_cannot_be_decrypted_stay_and_are_counted_by_key(
    harness: Harness, migrated_url: str, tmp_path: Path
):
    await fill(harness.database, keys(tmp_path / "lost", "x"), "old")
    await fill(harness.database, keys(tmp_path / "keys", "a"), "known")
    before = await harness.rows(select(tables.secrets).where(tables.secrets.c.key_id == "x"))
    done = await maintenance.reseal(migrated_url, keys(tmp_path / "keys", "b", "a"))
    assert (done.rows, done.left) == (2, {"x": 2})
    assert await harness.rows(select(tables.secrets).where(tables.secrets.c.key_id == "x")) == before
    with pytest.raises(Conflict, match="MOORING_SEALING_KEYS_FILE"):
        await maintenance.reseal(migrated_url, SecretBox(None))
