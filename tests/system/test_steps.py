"""A control plane killed before and after each commit loses nothing, repeats nothing and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import PostgresServer

# At least so many moments to be killed at: a scenario that does less does not do what it is for.
FEWEST_DEATHS = {"GangInTwoPhases": 4, "GangLeaves": 8, "Overtaken": 4, "CancelledWhileHeld": 5, "JobsWithTerms": 10}


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> list[str]:
    """The kind of a database with all tables, and where it is."""
    if request.param == "sqlite":
        return [request.param, str(request.getfixturevalue("sqlite_template"))]
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return [request.param, server.url(request.getfixturevalue("postgres_template"))]


@pytest.mark.slow
def test_the_next_leader_finishes_the_work_after_a_kill_at_any_commit(database: list[str]):
    kind, _ = database
    left_out = set() if kind == "sqlite" else {"JobsWithTerms"}
    assert check(*database) == FEWEST_DEATHS.keys() - left_out


@pytest.mark.soak
def test_the_next_leader_finishes_the_work_after_a_kill_on_either_side_of_any_commit(database: list[str]):
    assert check(*database, "thorough") == FEWEST_DEATHS.keys()


def check(*arguments: str) -> set[str]:
    """The scenarios that were gone through."""
    command = [sys.executable, "-m", "tests.system.steps", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    if ended.returncode != 0:
        pytest.fail(ended.stderr[-6000:])
    deaths = dict(line.split() for line in ended.stdout.splitlines())
    assert all(int(number) >= FEWEST_DEATHS[name] for name, number in deaths.items()), deaths
    return set(deaths)
