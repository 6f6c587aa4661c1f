"""Uploaded files in tasks: upload, unpacking on real nodes, download of results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.conftest import Servers, running_servers
from tests.system.servers import Cli, Server

TRAIN = """
import os, pathlib, data
pathlib.Path("results").mkdir(exist_ok=True)
index = os.environ.get("MOORING_ARRAY_INDEX") or os.environ["MOORING_TASK_ROLE"]
pathlib.Path("results/model.txt").write_text(f"{data.VALUE} {os.environ['CUDA_VISIBLE_DEVICES']}")
print("trained", index, data.VALUE, os.stat("train.py").st_uid == os.getuid(), flush=True)
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Servers]:
    with running_servers() as started:
        yield started


@pytest.fixture(scope="module")
def server(shared: Servers) -> Server:
    server = shared.start("--no-agent")
    for name in ("one", "two"):
        shared.node(server, name, "--device", "gpu=1:T4:16Gi")
    return server


@pytest.fixture
def mooring(shared: Servers, server: Server) -> Cli:
    cli = shared.cli()
    cli.out("login", "--data", str(server.data))
    return cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "train.py").write_text(TRAIN)
    (project / "data" / "__init__.py").write_text("VALUE = 42\n")
    (project / ".gitignore").write_text("*.bin\n")
    (project / "large.bin").write_bytes(os.urandom(1000))
    (project / "blob").write_bytes(os.urandom(9_000_000))
    monkeypatch.chdir(project)
    return project


@pytest.mark.slow
def test_a_script_runs_with_its_folder_on_any_node_and_its_results_come_back(
    mooring: Cli, server: Server, folder: Path
) -> None:
    ran = mooring("run", "--gpu", "0.5", "--upload", ".", "--download", "results", "--", "python3", "train.py")
    assert "trained main 42 True" in ran.stdout, ran.stderr
    assert "uploading files: 100 %" in ran.stderr
    assert (folder / "results" / "model.txt").read_text() == "42 0"
    (folder / "results" / "model.txt").unlink()
    (folder / "results").rmdir()

    again = mooring("run", "--upload", ".", "--", "ls", "-A")
    assert again.returncode == 0, again.stderr
    assert "uploading" not in again.stderr
    assert again.stdout.split() == [".gitignore", "blob", "data", "tmp", "train.py"]


@pytest.mark.slow
def test_each_task_of_an_array_and_of_a_gang_has_a_copy_and_each_node_one_download(
    mooring: Cli, server: Server, shared: Servers, folder: Path
) -> None:
    mooring.out("run", "--name", "sweep", "--array", "0-3", "--upload", ".", "--", "python3", "train.py")
    gang = ("session", "create", "--name", "team", "--type", "batch", "--size", "2", "--upload", ".")
    mooring.out(*gang, "--", "python3", "train.py")
    with server.client() as client:
        for name, tasks in (("sweep", 4), ("team", 2)):
            ended = client.wait(name, timeout_seconds=120)
            assert ended.status == "SUCCEEDED", ended.reason
            assert len(ended.tasks) == tasks
        upload = client.uploads()[0]
    content = (folder / "blob").stat().st_size
    for node in ("one", "two"):
        cached = sum(path.stat().st_size for path in (shared.folder / node / "uploads").glob("*/*"))
        assert cached == 0 or content < cached < content + upload.size


@pytest.mark.slow
def test_the_local_folder_is_refused_to_a_task_of_another_user(mooring: Cli, folder: Path) -> None:
    refused = mooring("run", "--here", "--", "true")
    assert refused.returncode == 1
    assert "local-folder-refused" in refused.stderr
    assert "use --upload instead of --here" in refused.stderr
