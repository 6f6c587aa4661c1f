"""The database itself: checked, upgraded, copied and backed up."""

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from mooring import maintenance
from mooring.model.errors import Conflict, InvalidInput, Unavailable
from mooring.store import copying, schema
from mooring.store.engine import Database
from tests.sealing import some_keys
from tests.servers import PostgresServer
from tests.store.harbour import Harbour
from tests.store.test_sealed import fill, opened


@pytest.fixture
def empty_postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.url(postgres_server.create_database())


@pytest.fixture
async def harbour_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite database with work that runs, waits and has ended."""
    file = tmp_path / "source.db"
    shutil.copy(sqlite_template, file)
    url = f"sqlite+aiosqlite:///{file}"
    database = Database(url)
    harbour = await Harbour.open(database)
    await harbour.node("a", cpu=4)
    for name in ("runs", "waits"):
        await harbour.submit(name, cpu="2")
    await fill(database, some_keys(), "db")
    await database.close()
    return url


async def test_a_database_is_checked_and_upgraded(tmp_path: Path):
    url = f"sqlite+aiosqlite:///{tmp_path / 'new.db'}"
    found = await maintenance.check(url)
    assert (found.found, found.current, found.known) == (None, False, True)
    before = await maintenance.upgrade(url)
    assert before.found is None
    assert (await maintenance.check(url)).current
    assert (await maintenance.upgrade(url)).current


async def test_the_schema_of_a_newer_version_is_left_alone(tmp_path: Path):
    file = tmp_path / "new.db"
    url = f"sqlite+aiosqlite:///{file}"
    await maintenance.upgrade(url)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    assert not (await maintenance.check(url)).known
    with pytest.raises(Conflict, match="newer Mooring"):
        await maintenance.upgrade(url)


async def test_everything_moves_from_sqlite_to_postgresql_and_goes_on_there(harbour_url: str, empty_postgres_url: str):
    copied = await maintenance.copy(harbour_url, empty_postgres_url)
    assert copied["workloads"] == 2
    assert copied["events"] > 0
    target = Database(empty_postgres_url)
    harbour = await Harbour.open(target)
    # What is sealed is copied as it is.
    assert await opened(target, harbour.principal.project_id, some_keys(), "db") == [b"what db says", b"word"]
    # Numbers go on after those that were copied.
    await harbour.submit("another", cpu="1")
    assert (await copying.count(target))["workloads"] == 3
    await target.close()
    with pytest.raises(Conflict, match="not empty"):
        await maintenance.copy(harbour_url, empty_postgres_url)


async def test_what_is_not_of_this_version_is_not_copied(tmp_path: Path, empty_postgres_url: str):
    old = f"sqlite+aiosqlite:///{tmp_path / 'old.db'}"
    source = Database(old)
    await schema.upgrade(source.engine, "0003")
    await source.close()
    with pytest.raises(Conflict, match="mooring db upgrade"):
        await maintenance.copy(old, empty_postgres_url)


async def test_a_backup_is_the_database_of_one_moment(tmp_path: Path, harbour_url: str):
    saved = tmp_path / "saved.db"
    database = Database(harbour_url)
    async with database.engine.begin():
        # A writer is at work meanwhile.
        maintenance.back_up(harbour_url, saved)
    counted = await copying.count(database)
    await database.close()
    copy = Database(f"sqlite+aiosqlite:///{saved}")
    assert await copying.count(copy) == counted
    await copy.close()
    with pytest.raises(InvalidInput, match="exists already"):
        maintenance.back_up(harbour_url, saved)
    with pytest.raises(InvalidInput, match="no database"):
        maintenance.back_up(f"sqlite+aiosqlite:///{tmp_path / 'none.db'}", tmp_path / "other.db")


async def test_a_backup_comes_back_and_what_was_there_meanwhile_is_kept(tmp_path: Path, harbour_url: str):
    saved = tmp_path / "saved.db"
    maintenance.back_up(harbour_url, saved)
    assert saved.stat().st_mode & 0o777 == 0o600
    database = Database(harbour_url)
    await (await Harbour.open(database)).submit("later", cpu="1")
    later = await copying.count(database)
    await database.close()
    aside = await maintenance.restore(harbour_url, tmp_path, saved)
    assert aside is not None
    for file, workloads in ((tmp_path / "source.db", 2), (saved, 2), (aside, later["workloads"])):
        opened = Database(f"sqlite+aiosqlite:///{file}")
        assert (await copying.count(opened))["workloads"] == workloads
        await opened.close()


async def test_nothing_is_restored_under_a_server_or_from_what_is_no_backup(tmp_path: Path, harbour_url: str):
    saved, wrong, foreign = tmp_path / "saved.db", tmp_path / "wrong.db", tmp_path / "foreign.db"
    maintenance.back_up(harbour_url, saved)
    wrong.write_text("this is no database at all, " * 100)
    foreign.touch()
    before = (tmp_path / "source.db").read_bytes()
    with pytest.raises(InvalidInput, match="not a database"):
        await maintenance.restore(harbour_url, tmp_path, wrong)
    with pytest.raises(InvalidInput, match="no database of Mooring"):
        await maintenance.restore(harbour_url, tmp_path, foreign)
    with maintenance.only_server(tmp_path), pytest.raises(Conflict, match="another server runs"):
        await maintenance.restore(harbour_url, tmp_path, saved)
    with pytest.raises(InvalidInput, match="pg_restore"):
        await maintenance.restore("postgresql://me@127.0.0.1/mooring", tmp_path, saved)
    assert (tmp_path / "source.db").read_bytes() == before
    assert not (tmp_path / "source.db.restoring").exists()


async def test_a_database_that_cannot_be_opened_is_named_without_its_password(tmp_path: Path):
    before = _connections()
    with pytest.raises(Unavailable, match="cannot open the database") as refused:
        await maintenance.check("postgresql://me:secret@127.0.0.1:1/mooring")
    assert "secret" not in str(refused.value)
    with pytest.raises(Unavailable, match="unable to open"):
        await maintenance.check(f"sqlite+aiosqlite:///{tmp_path / 'no' / 'folder.db'}")
    assert not _connections() - before


def _connections() -> set[threading.Thread]:
    """Each connection to a file has a thread."""
    return {thread for thread in threading.enumerate() if "_connection_worker_thread" in thread.name}
