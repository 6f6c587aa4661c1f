"""The committed build of the console is what its sources give, and passes its own checks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mooring.console import files
from tests.servers import unavailable

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "console"
_GENERATED = ("node_modules", "openapi.json", "schema.d.ts")
_FIRST_LOAD_BYTES = 350_000


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the console's sources with its packages, where Node.js and the packages can be had."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        unavailable("node", "the build of the console is NOT verified: this needs Node.js 20 or newer and npm")
    copy = tmp_path_factory.mktemp("build") / "console"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns(*_GENERATED))
    installed = SOURCES / "node_modules"
    if (installed / ".installed").exists():
        (copy / "node_modules").symlink_to(installed)
    elif (ran := run(copy, "npm", "ci", "--prefer-offline")).returncode:
        unavailable("node", f"the build of the console is NOT verified: npm ci failed: {ran.stderr[-500:]}")
    return copy


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def contents(folder: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_committed_build_is_that_of_the_sources(sources: Path) -> None:
    built = sources.parent / "assets"
    ran = run(sources, "npx", "--no-install", "vite", "build", "--outDir", str(built), "--emptyOutDir")
    assert ran.returncode == 0, ran.stderr
    fresh, committed = contents(built), contents(files.FOLDER)
    assert sorted(fresh) == sorted(committed), "the build is not current: run make console, and commit the result"
    assert [name for name in fresh if fresh[name] != committed[name]] == []


@pytest.mark.slow
def test_the_logic_of_the_console_passes_its_tests(sources: Path) -> None:
    ran = run(sources, "npx", "--no-install", "vitest", "run")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_file_of_the_console_names_a_registry() -> None:
    for name in ("package.json", "package-lock.json", ".npmrc"):
        assert "registry.npmjs" not in (SOURCES / name).read_text()
        assert '"resolved"' not in (SOURCES / name).read_text()


def test_the_licences_of_all_parts_are_in_the_build() -> None:
    notices = files.read("third-party-licences.txt").body.decode()
    for part in ("react-dom", "@tanstack/react-query", "@tanstack/react-virtual", "@xterm/xterm"):
        assert f"\n{part} " in notices
    assert notices.count("Permission is hereby granted") >= 8


def test_the_first_load_is_small() -> None:
    """All files except the terminal and the YAML editor, which load when they are opened."""
    later = ("shell-", "yaml_editor-", "third-party")
    first = [name for name in files.names() if not name.startswith(later)]
    assert sum(len(files.read(name).compressed) for name in first) <= _FIRST_LOAD_BYTES
