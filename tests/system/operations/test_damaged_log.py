"""A SQLite log that was damaged while the server was down: the server reports the lost transactions at its start."""

from __future__ import annotations

import pytest

from mooring.wire.workloads.workload_fields import SessionRequest
from tests.system.conftest import Servers


@pytest.mark.slow
def test_a_start_after_the_log_was_damaged_reports_the_lost_transactions(servers: Servers) -> None:
    server = servers.start("--simulate", "1")
    with server.client() as client:
        for number in range(3):
            client.create_session(SessionRequest(name=f"job-{number}", command=["true"], type="batch"))
    server.kill()
    log = server.data / "mooring.db-wal"
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])

    checked = servers.cli()("db", "check", "--data", str(server.data))
    assert checked.returncode == 1
    assert "missing: the log was damaged" in checked.stdout

    server.start()
    assert "The log of the database was damaged" in server.log
    with server.client() as client:
        assert "database" in {action.noun for action in client.actions().actions}
    server.stop()
    assert servers.cli()("db", "check", "--data", str(server.data)).returncode == 0
