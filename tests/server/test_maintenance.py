"""The database itself: checked, upgraded, copied and backed up."""

import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mooring.model.errors import Conflict, InvalidInput, Unavailable
from mooring.server import maintenance
from mooring.store.core import database_copy
from mooring.store.core.engine import Database
from tests.sealing import some_keys
from tests.servers import PostgresServer
from tests.store.harness import Harness
from tests.store.tenancy.test_sealed_rows import fill, opened


@pytest.fixture
def empty_postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.url(postgres_server.create_database())


@pytest.fixture
async def database_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite database with work that runs, waits and has ended."""
    file = tmp_path / "source.db"
    shutil.copy(sqlite_template, file)
    url = f"sqlite+aiosqlite:///{file}"
    database = Database(url)
    harness = await Harness.open(database)
    await harness.node("a", cpu=4)
    for name in ("runs", "waits"):
        await harness.submit(name, cpu="2")
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


async def test_the_schema_of_a_newer_version_is_not_changed(tmp_path: Path):
    file = tmp_path / "new.db"
    url = f"sqlite+aiosqlite:///{file}"
    await maintenance.upgrade(url)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    assert not (await maintenance.check(url)).known
    with pytest.raises(Conflict, match="newer Mooring"):
        await maintenance.upgrade(url)


@pytest.mark.slow
async def test_a_copy_from_sqlite_to_postgresql_is_complete_and_continues_there(
    database_url: str, empty_postgres_url: str
):
    copied = await maintenance.copy(database_url, empty_postgres_url)
    assert copied["workloads"] == 2
    assert copied["events"] > 0
    target = Database(empty_postgres_url)
    harness = await Harness.open(target)
    # What is sealed is copied as it is.
    assert await opened(target, harness.principal.project_id, some_keys(), "db") == [b"what db says", b"word"]
    # Numbers continue after the copied ones.
    await harness.submit("another", cpu="1")
    assert (await database_copy.count(target))["workloads"] == 3
    await target.close()
    with pytest.raises(Conflict, match="not empty"):
        await maintenance.copy(database_url, empty_postgres_url)


async def test_only_a_database_with_the_current_schema_is_copied(tmp_path: Path, empty_postgres_url: str):
    empty = f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}"
    with pytest.raises(Conflict, match=r"schema none, not .*: run `mooring db upgrade`"):
        await maintenance.copy(empty, empty_postgres_url)
    with pytest.raises(Conflict, match="never released"):
        await maintenance.copy(_stamped(tmp_path / "old.db", "0018"), empty_postgres_url)


async def test_a_database_of_an_unreleased_version_is_refused_with_a_remedy(tmp_path: Path):
    url = _stamped(tmp_path / "old.db", "0018")
    found = await maintenance.check(url)
    assert (found.known, found.unreleased) == (False, True)
    for refused in (maintenance.upgrade, maintenance.restored):
        with pytest.raises(Conflict, match=r"schema 0018 .* never released.* start with an empty database") as error:
            await refused(url)
        assert error.value.code == "schema-unreleased"


def test_db_upgrade_refuses_a_database_of_an_unreleased_version_without_a_traceback(tmp_path: Path):
    _stamped(tmp_path / "mooring.db", "0018")
    command = [sys.executable, "-c", "from mooring.cli import main; main()", "db", "upgrade", "--data", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "start with an empty database" in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def _stamped(file: Path, revision: str) -> str:
    """Return the URL of a database whose schema claims this revision."""
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.execute("INSERT INTO alembic_version VALUES (?)", [revision])
    connection.close()
    return f"sqlite+aiosqlite:///{file}"


async def test_a_backup_is_the_database_of_one_moment(tmp_path: Path, database_url: str):
    saved = tmp_path / "saved.db"
    database = Database(database_url)
    async with database.engine.begin():
        # A writer is at work meanwhile.
        maintenance.back_up(database_url, saved)
    counted = await database_copy.count(database)
    await database.close()
    copy = Database(f"sqlite+aiosqlite:///{saved}")
    assert await database_copy.count(copy) == counted
    await copy.close()
    with pytest.raises(InvalidInput, match="already exists"):
        maintenance.back_up(database_url, saved)
    with pytest.raises(InvalidInput, match="no database"):
        maintenance.back_up(f"sqlite+aiosqlite:///{tmp_path / 'none.db'}", tmp_path / "other.db")


async def test_a_restore_replaces_the_database_and_keeps_the_old_one(tmp_path: Path, database_url: str):
    saved = tmp_path / "saved.db"
    maintenance.back_up(database_url, saved)
    assert saved.stat().st_mode & 0o777 == 0o600
    database = Database(database_url)
    await (await Harness.open(database)).submit("later", cpu="1")
    later = await database_copy.count(database)
    await database.close()
    aside = await maintenance.restore(database_url, tmp_path, saved)
    assert aside is not None
    for file, workloads in ((tmp_path / "source.db", 2), (saved, 2), (aside, later["workloads"])):
        opened = Database(f"sqlite+aiosqlite:///{file}")
        assert (await database_copy.count(opened))["workloads"] == workloads
        await opened.close()


async def test_restore_refuses_a_running_server_and_a_file_that_is_no_backup(tmp_path: Path, database_url: str):
    saved, wrong, foreign = tmp_path / "saved.db", tmp_path / "wrong.db", tmp_path / "foreign.db"
    maintenance.back_up(database_url, saved)
    wrong.write_text("this is no database at all, " * 100)
    foreign.touch()
    before = (tmp_path / "source.db").read_bytes()
    with pytest.raises(InvalidInput, match="not a database"):
        await maintenance.restore(database_url, tmp_path, wrong)
    with pytest.raises(InvalidInput, match="not a database of Mooring"):
        await maintenance.restore(database_url, tmp_path, foreign)
    with maintenance.only_server(tmp_path), pytest.raises(Conflict, match="another server runs"):
        await maintenance.restore(database_url, tmp_path, saved)
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
