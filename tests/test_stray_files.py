"""Tests of the check for stray files, with git and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CLEAN = "def test_clean(tmp_path):\n    (tmp_path / 'notes.txt').touch()\n"
CARELESS = "from pathlib import Path\n\n\ndef test_careless():\n    Path('notes.txt').touch()\n"


@pytest.fixture(params=["git", "no git"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A source tree with a file that was untracked before, and one that is ignored by git."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "draft.txt").touch()
    (tree / "pytest.ini").write_text("[pytest]\naddopts = -p xdist -p tests.stray_files -p no:cacheprovider\n")
    if request.param == "git":
        if shutil.which("git") is None:
            pytest.skip("needs git")
        subprocess.run(["git", "init", "--quiet", str(tree)], check=True)
        (tree / ".gitignore").write_text("__pycache__\n")
    return tree


def run(tree: Path, content: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tree / "test_it.py").write_text(content)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTEST_"))}
    # git does not look for a repository above the tree.
    environment |= {"PYTHONPATH": str(ROOT), "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    # Importing the other plugins takes most of the run.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", *options, str(tree)]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def test_a_run_that_leaves_nothing_passes(tree: Path):
    answer = run(tree, CLEAN)
    assert answer.returncode == 0, answer.stdout
    assert "stray files" not in answer.stdout


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "workers"])
def test_a_run_that_leaves_a_file_fails_and_names_it(tree: Path, options: tuple[str, ...]):
    answer = run(tree, CARELESS, *options)
    assert answer.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 passed" in answer.stdout
    _, _, named = answer.stdout.partition("stray files")
    assert "  notes.txt\n" in named
    assert "draft.txt" not in named
