"""The keys that tokens are signed with."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from mooring import clock
from mooring.api.auth import signing
from mooring.api.auth.signing import FILE_NAME, SigningKey, SigningKeys
from mooring.api.auth.tokens import Claims, Tokens
from mooring.model.errors import Conflict, InvalidInput, NotAuthenticated
from mooring.store.core.engine import Database


def test_the_first_start_makes_a_key_that_only_its_owner_can_read(tmp_path: Path):
    keys = signing.load(tmp_path / "data")
    file = tmp_path / "data" / FILE_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry["id"] for entry in json.loads(file.read_text())] == keys.ids
    assert signing.load(tmp_path / "data").ids == keys.ids
    assert [path.name for path in file.parent.iterdir()] == [FILE_NAME]


def test_concurrent_first_starts_share_one_key(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: signing.load(tmp_path).ids, range(8)))
    assert found == [found[0]] * 8


def test_after_a_rotation_the_new_key_signs_and_the_old_one_still_verifies(tmp_path: Path):
    old = signing.load(tmp_path)
    token = Tokens(old).issue(Claims(uuid4(), 1, clock.now()))
    new = signing.rotate(tmp_path)
    assert new.newest.id != old.newest.id
    assert new.ids[1:] == old.ids
    assert Tokens(new).verify(token.text).epoch == 1
    assert signing.load(tmp_path).ids == new.ids
    later = Tokens(new).issue(Claims(uuid4(), 1, clock.now()))
    with pytest.raises(NotAuthenticated):
        Tokens(old).verify(later.text)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path):
    signing.load(tmp_path)
    (tmp_path / FILE_NAME).chmod(0o644)
    with pytest.raises(InvalidInput, match="chmod 600"):
        signing.load(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{}", "[1]", '[{"key": "%%%"}]', '[{"id": "a"}]', "5"])
def test_a_key_file_that_holds_no_keys_is_refused(tmp_path: Path, content: str):
    file = tmp_path / FILE_NAME
    file.touch(0o600)
    file.write_text(content)
    with pytest.raises(InvalidInput):
        signing.load(tmp_path)


def test_the_environment_gives_one_key_or_several():
    keys = signing.from_text(f"{'a' * 32}, {'b' * 32}")
    assert keys.newest.secret == b"a" * 32
    assert len(keys.ids) == 2
    with pytest.raises(InvalidInput, match="at least 32"):
        signing.from_text("short")


def test_a_key_does_not_show_itself():
    assert "kkk" not in repr(SigningKey(b"k" * 32))


async def test_a_server_with_another_key_refuses_to_start(database: Database):
    first, second = SigningKeys([SigningKey(b"1" * 32)]), SigningKeys([SigningKey(b"2" * 32)])
    await signing.check_shared(database, first)
    await signing.check_shared(database, first)
    with pytest.raises(Conflict, match="copy signing-keys"):
        await signing.check_shared(database, second)


async def test_a_rotated_key_is_made_known_by_a_server_that_shares_the_old_one(database: Database):
    old, new = SigningKey(b"1" * 32), SigningKey(b"2" * 32)
    await signing.check_shared(database, SigningKeys([old]))
    await signing.check_shared(database, SigningKeys([new, old]))
    await signing.check_shared(database, SigningKeys([new]))
