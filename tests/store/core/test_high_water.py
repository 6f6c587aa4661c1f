"""A damaged SQLite log loses transactions without an error; the mark beside the file shows how many."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from mooring.model.lifecycle import NodeStatus
from mooring.server import maintenance
from mooring.store.core import high_water
from mooring.store.core.engine import Database
from mooring.store.core.high_water import HighWaterMark
from mooring.store.tables import admin_actions, workloads
from mooring.store.tables import nodes as nodes_table
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

_HEADER, _FRAME = 32, 24 + 8192


def crashed(harness: Harness, folder: Path) -> Path:
    """Copy the files as they are if the server dies now."""
    source = Path(str(harness.database.url.database))
    for part in ("", "-wal", "-mark"):
        shutil.copy(f"{source}{part}", folder / f"crashed.db{part}")
    return folder / "crashed.db"


def url_of(file: Path) -> str:
    return f"sqlite+aiosqlite:///{file}"


def flip_a_bit(log: Path) -> None:
    """Damage the third frame from the end."""
    content = bytearray(log.read_bytes())
    frames = (len(content) - _HEADER) // _FRAME
    content[_HEADER + (frames - 3) * _FRAME + 100] ^= 1
    log.write_bytes(content)


def cut(log: Path) -> None:
    content = log.read_bytes()
    log.write_bytes(content[: len(content) - 2 * _FRAME])


def written(harness: Harness) -> bytes:
    return Path(f"{harness.database.url.database}-wal").read_bytes()


@pytest.fixture
async def file(harness: Harness, tmp_path: Path) -> Path:
    await harness.node("n1")
    for name in ("first", "second", "third"):
        await harness.submit(name)
    return crashed(harness, tmp_path)


@on_sqlite
@pytest.mark.parametrize("damage", [flip_a_bit, cut, Path.unlink])
async def test_transactions_lost_by_a_damaged_log_are_counted(file: Path, damage: Callable[[Path], None]):
    damage(Path(f"{file}-wal"))
    assert (await maintenance.check(url_of(file))).lost_transactions > 0
    # Still so after others have opened, repaired and closed the file.
    assert (await maintenance.check(url_of(file))).lost_transactions > 0


@on_sqlite
async def test_a_crash_loses_no_transaction_and_reports_none(file: Path):
    assert (await maintenance.check(url_of(file))).lost_transactions == 0
    database = Database(url_of(file))
    async with database.read() as connection:
        assert len(list(await connection.execute(select(workloads.c.id)))) == 3
    await database.close()


@on_sqlite
async def test_a_loss_is_recorded_once_and_makes_nodes_suspect(file: Path):
    cut(Path(f"{file}-wal"))
    database = Database(url_of(file))
    harness = await Harness.open(database)
    lost = await maintenance.accept_lost_transactions(database)
    assert lost > 0
    assert await maintenance.accept_lost_transactions(database) == 0
    [action] = await harness.rows(select(admin_actions).where(admin_actions.c.noun == "database"))
    assert action.after == {"lost": lost}
    [node] = await harness.rows(select(nodes_table))
    assert node.status == NodeStatus.SUSPECT
    assert str(lost) in node.reason
    await database.close()
    assert (await maintenance.check(url_of(file))).lost_transactions == 0


@on_sqlite
async def test_later_writes_do_not_hide_an_unaccepted_loss(file: Path):
    cut(Path(f"{file}-wal"))
    before = (await maintenance.check(url_of(file))).lost_transactions
    await maintenance.restored(url_of(file))
    assert (await maintenance.check(url_of(file))).lost_transactions == before


@on_sqlite
async def test_a_transaction_without_changes_writes_nothing(harness: Harness):
    before = written(harness)

    async def look(connection: object) -> None:
        await harness.database.lost_transactions()

    await harness.database.write(look)
    assert written(harness) == before


@on_sqlite
async def test_a_restored_backup_reports_no_loss(harness: Harness, tmp_path: Path):
    source = Path(str(harness.database.url.database))
    await harness.submit("kept")
    maintenance.back_up(url_of(source), tmp_path / "backup.db")
    await harness.submit("later")
    await harness.database.close()
    await maintenance.restore(url_of(source), tmp_path, tmp_path / "backup.db")
    assert (await maintenance.check(url_of(source))).lost_transactions == 0


def test_transaction_numbers_wrap_around(tmp_path: Path):
    mark = HighWaterMark(tmp_path / "d")
    mark.write(high_water._LARGEST)
    mark.write(1)
    assert (mark.lost(1), mark.lost(2), mark.lost(high_water._LARGEST)) == (0, 0, 1)
    mark.close()
