"""A signing key that leaked: revoked, it is worth nothing at once, on every server of the database."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest

from mooring.model.errors import Unavailable
from tests.system.conftest import running_servers
from tests.system.servers import MOORING, Server

FIRST, SECOND = "the first key which somebody got hold of", "the second key which nobody else has seen"


def status(server: Server, credential: dict[str, str]) -> tuple[int, str]:
    try:
        asked = urllib.request.Request(f"{server.url}/api/auth/me", headers=credential)
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["code"]


def keys(server: Server, database: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MOORING, "keys", *words],
        env={**os.environ, **server.environment, "MOORING_DATA": str(server.data), "MOORING_DATABASE": database},
        capture_output=True,
        text=True,
        check=False,
    )


def known(server: Server, database: str) -> list[dict[str, Any]]:
    listed = keys(server, database, "list", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    found: list[dict[str, Any]] = json.loads(listed.stdout)
    return found


@pytest.mark.slow
def test_a_revoked_key_ends_its_tokens_on_every_server_at_once(postgres_url: str) -> None:
    with running_servers() as servers:
        both = {"MOORING_SIGNING_KEY": f"{SECOND},{FIRST}"}
        one = servers.start(
            "--no-agent", "--database", postgres_url, name="one", environment={"MOORING_SIGNING_KEY": FIRST}
        )
        [first] = known(one, postgres_url)
        two = servers.start("--role", "api", "--database", postgres_url, name="two", environment=both)
        old, new = one.credential("admin"), two.credential("admin")
        assert status(one, old) == status(two, old) == (200, "")

        refused = keys(one, postgres_url, "revoke", first["id"])
        assert refused.returncode != 0
        assert "--force" in refused.stderr
        assert status(two, old) == (200, "")

        revoked = keys(two, postgres_url, "revoke", first["id"])
        assert revoked.returncode == 0, revoked.stderr
        assert status(one, old) == status(two, old) == (401, "token-revoked")
        assert status(two, new) == (200, "")
        with pytest.raises(Unavailable, match="signing-key-revoked"):
            one.client()

        one.stop()
        one.launch()
        assert one.exit_code() != 0
        assert "keys rotate" in one.log


@pytest.mark.slow
def test_a_leaked_key_is_replaced_without_losing_the_database() -> None:
    with running_servers() as servers:
        server = servers.start("--no-agent")
        database = f"sqlite+aiosqlite:///{server.data / 'mooring.db'}"
        old = server.credential("admin")
        [leaked] = known(server, database)
        assert keys(server, database, "revoke", leaked["id"], "--force").returncode == 0
        assert status(server, old) == (401, "token-revoked")
        server.stop()
        rotated = keys(server, database, "rotate")
        assert rotated.returncode == 0, rotated.stderr
        server.start()
        assert status(server, old) == (401, "token-revoked")
        assert status(server, server.credential("admin")) == (200, "")
        assert [key["revoked_at"] is not None for key in known(server, database)] == [False, True]
