"""A check that a test run leaves no files in the source tree. New files there fail the run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_UNTRACKED = "?? "
_before = pytest.StashKey[frozenset[str]]()
_strays = pytest.StashKey[list[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    if not _is_worker(session.config):
        session.config.stash[_before] = untracked(session.config.rootpath)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    before = session.config.stash.get(_before, None)
    if before is None:
        return
    strays = sorted(untracked(session.config.rootpath) - before)
    session.config.stash[_strays] = strays
    if strays and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if strays := config.stash.get(_strays, []):
        terminalreporter.section("stray files", red=True)
        terminalreporter.write_line("The run left files in the source tree; write them to a temporary folder instead:")
        for name in strays:
            terminalreporter.write_line(f"  {name}")


def untracked(root: Path) -> frozenset[str]:
    """Return the files below a folder that git neither tracks nor ignores, or all visible files without git."""
    command = ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=all", "-z", "--", "."]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return frozenset(_visible(root))
    entries = answer.stdout.split("\0")
    return frozenset(entry.removeprefix(_UNTRACKED) for entry in entries if entry.startswith(_UNTRACKED))


def _visible(root: Path) -> list[str]:
    """Return all files except hidden ones and bytecode."""
    found: list[str] = []
    for parent, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        found += (str(Path(parent, name).relative_to(root)) for name in files if not name.startswith("."))
    return found


def _is_worker(config: pytest.Config) -> bool:
    """Return whether this is a worker process of pytest-xdist."""
    return hasattr(config, "workerinput")
