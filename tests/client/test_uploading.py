"""Uploads by the client: the files of a folder without ignored ones, and only content that the server lacks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mooring.client import Client
from mooring.client.folder_scan import describe, scan
from mooring.client.uploading import _content
from mooring.model.errors import InvalidInput, MooringError, Unavailable
from mooring.wire.workloads.uploads import CHUNK_BYTES, MAX_DEPTH
from tests.client.fake_server import FakeServer


def make(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_ignore_files_of_every_folder_count_and_the_own_one_last(tmp_path: Path):
    make(
        tmp_path,
        train="x",
        cache__a="x",
        src__keep="x",
        src__drop="x",
        src__cache__b="x",
        data__small="x",
        data__big="x",
    )
    make(tmp_path, **{".git__HEAD": "x", "src__.git": "gitdir: elsewhere"})
    (tmp_path / ".gitignore").write_text("cache/\n/data\n")
    (tmp_path / ".mooringignore").write_text("!/data\n/data/big\n")
    (tmp_path / "src" / ".gitignore").write_text("drop\n.git\n")
    assert sorted(scan(tmp_path).files) == [
        ".gitignore", ".mooringignore", "data/small", "src/.gitignore", "src/keep", "train",
    ]  # fmt: skip


def test_links_stay_links_and_those_that_lead_out_are_left_out(tmp_path: Path):
    make(tmp_path, a__file="x")
    (tmp_path / "a" / "inside").symlink_to("file")
    (tmp_path / "a" / "up").symlink_to("../a/file")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "above").symlink_to("../other")
    os.mkfifo(tmp_path / "pipe")
    found = scan(tmp_path)
    assert found.links == {"a/inside": "file", "a/up": "../a/file"}
    assert found.left_out == ["above", "out", "pipe"]


def test_a_single_file_is_uploaded_by_its_name_and_nothing_else(tmp_path: Path):
    make(tmp_path, train="x", other="x")
    assert list(scan(tmp_path / "train").files) == ["train"]
    with pytest.raises(InvalidInput):
        scan(tmp_path / "missing")


def test_a_broken_upload_continues_and_an_unchanged_folder_sends_nothing(server: FakeServer, tmp_path: Path):
    folder = tmp_path / "folder"
    make(folder, run="echo")
    (folder / "run").chmod(0o755)
    (folder / "big").write_bytes(os.urandom(3 * CHUNK_BYTES + 5))
    reported: list[tuple[str, int, int]] = []
    server.uploads.breaks = 1
    with Client(server.url, token=server.token()) as client:
        done = client.upload_folder(folder, report=lambda *each: reported.append(each))
        assert done.complete
        first, second = server.uploads.received
        assert first == 3 * CHUNK_BYTES + 5 + 4
        assert second == first - CHUNK_BYTES
        assert reported[-1] == ("uploading", second, second)
        assert client.upload_folder(folder).id == done.id
        assert len(server.uploads.received) == 2
        # A changed file sends only its changed chunk.
        with (folder / "big").open("r+b") as file:
            file.write(b"changed")
        client.upload_folder(folder)
    assert server.uploads.received[2:] == [CHUNK_BYTES]
    assert server.uploads.manifest is not None
    assert {entry.path: entry.executable for entry in server.uploads.manifest.entries} == {"big": False, "run": True}


def test_uploading_to_a_server_that_stores_nothing_is_given_up(server: FakeServer, tmp_path: Path):
    make(tmp_path, run="echo")
    server.uploads.forgets = True
    with (
        Client(server.url, token=server.token()) as client,
        pytest.raises(Unavailable, match="does not store the files"),
    ):
        client.upload_folder(tmp_path)
    assert len(server.uploads.received) == 3


def test_a_connection_may_break_as_often_as_it_brings_something(server: FakeServer, tmp_path: Path):
    (tmp_path / "big").write_bytes(os.urandom(5 * CHUNK_BYTES))
    server.uploads.breaks = 4
    with Client(server.url, token=server.token()) as client:
        assert client.upload_folder(tmp_path).complete


def swap_file(folder: Path, secret: Path) -> None:
    (folder / "a" / "file").unlink()
    (folder / "a" / "file").symlink_to(secret / "file")


def swap_folder(folder: Path, secret: Path) -> None:
    (folder / "a").rename(folder / "old")
    (folder / "a").symlink_to(secret)


def swap_pipe(folder: Path, secret: Path) -> None:
    (folder / "a" / "file").unlink()
    os.mkfifo(folder / "a" / "file")


@pytest.mark.parametrize("swap", [swap_file, swap_folder, swap_pipe])
def test_a_file_replaced_after_the_scan_is_not_uploaded(tmp_path: Path, swap: Callable[[Path, Path], None]):
    folder, secret = tmp_path / "folder", tmp_path / "secret"
    make(folder, a__file="mine")
    make(secret, file="keys")
    found = scan(folder)
    described = describe(found)
    swap(folder, secret)
    with pytest.raises(InvalidInput, match="cannot read") as refused:
        describe(found)
    assert refused.value.code == "unreadable-file"
    with pytest.raises(MooringError, match="changed while it was uploaded"):
        list(_content(described.pieces))


def test_a_file_that_the_user_names_may_be_a_link(tmp_path: Path):
    make(tmp_path, real="x")
    (tmp_path / "train").symlink_to("real")
    assert describe(scan(tmp_path / "train")).pieces[0].size == 1


def test_a_folder_that_is_nested_too_deep_is_refused(tmp_path: Path):
    (tmp_path / "/".join(["d"] * (MAX_DEPTH + 1))).mkdir(parents=True)
    with pytest.raises(InvalidInput, match=f"deeper than {MAX_DEPTH} folders"):
        scan(tmp_path)


def test_an_unreadable_folder_is_named(tmp_path: Path):
    make(tmp_path, a__file="x")
    (tmp_path / "a" / ".gitignore").mkdir()
    with pytest.raises(InvalidInput, match=r"a/\.gitignore"):
        scan(tmp_path)
