"""Sealed values open with the key of their id, for their own purpose, and in no other way."""

import base64
from pathlib import Path

import pytest

from mooring.model.errors import Conflict
from mooring.security import encryption
from mooring.security.encryption import CannotOpen, Sealed, SecretBox
from mooring.settings import Settings

VALUE = b"correct horse battery staple"
PURPOSE = ("secrets", "a project", "db")


def line(key_id: str, letter: bytes) -> str:
    return f"{key_id}:{base64.b64encode(letter * 32).decode()}\n"


def keys(file: Path, *lines: str) -> SecretBox:
    file.write_text("".join(lines))
    file.chmod(0o600)
    return SecretBox(file)


def test_the_first_key_seals_and_all_open(tmp_path: Path):
    old = keys(tmp_path / "old", line("a", b"a")).seal(VALUE, *PURPOSE)
    both = keys(tmp_path / "both", line("b", b"b"), line("a", b"a"))
    new = both.seal(VALUE, *PURPOSE)
    assert (old.key_id, new.key_id) == ("a", "b")
    assert both.open(old, *PURPOSE) == both.open(new, *PURPOSE) == VALUE
    assert VALUE not in new.data
    assert len(new.data) == len(VALUE) + encryption.OVERHEAD_BYTES
    assert both.seal(VALUE, *PURPOSE).data != new.data


@pytest.mark.parametrize(
    "purpose",
    [
        ("registry_logins", "a project", "db"),
        ("secrets", "another", "db"),
        ("secrets", "a project", "mail"),
        PURPOSE[:2],
    ],
)
def test_a_sealed_value_copied_elsewhere_does_not_open_there(tmp_path: Path, purpose: tuple[str, ...]):
    own = keys(tmp_path / "keys", line("a", b"a"))
    with pytest.raises(CannotOpen, match="cannot be decrypted with the key 'a'"):
        own.open(own.seal(VALUE, *PURPOSE), *purpose)


def test_a_changed_or_truncated_value_does_not_open(tmp_path: Path):
    own = keys(tmp_path / "keys", line("a", b"a"))
    sealed = own.seal(VALUE, *PURPOSE)
    flipped = bytes([sealed.data[-1] ^ 1])
    for data in (sealed.data[:-1] + flipped, sealed.data[:-1], sealed.data[:5], b""):
        with pytest.raises(CannotOpen) as refused:
            own.open(Sealed("a", data), *PURPOSE)
        assert refused.value.code == "seal-broken"


def test_a_missing_key_is_named(tmp_path: Path):
    sealed = keys(tmp_path / "keys", line("lost", b"a")).seal(VALUE, *PURPOSE)
    for others in (keys(tmp_path / "keys", line("b", b"b")), SecretBox(None)):
        with pytest.raises(CannotOpen, match="'lost'") as refused:
            others.open(sealed, *PURPOSE)
        assert refused.value.code == "sealing-key-missing"


def test_without_keys_nothing_is_sealed_and_the_setting_is_named():
    with pytest.raises(Conflict, match="MOORING_SEALING_KEYS_FILE"):
        SecretBox(None).seal(VALUE, *PURPOSE)


def test_a_file_that_changes_is_read_again(tmp_path: Path):
    own = keys(tmp_path / "keys", line("a", b"a"))
    sealed = own.seal(VALUE, *PURPOSE)
    new = encryption.add_key(tmp_path / "keys")
    assert own.key_ids == [new, "a"]
    assert own.seal(VALUE, *PURPOSE).key_id == new
    assert own.open(sealed, *PURPOSE) == VALUE


def test_a_first_key_is_created_once_and_readable_by_its_owner_only(tmp_path: Path):
    file = tmp_path / "keys"
    encryption.ensure(file)
    written = file.read_text()
    encryption.ensure(file)
    assert file.read_text() == written
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(SecretBox(file).key_ids) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no key"),
        ("no key at all", "line 1"),
        ("a:c2hvcnQ=", "line 1"),
        (line("a", b"a") + "b:***", "line 2"),
        (line("a b", b"a"), "line 1"),
        (line("a", b"a") + line("a", b"b"), "two keys have the id 'a'"),
        ("ä:ö", "does not consist of lines"),
    ],
)
def test_a_file_without_keys_is_rejected_without_echoing_it(tmp_path: Path, text: str, said: str):
    with pytest.raises(Conflict, match=said) as refused:
        keys(tmp_path / "keys", text).seal(VALUE, *PURPOSE)
    assert base64.b64encode(b"a" * 32).decode() not in str(refused.value)


def test_a_missing_or_publicly_readable_key_file_is_refused(tmp_path: Path):
    own = keys(tmp_path / "keys", line("a", b"a"))
    (tmp_path / "keys").chmod(0o640)
    with pytest.raises(Conflict, match="chmod 600"):
        own.seal(VALUE, *PURPOSE)
    with pytest.raises(Conflict, match="No such file"):
        SecretBox(tmp_path / "nowhere").seal(VALUE, *PURPOSE)


def keys_of(settings: Settings) -> SecretBox:
    return encryption.open_keys(settings.sealing_keys, create=settings.sealing_keys_file is None)


def test_a_server_on_sqlite_creates_its_key_and_others_are_given_theirs(tmp_path: Path):
    own = keys_of(Settings(data=tmp_path))
    assert own.key_ids == SecretBox(tmp_path / "sealing-keys").key_ids
    shared = Settings(data=tmp_path, database="postgresql+asyncpg://db/mooring")
    assert keys_of(shared).key_ids == []
    given = Settings(data=tmp_path, database=shared.database, sealing_keys_file=tmp_path / "sealing-keys")
    assert keys_of(given).key_ids == own.key_ids
    with pytest.raises(Conflict, match="No such file"):
        keys_of(Settings(data=tmp_path, sealing_keys_file=tmp_path / "nowhere"))
