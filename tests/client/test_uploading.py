"""Uploads by the client: the files of a folder without ignored ones, and only content that the server lacks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mooring.client import Client
from mooring.client.folder_scan import scan
from mooring.model.errors import InvalidInput
from mooring.wire.workloads.uploads import CHUNK_BYTES
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
