"""`--upload`, `--here` and the question about local scripts."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.conftest import Mooring
from tests.cli.terminal import run_on_terminal
from tests.client.fake_server import FakeServer, running, succeeded

UPLOAD = {"upload": str(UUID(int=7))}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FakeServer) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(folder)
    server.plan = [running, succeeded]
    return folder


def test_an_uploaded_folder_is_named_in_the_request(server: FakeServer, mooring: Mooring, folder: Path) -> None:
    assert mooring("run", "--upload", ".", "--", "python3", "train.py").exit_code == 0
    assert server.uploads.paths == ["train.py"]
    assert server.last("POST", "/api/workloads").body["files"] == UPLOAD
    assert mooring("session", "create", "--upload", ".", "--", "python3", "train.py").exit_code == 0
    assert server.last("POST", "/api/sessions").body["files"] == UPLOAD


def test_without_a_terminal_the_option_is_named_instead_of_a_question(
    server: FakeServer, mooring: Mooring, folder: Path
) -> None:
    ran = mooring("run", "--", "python3", "train.py")
    assert "train.py is a file on this machine and is not sent; to send this folder, add --upload ." in ran.stderr
    assert "files" not in server.last("POST", "/api/workloads").body
    assert mooring("run", "--no-upload", "--", "python3", "train.py").stderr.count("note") == 0
    # These name no file here: an option, a program of PATH, and a path elsewhere.
    for words in (["python3", "--version"], ["train.py"], ["cat", "/etc/hostname"], ["cat", "missing.py"]):
        assert "note" not in mooring("run", "--", *words).stderr


@pytest.mark.slow
def test_on_a_terminal_the_answer_is_asked_once_per_folder(server: FakeServer, mooring: Mooring, folder: Path) -> None:
    with run_on_terminal("run", "--", "python3", "train.py") as terminal:
        terminal.expect("train.py is a file of this folder. Upload the folder (1 file, 0.0 MB)")
        terminal.type("y\n")
        assert terminal.exit_code() == 0
    assert server.last("POST", "/api/workloads").body["files"] == UPLOAD
    server.seen.clear()
    assert mooring("run", "--", "python3", "train.py").exit_code == 0
    assert server.last("POST", "/api/workloads").body["files"] == UPLOAD


def test_here_names_this_very_folder_and_the_caller(server: FakeServer, mooring: Mooring, folder: Path) -> None:
    assert mooring("run", "--here", "--", "python3", "train.py").exit_code == 0
    local = server.last("POST", "/api/workloads").body["files"]["local"]
    found = folder.stat()
    assert (local["folder"], local["uid"]) == (str(folder), os.getuid())
    assert (local["device"], local["inode"]) == (found.st_dev, found.st_ino)


@pytest.mark.parametrize(
    "words", [["--here", "--upload", "."], ["--download", "../x"], ["--download", "/x"], ["-d", "--download", "x"]]
)
def test_options_that_contradict_each_other_are_refused(
    server: FakeServer, mooring: Mooring, folder: Path, words: list[str]
) -> None:
    assert mooring("run", *words, "--", "true").exit_code == 2
    assert not server.workloads


def test_uploads_are_listed_and_removed(server: FakeServer, mooring: Mooring, folder: Path) -> None:
    mooring("run", "--upload", ".", "--", "true")
    listed = mooring("upload", "list").stdout.splitlines()
    assert listed[1].split()[:4] == [str(UUID(int=7)), "1", "0.0", "complete"]
    assert mooring("upload", "remove", str(UUID(int=7))).stdout == f"{UUID(int=7)}: removed\n"
    assert server.uploads.removed == [str(UUID(int=7))]
