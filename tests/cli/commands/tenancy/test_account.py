from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from mooring.client.credentials import CredentialStore
from tests.cli.conftest import Mooring
from tests.cli.terminal import run_on_terminal
from tests.client.fake_server import LOGIN_ID, FakeServer, Refusal
from tests.client.test_credentials import record_local_server


def test_the_owner_of_a_local_server_logs_in_without_typing(
    server: FakeServer, anonymous: Mooring, tmp_path: Path
) -> None:
    record_local_server(tmp_path / "data", server.url, "correct horse")
    result = anonymous("login")
    assert result.exit_code == 0, result.stderr
    assert f"logged in to {server.url} as admin" in result.stdout
    path = CredentialStore.of_user().path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(anonymous("whoami", "-o", "json").stdout)["username"] == "admin"


def test_a_data_folder_can_be_named(server: FakeServer, anonymous: Mooring, tmp_path: Path) -> None:
    record_local_server(tmp_path / "other", server.url, "correct horse")
    assert anonymous("login", "--data", str(tmp_path / "other")).exit_code == 0
    missing = anonymous("login", "--data", str(tmp_path / "missing"))
    assert missing.exit_code == 2
    assert "no record of a server" in missing.stderr


def test_a_password_that_others_can_read_is_not_used(server: FakeServer, anonymous: Mooring, tmp_path: Path) -> None:
    record_local_server(tmp_path / "data", server.url, "correct horse", mode=0o644)
    result = anonymous("login", "--data", str(tmp_path / "data"))
    assert result.exit_code == 2
    assert "no admin password that you can read" in result.stderr


def test_a_password_comes_from_standard_input(server: FakeServer, anonymous: Mooring) -> None:
    arguments = ("login", "--server", server.url, "--username", "admin", "--password-stdin")
    wrong = anonymous(*arguments, typed="wrong\n")
    assert wrong.exit_code == 4
    assert wrong.stderr == "error: wrong-credentials: the username or the password is wrong\n"
    assert anonymous(*arguments, typed="correct horse\n").exit_code == 0
    assert anonymous("whoami").exit_code == 0


def test_prompts_without_a_terminal_are_errors(server: FakeServer, anonymous: Mooring) -> None:
    nameless = anonymous("login", "--server", server.url)
    assert (nameless.exit_code, "use --username" in nameless.stderr) == (2, True)
    silent = anonymous("login", "--server", server.url, "--username", "admin")
    assert (silent.exit_code, "--password-stdin" in silent.stderr) == (2, True)


def test_on_a_terminal_name_and_password_are_asked_for_and_the_password_is_not_shown(server: FakeServer) -> None:
    with run_on_terminal("login", "--server", server.url) as terminal:
        terminal.expect("Username")
        terminal.type("admin\n")
        terminal.expect("Password of admin")
        terminal.expect_hidden_input()
        terminal.type("correct horse\n")
        assert terminal.exit_code() == 0
    assert "correct horse" not in terminal.text


def test_half_of_a_keypair_in_the_environment_is_an_error(
    server: FakeServer, anonymous: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORING_ACCESS_KEY", "MKA")
    result = anonymous("ps", "--server", server.url)
    assert (result.exit_code, "MOORING_SECRET_KEY" in result.stderr) == (2, True)


def test_without_a_login_the_error_has_advice(server: FakeServer, anonymous: Mooring) -> None:
    result = anonymous("ps", "--server", server.url)
    assert result.exit_code == 4
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "error: not-authenticated: you are not logged in",
        "hint: log in with `mooring login`",
    ]


