"""Logins: the file that stores them, its permissions, and their renewal."""

from __future__ import annotations

import base64
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from mooring.client import AsyncClient, Client
from mooring.client.address import DEFAULT_SERVER, canonical_address, is_loopback, proxy_for, resolve_server
from mooring.client.authentication import Authentication
from mooring.client.credentials import CredentialStore, Login
from mooring.client.local import admin_password, default_data_folder, find_local_server
from mooring.model.errors import InvalidInput, NotAuthenticated
from tests.client.fake_server import FakeServer


@pytest.fixture
def store() -> CredentialStore:
    return CredentialStore.of_user()


def login(token: str, *, age: float = 0.0, life: float = 3600.0, data: Path | None = None) -> Login:
    now = time.time()
    return Login("admin", token, now - age, now - age + life, str(data) if data else None)


def record_local_server(folder: Path, url: str, password: str | None = None, *, mode: int = 0o600) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.json").write_text(json.dumps({"url": url}))
    if password is not None:
        (folder / "admin-password").write_text(password + "\n")
        (folder / "admin-password").chmod(mode)


def test_a_keypair_is_sent_as_basic_authentication_and_never_renewed(store: CredentialStore) -> None:
    store.save("http://one:8000", login("secret"))
    given = Authentication("http://one:8000", keypair=("MKA", "secret"), store=store)
    assert given.headers == {"Authorization": "Basic " + base64.b64encode(b"MKA:secret").decode()}
    store.save("http://one:8000", replace(login("secret", age=4000), username="MKA", keypair=True))
    remembered = Authentication("http://one:8000", store=store)
    assert remembered.headers == given.headers
    assert not remembered.renewal_due()


def test_only_the_user_can_read_the_logins(store: CredentialStore, tmp_path: Path) -> None:
    store.save("http://one:8000", login("secret"))
    assert store.path == tmp_path / "config" / "mooring" / "credentials.json"
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.path.parent.stat().st_mode & 0o777 == 0o700
    store.path.chmod(0o644)
    store.save("http://one:8000", login("secret"))
    assert store.path.stat().st_mode & 0o777 == 0o600


