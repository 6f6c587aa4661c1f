"""A leader that freezes in the middle of a commit, for three times its lease, and then continues."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import pytest

from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import running_etcd
from tests.system.conftest import Servers
from tests.system.servers import Server, eventually

T = TypeVar("T")
LEASE_SECONDS = 3
ENVIRONMENT = {
    "MOORING_SIGNING_KEY": "one key that both of the servers share",
    "LEADER_LEASE_TTL": str(LEASE_SECONDS),
    "ETCD_HOST": "127.0.0.1",
}
# The session of a leader that is inside a transaction, has locked its term, and waits for another lock.
IN_A_COMMIT = """
    SELECT a.pid, l.holder, l.term FROM pg_stat_activity a JOIN leadership l ON l.holder = a.application_name
    WHERE a.wait_event_type = 'Lock' AND a.state = 'active'
"""
TERMS = """
    SELECT h.term FROM status_history h JOIN workloads w ON w.id = h.workload_id
    WHERE w.name = $1 AND h.noun = 'task' AND h.new_status = 'SCHEDULED'
"""


@pytest.mark.slow
def test_the_commit_of_a_frozen_leader_fails_and_its_successors_work_stands(
    servers: Servers, postgres_url: str
) -> None:
    servers.trouble_expected = True
    with running_etcd() as etcd, Onlooker(postgres_url) as onlooker:
        environment = {**ENVIRONMENT, "ETCD_PORT": str(etcd.port)}
        both = {name: _scheduler(servers, name, postgres_url, environment) for name in ("one", "another")}
        with both["one"].client() as client, Onlooker(postgres_url) as holder:
            holder.execute("BEGIN")
            # Unlike the lock of a row, that of a table makes no writer of us, whom all readers of the feed wait for.
            holder.execute("LOCK TABLE node_resources IN SHARE MODE")
            client.submit(_work("torn"))
            session, name, term = eventually(lambda: onlooker.rows(IN_A_COMMIT))[0]
            leader = both.pop(name)
            os.kill(leader.pid, signal.SIGSTOP)
            frozen_at = time.monotonic()
            # The database finishes the statement; the frozen leader does not send COMMIT.
            holder.execute("ROLLBACK")
        (successor,) = both.values()
        with successor.client() as client:
            try:
                assert client.wait("torn", "running", timeout_seconds=60).status == "RUNNING"
                (new_term,) = onlooker.values(TERMS, "torn")
                assert new_term > term
                assert not onlooker.values("SELECT 1 FROM pg_stat_activity WHERE pid = $1", session)
                time.sleep(max(0.0, frozen_at + 3 * LEASE_SECONDS - time.monotonic()))
            finally:
                os.kill(leader.pid, signal.SIGCONT)
            eventually(lambda: "This scheduler stopped" in leader.log)
            client.submit(_work("later"))
            assert client.wait("later", "running", timeout_seconds=60).status == "RUNNING"
        assert onlooker.values(TERMS, "torn") == [new_term]
        received = onlooker.values("SELECT term FROM events WHERE term IS NOT NULL ORDER BY revision")
        assert received == sorted(received)
        successor.assert_books_agree()


def _scheduler(servers: Servers, name: str, database: str, environment: dict[str, str]) -> Server:
    flags = ("--no-agent", "--demo", "--simulate", "2", "--database", database)
    return servers.start(*flags, name=name, environment={**environment, "SCHEDULER_INSTANCE_ID": name})


def _work(name: str) -> WorkloadRequest:
    container = {"image": "nginx:latest", "resources": {"cpu": 1, "memory": "64Mi"}}
    return WorkloadRequest.model_validate({"name": name, "kind": "deployment", "containers": [container]})


class Onlooker:
    """A session of one's own with the database."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._connection = self._wait(lambda: asyncpg.connect(url.replace("+asyncpg", "")))

    def __enter__(self) -> Onlooker:
        return self

    def __exit__(self, *problem: object) -> None:
        self._connection.terminate()
        self._runner.close()

    def execute(self, statement: str) -> None:
        self._wait(lambda: self._connection.execute(statement))

    def rows(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._wait(lambda: self._connection.fetch(question, *values))]

    def values(self, question: str, *values: object) -> list[Any]:
        return [row[0] for row in self.rows(question, *values)]

    def _wait(self, call: Callable[[], Awaitable[T]]) -> T:
        async def wait() -> T:
            return await call()

        return self._runner.run(wait())
