"""Archives of tasks, unpacked by `mooring cp` and `mooring run --download`: a task may send anything."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from mooring.cli.interaction.task_files import unpack
from mooring.model.errors import MooringError


def archive(*members: tuple[str, bytes, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as out:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, 0o755
            if kind == tarfile.REGTYPE:
                member.size = len(text)
            else:
                member.linkname = text
            out.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def fetched(packed: bytes, path: str, folder: Path) -> None:
    unpack(iter([packed[:700], packed[700:]]), path, str(folder))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a file that a task would like to change."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "keys").write_text("own")
    return tmp_path / "home"


FILE, FOLDER, LINK, HARD_LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
HOSTILE = {
    "another name": [(".ssh/keys", FILE, "theirs")],
    "a name beside": [("out/a", FILE, "1"), (".profile", FILE, "theirs")],
    "a parent": [("out/../.ssh/keys", FILE, "theirs")],
    "an absolute path": [("/out/../../home/.ssh/keys", FILE, "theirs")],
    "through a link": [("out/l", LINK, "../.ssh"), ("out/l/keys", FILE, "theirs")],
    "into a link": [("out/l", LINK, "../.ssh/keys"), ("out/l", FILE, "theirs"), (".x", FILE, "")],
    "a hard link through a link": [("out/l", LINK, "../.ssh"), ("out/h", HARD_LINK, "out/l/keys")],
    "a link to the root": [("out/l", LINK, "/")],
    "a device": [("out/d", tarfile.CHRTYPE, "")],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_only_the_requested_path_is_written(home: Path, members: list[tuple[str, bytes, str]]) -> None:
    with pytest.raises(MooringError) as refused:
        fetched(archive(*members), "results/out", home)
    assert refused.value.code == "files-refused"
    assert (home / ".ssh" / "keys").read_text() == "own"
    assert [path.name for path in home.iterdir()] == [".ssh"]


def test_a_link_of_an_earlier_download_is_not_followed(home: Path) -> None:
    fetched(archive(("out/l", LINK, "../.ssh")), "out", home)
    assert (home / "out" / "l").is_symlink()
    with pytest.raises(MooringError, match="cannot be written"):
        fetched(archive(("out/l", FOLDER, ""), ("out/l/keys", FILE, "theirs")), "out", home)
    fetched(archive(("out/l", FILE, "a file now")), "out", home)
    assert (home / "out" / "l").read_text() == "a file now"
    assert (home / ".ssh" / "keys").read_text() == "own"


def test_folders_are_merged_and_files_replaced(home: Path) -> None:
    fetched(archive(("out", FOLDER, ""), ("out/a", FILE, "1"), ("out/sub/b", FILE, "1")), "/work/out/", home)
    fetched(
        archive(("./out/sub/b", FILE, "2"), ("out/sub/c", LINK, "b"), ("out/h", HARD_LINK, "out/sub/b")), "out", home
    )
    found = {
        str(path.relative_to(home / "out")): path.read_text() for path in (home / "out").rglob("*") if path.is_file()
    }
    assert found == {"a": "1", "sub/b": "2", "sub/c": "2", "h": "2"}
    assert (home / "out" / "a").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("path", [".", "/", "data/."])
def test_the_content_of_a_folder_may_have_any_name(home: Path, path: str) -> None:
    fetched(archive(("anything/a", FILE, "1")), path, home)
    assert (home / "anything" / "a").read_text() == "1"


def test_an_archive_that_breaks_off_leaves_nothing(home: Path) -> None:
    with pytest.raises(MooringError, match="cannot be unpacked"):
        fetched(archive(("out/a", FILE, "1" * 2000))[:1000], "out", home)
    assert [path.name for path in home.iterdir()] == [".ssh"]