def test_a_token_of_the_environment_is_used(
    server: FakeServer, anonymous: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORING_TOKEN", server.token())
    monkeypatch.setenv("MOORING_SERVER", server.url)
    result = anonymous("whoami")
    assert result.exit_code == 0
    assert "user:    admin" in result.stdout


def test_logging_out_ends_and_forgets_the_login(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("logout").stdout == f"logged out of {server.url}\n"
    assert server.last("DELETE", "/api/logins/current").token not in server.tokens
    assert mooring("whoami", "--server", server.url).exit_code == 4
    assert "not logged in to" in mooring("logout", "--server", server.url).stdout
    assert CredentialStore.of_user().servers() == []


def test_logging_out_of_a_server_that_fails_forgets_the_login(server: FakeServer, mooring: Mooring) -> None:
    server.refuse["DELETE", "/api/logins/current"] = Refusal(500, "internal-error", "it failed")
    result = mooring("logout")
    assert (result.exit_code, result.stdout) == (0, f"logged out of {server.url}\n")
    assert "expires by itself: it failed" in result.stderr
    assert CredentialStore.of_user().servers() == []


def test_logins_are_listed_and_revoked(server: FakeServer, mooring: Mooring) -> None:
    columns = ("-o", "csv", "--columns", "id,from,current,user")
    assert mooring("token", "list", *columns).stdout.splitlines()[1] == f"{LOGIN_ID},192.0.2.7,yes,admin"
    assert mooring("token", "list", "--user", "ben", *columns).stdout.splitlines()[1] == f"{LOGIN_ID},192.0.2.7,,ben"
    assert mooring("token", "list", "-o", "name").stdout == f"{LOGIN_ID}\n"
    assert mooring("token", "revoke").exit_code == 2
    assert mooring("token", "revoke", "x", "--all").exit_code == 2
    assert mooring("token", "revoke", "x", "--user", "ben").exit_code == 2
    assert mooring("token", "revoke", "--all", "--user", "ben").stdout == "all logins of ben revoked\n"
    assert server.last("DELETE", "/api/logins").query == {"user": "ben"}
    assert mooring("token", "revoke", str(LOGIN_ID)).stdout == f"{LOGIN_ID} revoked\n"
    assert mooring("whoami").exit_code == 4


def test_a_changed_password_keeps_this_login_and_ends_the_others(server: FakeServer, mooring: Mooring) -> None:
    other = server.token()
    result = mooring("passwd", "--password-stdin", typed="correct horse\nbattery staple\n")
    assert result.exit_code == 0, result.stderr
    assert server.passwords["admin"] == "battery staple"
    assert mooring("whoami").exit_code == 0
    assert other not in server.tokens
    refused = mooring("passwd", "--password-stdin", typed="wrong\nanother password\n")
    assert refused.exit_code == 4
    short = mooring("passwd", "--password-stdin", typed="battery staple\nshort\n")
    assert (short.exit_code, "new_password" in short.stderr) == (2, True)
    assert mooring("passwd", "--password-stdin", typed="one line\n").exit_code == 2


def test_a_changed_password_ends_the_use_of_the_data_folder(
    server: FakeServer, anonymous: Mooring, tmp_path: Path
) -> None:
    record_local_server(tmp_path / "data", server.url, "correct horse")
    anonymous("login")
    anonymous("passwd", "--password-stdin", typed="correct horse\nbattery staple\n")
    stored = CredentialStore.of_user().get(server.url)
    assert stored is not None
    assert stored.data_folder is None


def test_the_exit_code_says_that_nothing_listens(anonymous: Mooring) -> None:
    result = anonymous("ps", "--server", "http://127.0.0.1:9")
    assert result.exit_code == 5
    assert "error: unreachable: no answer from http://127.0.0.1:9" in result.stderr
    assert "mooring up" in result.stderr


def test_users_are_added_listed_and_changed(server: FakeServer, mooring: Mooring) -> None:
    added = mooring("user", "create", "ann", "--project", "vision", "--create-project", "--os-user", "annie")
    assert added.exit_code == 0, added.stderr
    assert "password: made-up-password" in added.stdout
    assert server.last("POST", "/api/users").body == {
        "username": "ann",
        "role": "user",
        "project": "vision",
        "os_user": "annie",
    }
    assert mooring("user", "create", "ann").exit_code == 1
    assert mooring("user", "create", "Ann Smith").exit_code == 2
    lines = mooring("user", "list").stdout.splitlines()
    assert lines[0].split()[:3] == ["USER", "ROLE", "PROJECT"]
    assert [line.split()[0] for line in lines[1:]] == ["admin", "ann"]
    assert [user["username"] for user in json.loads(mooring("user", "list", "-o", "json").stdout)] == ["admin", "ann"]


def test_only_the_given_fields_of_a_user_change(server: FakeServer, mooring: Mooring) -> None:
    mooring("user", "create", "ann", "--password-stdin", typed="annas password\n")
    assert server.passwords["ann"] == "annas password"
    changed = mooring("user", "change", "ann", "--role", "admin", "--inactive")
    assert changed.stdout == "ann: admin, inactive\n"
    assert server.last("PATCH", "/api/users/ann").body == {"role": "admin", "active": False}
    mooring("user", "change", "ann", "--os-user", "")
    assert server.last("PATCH", "/api/users/ann").body == {"os_user": ""}
    assert mooring("user", "change", "ann").exit_code == 2
    assert mooring("user", "set", "bob", "--active").exit_code == 3
    assert mooring("user", "passwd", "ann", "--password-stdin", typed="another one\n").exit_code == 0
    assert server.passwords["ann"] == "another one"


def test_the_tests_keep_out_of_the_users_own_folders(tmp_path: Path) -> None:
    assert CredentialStore.of_user().path.is_relative_to(tmp_path)
    assert os.environ["HOME"].startswith(str(tmp_path))
