"""`mooring secret` and `mooring registry`: values come from files, standard input or a prompt, and are never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer

VALUE = "correct horse\n"


def test_a_secret_is_set_as_it_is_listed_without_it_and_removed(
    server: FakeServer, mooring: Mooring, tmp_path: Path
) -> None:
    said = mooring("secret", "set", "db", typed=VALUE)
    assert (said.exit_code, said.stdout) == (0, "db: 14 bytes\n")
    (tmp_path / "file").write_bytes(b"\x00\xff")
    mooring("secret", "set", "key", "--from-file", str(tmp_path / "file"), "--project", "vision")
    assert server.confidential.secrets == {("default", "db"): VALUE.encode(), ("vision", "key"): b"\x00\xff"}
    listed = mooring("secret", "list")
    assert [line.split()[:2] for line in listed.stdout.splitlines()] == [["SECRET", "BYTES"], ["db", "14"]]
    assert [one["name"] for one in json.loads(mooring("secret", "list", "-o", "json").stdout)] == ["db"]
    assert VALUE.strip() not in said.output + listed.output
    assert mooring("secret", "remove", "db").stdout == "db: removed\n"
    assert ("default", "db") not in server.confidential.secrets


@pytest.mark.parametrize(
    ("words", "typed", "said"),
    [
        (["set", "db"], "", "1 to 65,536 bytes, not 0"),
        (["set", "db"], "x" * 65_537, "1 to 65,536 bytes, not 65,537"),
        (["set", "No Name"], "x", "secret 'No Name'"),
        (["set", "db", "--from-file", "nowhere"], None, "cannot read nowhere"),
    ],
)
def test_an_invalid_secret_is_refused_before_it_is_sent(
    server: FakeServer, mooring: Mooring, words: list[str], typed: str | None, said: str
) -> None:
    refused = mooring("secret", *words, typed=typed)
    assert (refused.exit_code, said in refused.stderr) == (2, True)
    assert server.confidential.secrets == {}


def test_a_value_is_no_argument(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("secret", "set", "db", "hunter2").exit_code == 2
    assert mooring("registry", "login", "ghcr.io", "-u", "robot", "--password", "hunter2").exit_code == 2
    assert (server.confidential.secrets, server.confidential.logins) == ({}, {})


def test_a_project_logs_in_to_a_registry_and_out_again(server: FakeServer, mooring: Mooring) -> None:
    words = "registry", "login", "registry.example.org:5000", "-u", "robot", "--password-stdin"
    said = mooring(*words, typed="a-token\n")
    assert said.stdout == "registry.example.org:5000: tasks log in as robot\n"
    (login,) = server.confidential.logins.values()
    assert (login.username, login.password) == ("robot", "a-token")
    assert "a-token" not in repr(login)
    listed = mooring("registry", "list")
    assert listed.stdout.splitlines()[1].split()[:2] == ["registry.example.org:5000", "robot"]
    assert "a-token" not in said.output + listed.output
    assert mooring("registry", "logout", "registry.example.org:5000").exit_code == 0
    assert server.confidential.logins == {}
    nobody = mooring("registry", "login", "ghcr.io", "-u", "robot")
    assert (nobody.exit_code, "--password-stdin" in nobody.stderr) == (2, True)
