"""A server that cannot start says why in one sentence."""

import socket
from pathlib import Path

import pytest

from mooring.model.errors import Unavailable
from mooring.server.composition import run
from mooring.settings import load


@pytest.mark.parametrize(
    ("problem", "raised", "message"),
    [
        (
            ConnectionResetError("no answer"),
            Unavailable,
            "the connection to the database was lost while the server started: no answer",
        ),
        (RuntimeError("a bug"), RuntimeError, "a bug"),
    ],
)
async def test_only_a_database_that_leaves_while_a_server_starts_is_reported_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, raised: type[Exception], message: str
):
    async def state(_database: object) -> None:
        raise problem

    monkeypatch.setattr("mooring.server.maintenance.state", state)
    settings = load({"data": tmp_path, "agent": False}, environment={}).settings
    with socket.socket() as listener, pytest.raises(raised, match=message):
        await run(settings, listener)
