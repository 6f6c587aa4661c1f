"""`mooring submit SCRIPT`: the script and the options in its head."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.wire.fields import MAX_SCRIPT
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer

SCRIPT = """#!/bin/bash
# Trains the model.
#MOORING --cpu 4 --time 2h   # two hours are enough
#MOORING --name train --env "GREETING=ahoy there"

#MOORING --label team=a
echo $GREETING "$@"
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT)
    return path


def test_a_script_is_sent_with_the_options_of_its_head(server: FakeServer, mooring: Mooring, script: Path) -> None:
    result = mooring("submit", str(script), "one", "--two")
    assert (result.exit_code, result.stdout) == (0, "train\n"), result.stderr
    assert server.last("POST", "/api/workloads").body == {
        "kind": "session",
        "name": "train",
        "time": "2h",
        "labels": {"team": "a"},
        "containers": [
            {
                "command": ["job.sh", "one", "--two"],
                "script": SCRIPT,
                "resources": {"cpu": "4"},
                "environment": {"GREETING": "ahoy there"},
            }
        ],
    }


@pytest.mark.parametrize("order", ["before", "after"])
def test_options_of_the_command_line_win_over_the_script(
    server: FakeServer, mooring: Mooring, script: Path, order: str
) -> None:
    options = ["--cpu", "8", "--env", "GREETING=hi", "--label", "shift=night"]
    words = [*options, str(script)] if order == "before" else [str(script), *options, "--", "--cpu"]
    assert mooring("submit", *words).exit_code == 0
    body = server.last("POST", "/api/workloads").body
    [container] = body["containers"]
    assert (container["resources"], container["environment"]) == ({"cpu": "8"}, {"GREETING": "hi"})
    assert (body["time"], body["labels"]) == ("2h", {"team": "a", "shift": "night"})
    assert container["command"] == (["job.sh"] if order == "before" else ["job.sh", "--cpu"])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("#MOORING --cpus 4", "No such option: --cpus"),
        ("#MOORING --server http://elsewhere", "No such option: --server"),
        ("#MOORING --help", "No such option: --help"),
        ("#MOORING train.py", "unexpected extra argument"),
        ("#MOORING --priority high", "'--priority'"),
        ("#MOORING --time soon", "soon"),
        ("#MOORING --cpu lots", "lots"),
        ('#MOORING --name "train', "No closing quotation"),
    ],
)
def test_an_invalid_line_is_named_and_nothing_is_submitted(
    server: FakeServer, mooring: Mooring, tmp_path: Path, line: str, problem: str
) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/sh\n#MOORING --cpu 1\n{line}\ntrue\n")
    result = mooring("submit", str(path))
    assert (result.exit_code, "job.sh, line 3: " in result.stderr, problem in result.stderr) == (2, True, True), (
        result.stderr
    )
    assert not server.workloads


def test_lines_after_the_first_command_are_no_options(server: FakeServer, mooring: Mooring, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\n#MOORINGS is no directive\necho\n#MOORING --cpu 4\n")
    result = mooring("submit", str(path))
    assert (result.exit_code, "job.sh, line 4: #MOORING after the first command is ignored" in result.stderr) == (
        0,
        True,
    )
    assert "resources" not in server.last("POST", "/api/workloads").body["containers"][0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"\x7fELF\0\xff", "not UTF-8"),
        (b"#!/bin/sh\r\necho\r\n", "dos2unix"),
        (b'[{"name": "a"}]', "-f"),
        (b"#" * (MAX_SCRIPT + 1), "64 KiB"),
    ],
)
def test_a_file_that_is_no_script_is_refused(
    server: FakeServer, mooring: Mooring, tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "job"
    path.write_bytes(content)
    result = mooring("submit", str(path))
    assert (result.exit_code, problem in result.stderr) == (2, True), result.stderr
    assert not server.workloads


def test_a_missing_script_or_none_at_all_is_an_error(server: FakeServer, mooring: Mooring, tmp_path: Path) -> None:
    for words, problem in (
        ([str(tmp_path / "none.sh")], "No such file"),
        ([], "either a job script or -f FILE"),
        (["-f", "jobs.json", __file__], "either a job script or -f FILE"),
    ):
        result = mooring("submit", *words)
        assert (result.exit_code, problem in result.stderr) == (2, True), result.stderr
    assert not server.workloads