def test_logins_to_several_servers_do_not_disturb_each_other(store: CredentialStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.save(f"http://host-{n}", login(f"token-{n}")), range(24)))
    assert sorted(store.servers()) == sorted(f"http://host-{n}" for n in range(24))
    assert store.forget("http://host-3")
    assert not store.forget("http://host-3")
    found = store.get("http://host-4")
    assert found is not None
    assert found.token == "token-4"
    assert [path.name for path in store.path.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("content", ["{", "[]", '{"servers": 3}'])
def test_a_corrupt_file_of_logins_is_reported_with_a_remedy(store: CredentialStore, content: str) -> None:
    store.path.parent.mkdir(parents=True)
    store.path.write_text(content)
    with pytest.raises(InvalidInput, match="remove the file and log in again"):
        store.get("http://one")


def test_an_entry_that_makes_no_sense_is_no_login(store: CredentialStore) -> None:
    store.path.parent.mkdir(parents=True)
    store.path.write_text(json.dumps({"servers": {"http://one": {"username": "ann"}, "http://two": 3}}))
    assert store.get("http://one") is None
    assert store.get("http://two") is None


def test_a_login_is_remembered_only_on_request(server: FakeServer, store: CredentialStore) -> None:
    with Client(server.url) as client:
        client.login("admin", "correct horse")
        assert client.me().username == "admin"
    assert store.get(server.url) is None
    with Client(server.url) as client:
        client.login("admin", "correct horse", remember=True)
    with Client() as client:
        assert client.server == server.url
        assert client.username == "admin"
        assert client.me().username == "admin"


async def test_a_token_past_half_of_its_lifetime_is_renewed_and_stored(
    server: FakeServer, store: CredentialStore
) -> None:
    store.save(server.url, login(server.token(), age=100, life=3600))
    with Client(server.url) as client:
        client.me()
    assert not server.requests("POST", "/api/auth/renew")
    store.save(server.url, login(server.token(), age=2000, life=3600))
    with Client(server.url) as client:
        client.me()
        client.me()
    assert len(server.requests("POST", "/api/auth/renew")) == 1
    renewed = store.get(server.url)
    assert renewed is not None
    assert renewed.token == server.last("GET", "/api/auth/me").token
    assert not renewed.renewal_due(time.time())


async def test_tasks_that_share_a_client_renew_once(server: FakeServer, store: CredentialStore) -> None:
    import asyncio

    store.save(server.url, login(server.token(), age=2000))
    async with AsyncClient(server.url) as client:
        await asyncio.gather(*(client.me() for _ in range(20)))
    assert len(server.requests("POST", "/api/auth/renew")) == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("age", [0, 4000])
async def test_a_refused_token_is_replaced_with_the_password_of_the_data_folder(
    server: FakeServer, store: CredentialStore, tmp_path: Path, kind: str, age: int
) -> None:
    record_local_server(tmp_path / "data", server.url, "correct horse")
    store.save(server.url, login("void", age=age, data=tmp_path / "data"))
    if kind == "sync":
        with Client(server.url) as client:
            assert client.me().username == "admin"
    else:
        async with AsyncClient(server.url) as other:
            assert (await other.me()).username == "admin"
    stored = store.get(server.url)
    assert stored is not None
    assert stored.token in server.tokens
    assert stored.data_folder == str(tmp_path / "data")


def test_a_login_that_was_typed_does_not_use_the_data_folder(
    server: FakeServer, store: CredentialStore, tmp_path: Path
) -> None:
    record_local_server(tmp_path / "data", server.url, "correct horse")
    store.save(server.url, login("void"))
    with Client(server.url) as client:
        with pytest.raises(NotAuthenticated):
            client.me()
        with pytest.raises(NotAuthenticated):
            list(client.logs("one"))
    assert not server.requests("POST", "/api/auth/login")


def test_a_log_stream_also_logs_in_again(server: FakeServer, store: CredentialStore, tmp_path: Path) -> None:
    record_local_server(tmp_path / "data", server.url, "correct horse")
    store.save(server.url, login("void", data=tmp_path / "data"))
    server.add("one").log = b"text"
    with Client(server.url) as client:
        assert b"".join(client.logs("one")) == b"text"


def test_a_token_that_another_process_renewed_is_taken_over(server: FakeServer, store: CredentialStore) -> None:
    store.save(server.url, login("void"))
    with Client(server.url) as client:
        store.save(server.url, login(server.token()))
        assert client.me().username == "admin"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_password_file_that_others_can_read_is_not_trusted(tmp_path: Path, mode: int) -> None:
    record_local_server(tmp_path, "http://127.0.0.1:1", "correct horse", mode=mode)
    assert admin_password(tmp_path) is None


def test_a_password_file_of_its_owner_is_read(tmp_path: Path) -> None:
    assert admin_password(tmp_path) is None
    record_local_server(tmp_path, "http://127.0.0.1:1", "correct horse")
    assert admin_password(tmp_path) == "correct horse"


@pytest.mark.parametrize("content", ["", "[]", '{"url": 3}', '{"address": "x"}'])
def test_a_spoilt_record_of_a_server_is_no_record(tmp_path: Path, content: str) -> None:
    (tmp_path / "server.json").write_text(content)
    assert find_local_server(tmp_path) is None


def test_the_data_folder_is_named_or_the_systems_or_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORING_DATA", "/somewhere")
    assert default_data_folder() == Path("/somewhere")
    monkeypatch.delenv("MOORING_DATA")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_folder() == Path("/var/lib/mooring")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/data/ann")
    assert default_data_folder() == Path("/data/ann/mooring")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/ann")
    assert default_data_folder() == Path("/home/ann/.local/share/mooring")


def test_the_server_is_the_one_named_nearest(
    store: CredentialStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_server(None, store) == DEFAULT_SERVER
    record_local_server(tmp_path / "data", "http://127.0.0.1:8123")
    assert resolve_server(None, store) == "http://127.0.0.1:8123"
    store.save("http://logged-in", login("token"), make_last=True)
    assert resolve_server(None, store) == "http://logged-in"
    monkeypatch.setenv("MOORING_SERVER", "http://environment/")
    assert resolve_server(None, store) == "http://environment"
    assert resolve_server("option:9", store) == "http://option:9"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("host", "http://host"),
        ("host:8000", "http://host:8000"),
        (" https://Host:443/ ", "https://host"),
        ("http://host:80", "http://host"),
        ("http://[::1]:8000/mooring/", "http://[::1]:8000/mooring"),
    ],
)
def test_an_address_is_written_one_way(written: str, canonical: str) -> None:
    assert canonical_address(written) == canonical


@pytest.mark.parametrize("written", ["", "ftp://host", "http://", "http://host:port", "http://a@host", "http://host?x"])
def test_an_invalid_address_is_refused(written: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a server"):
        canonical_address(written)


def test_a_proxy_serves_other_machines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert proxy_for("https://far.example") == "http://proxy:3128"
    assert proxy_for("https://inside.example") is None
    assert proxy_for("https://localhost:8000") is None
    assert is_loopback("http://127.0.0.5")
    assert is_loopback("http://[::1]:1")
    assert not is_loopback("http://10.0.0.1")
