"""Unpacking of uploads: exactly the entries of the manifest, and nothing anywhere else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mooring.agent.files.safe_files import Folder, UnsafePath
from mooring.agent.files.unpacking import DamagedChunk, Ownership, unpack
from mooring.wire.workloads.uploads import Entry, Manifest, digest_of

CONTENT = b"print(1)\n"
OWN = Ownership()
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / digest_of(CONTENT)).write_bytes(CONTENT)
    folder = tmp_path / "target"
    folder.mkdir(mode=0o700)
    return folder


def file(path: str, *, executable: bool = False) -> Entry:
    return Entry(path=path, size=len(CONTENT), chunks=[digest_of(CONTENT)], executable=executable)


def unpacked(target: Path, *entries: Entry, ownership: Ownership = OWN) -> None:
    with Folder.open(target.resolve()) as top:
        unpack(Manifest(entries=list(entries)), lambda digest: target.parent / digest, top, ownership)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_files_folders_and_links_are_created(target: Path):
    unpacked(
        target,
        file("run.sh", executable=True),
        file("a/b/c.py"),
        Entry(path="empty", kind="folder"),
        Entry(path="a/alias", kind="link", target="b/c.py"),
        Entry(path="nothing", size=0),
    )
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == [
        "a", "a/alias", "a/b", "a/b/c.py", "empty", "nothing", "run.sh",
    ]  # fmt: skip
    assert (target / "a/alias").read_bytes() == CONTENT
    assert (mode(target / "run.sh"), mode(target / "a/b/c.py")) == (0o755, 0o644)


def test_files_of_containers_are_writable_for_any_user_of_an_image(target: Path):
    unpacked(target, file("a/run.sh", executable=True), file("a/x"), ownership=Ownership(shared=True))
    assert [mode(target / path) for path in ("a", "a/run.sh", "a/x")] == [0o777, 0o777, 0o666]


@ROOT_ONLY
def test_everything_but_the_top_belongs_to_the_user_of_the_task(target: Path):
    link = Entry(path="a/alias", kind="link", target="b/c.py")
    unpacked(target, file("a/b/c.py"), link, ownership=Ownership(1234, 1235))
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in target.rglob("*")}
    assert owners == {(1234, 1235)}
    assert target.stat().st_uid == 0


@ROOT_ONLY
def test_no_folder_is_entered_again_after_its_owner_changed(target: Path):
    # `-` and `.` sort before `/`, so these names come between a folder and its content.
    paths = ["a/z", "a-b/c", "a.d/e/f", "a/b/c", "a/b-c/d", "a.d/e.f"]
    unpacked(target, *map(file, paths), Entry(path="a", kind="folder"), ownership=Ownership(1234, 1235))
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()) == sorted(paths)
    assert {path.stat().st_uid for path in target.rglob("*")} == {1234}


def test_each_folder_is_opened_once(target: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[Path] = []
    make = Folder.make

    def counted(folder: Folder, name: str, mode: int = 0o700) -> Folder:
        made.append(folder.path / name)
        return make(folder, name, mode)

    monkeypatch.setattr(Folder, "make", counted)
    unpacked(target, *(file("d/" * 20 + f"{number}/f") for number in range(20)))
    assert len(made) == len(set(made)) == 40


@pytest.mark.parametrize(
    "entries",
    [
        (Entry(path="out", kind="link", target="../outside"), file("out/file")),
        (Entry(path="a", kind="link", target="../outside"), Entry(path="a/b", kind="folder")),
        (file("../outside/file"),),
        (file("a/../../outside/file"),),
    ],
)
def test_nothing_is_written_outside_even_if_the_manifest_was_not_checked(target: Path, entries: tuple[Entry, ...]):
    outside = target.parent / "outside"
    outside.mkdir()
    with pytest.raises(UnsafePath):
        unpacked(target, *entries)
    assert list(outside.iterdir()) == []


def replace_by_link(chunk: Path) -> None:
    chunk.rename(chunk.with_name("elsewhere"))
    chunk.symlink_to("elsewhere")


def replace_by_pipe(chunk: Path) -> None:
    chunk.unlink()
    os.mkfifo(chunk)


@pytest.mark.parametrize(
    "damage",
    [lambda chunk: chunk.write_bytes(CONTENT[::-1]), Path.unlink, replace_by_link, replace_by_pipe],
    ids=["content", "missing", "link", "pipe"],
)
def test_a_chunk_with_other_content_of_the_same_size_is_not_used(target: Path, damage: Callable[[Path], object]):
    damage(target.parent / digest_of(CONTENT))
    with pytest.raises(DamagedChunk):
        unpacked(target, file("a"))


def test_an_entry_never_replaces_another(target: Path):
    with pytest.raises(FileExistsError):
        unpacked(target, file("a"), file("a"))
