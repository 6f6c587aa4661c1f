from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from mooring.cli.app import app
from mooring.cli.exits import ExitCode
from mooring.cli.interaction import waiting
from mooring.client.credentials import CredentialStore, Login
from tests.client.conftest import own_folders, server
from tests.client.fake_server import FakeServer

__all__ = ["own_folders", "server"]

Mooring = Callable[..., Result]


@pytest.fixture
def anonymous() -> Mooring:
    """The command without a login."""

    def run(*arguments: str, typed: str | None = None) -> Result:
        result = CliRunner().invoke(app, list(arguments), input=typed, prog_name="mooring")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code == ExitCode.INTERNAL_ERROR:
            pytest.fail(f"internal error of the command: {result.stderr}")
        return result

    return run


@pytest.fixture
def mooring(server: FakeServer, anonymous: Mooring, monkeypatch: pytest.MonkeyPatch) -> Mooring:
    """The command with a login of the admin to the fake server, which no replica leaves once it is ready."""
    monkeypatch.setattr(waiting, "STEADY_SECONDS", 0.0)
    now = time.time()
    login = Login("admin", server.token(), now, now + 3600)
    CredentialStore.of_user().save(server.url, login, make_last=True)
    return anonymous
