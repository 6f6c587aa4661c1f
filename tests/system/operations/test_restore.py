"""A database restored from a backup: tasks that started after the backup keep running."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from mooring.client import Client
from mooring.model.errors import MooringError
from mooring.wire.cluster.quarantine import QuarantineEnd
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import PostgresServer, postgres_binaries
from tests.system.conftest import Servers
from tests.system.servers import Cli, eventually, process_of

QUICK = {"MOORING_HEARTBEAT_SECONDS": "0.3"}


@dataclass
class Saved:
    """A database that is saved, restored and queried with the programs that the documentation names."""

    flags: list[str]
    save: Callable[[], object]
    restore: Callable[[], object]
    term: Callable[[], int]


@pytest.fixture
def saved(servers: Servers, database_flags: list[str], request: pytest.FixtureRequest) -> Saved:
    folder, mooring = servers.folder, servers.cli()
    if not database_flags:
        return _sqlite(folder, mooring)
    return _postgresql(folder, mooring, request.getfixturevalue("postgres_server"), database_flags[1])


@pytest.mark.slow
def test_work_unknown_to_a_restored_database_runs_until_an_operator_confirms_its_end(
    servers: Servers, saved: Saved
) -> None:
    server = servers.start("--node-name", "here", *saved.flags, environment=QUICK)
    with server.client() as client:
        stored = _run(client, "kept")
        saved.save()
        forgotten = _run(client, "forgotten")
    before = saved.term()
    server.stop()
    saved.restore()
    server.start()
    with server.client() as client:
        (stray,) = eventually(lambda: client.quarantine().tasks)
        assert (stray.node, stray.workload_name, stray.confirmed_by) == ("here", "forgotten", None)
        assert saved.term() > before
        # Nothing new comes to the node meanwhile, and heartbeats do not change that.
        client.submit(_sleeper("new"))
        assert client.wait("new", "running", timeout_seconds=2).status == "PENDING"
        node = client.node("here")
        assert not node.schedulable
        assert "mooring quarantine" in (node.reason or "")
        assert [(task.status, task.attempt) for task in client.workload("kept").tasks] == [("RUNNING", 1)]
        assert psutil.pid_exists(stored)
        assert psutil.pid_exists(forgotten)

        client.end_quarantined(QuarantineEnd(node="here"))
        eventually(lambda: not psutil.pid_exists(forgotten))
        eventually(lambda: client.quarantine().tasks == [])
        eventually(lambda: client.wait("new", "running", timeout_seconds=60).status == "RUNNING")
        assert psutil.pid_exists(stored)


def _sqlite(folder: Path, mooring: Cli) -> Saved:
    copy, data = str(folder / "copy.db"), ("--data", str(folder / "data"))

    def term() -> int:
        with closing(sqlite3.connect(f"file:{folder / 'data' / 'mooring.db'}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT term FROM leadership").fetchone()[0])

    return Saved(
        [],
        save=lambda: mooring.out("db", "backup", copy, *data),
        restore=lambda: mooring.out("db", "restore", copy, *data),
        term=term,
    )


def _postgresql(folder: Path, mooring: Cli, server: PostgresServer, url: str) -> Saved:
    name, copy, binaries = url.rpartition("/")[2], str(folder / "copy.dump"), postgres_binaries()
    address = url.replace("+asyncpg", "")
    assert binaries is not None

    def run(program: str, *words: str) -> None:
        subprocess.run([str(binaries / program), *words], check=True)

    def save() -> None:
        run("pg_dump", "--format=custom", "--exclude-table-data=leadership*", f"--file={copy}", address)

    def restore() -> None:
        server.drop_database(name)
        server.execute(f'CREATE DATABASE "{name}"')
        run("pg_restore", f"--dbname={address}", copy)
        mooring.out("db", "restored", "--database", url)

    return Saved(
        ["--database", url], save, restore, term=lambda: int(server.value(url, "SELECT term FROM leadership") or 0)
    )


def _sleeper(name: str) -> WorkloadRequest:
    container = {"command": ["sh", "-c", "echo $MOORING_TASK_ID; exec sleep 600"], "resources": {"cpu": "100m"}}
    return WorkloadRequest.model_validate({"name": name, "containers": [container]})


def _run(client: Client, name: str) -> int:
    """Start a process, and its pid."""
    client.submit(_sleeper(name))

    def output() -> bytes:
        try:
            return b"".join(client.logs(name))
        except MooringError:  # not placed or not started yet
            return b""

    return process_of(eventually(output))
