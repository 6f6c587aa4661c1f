"""The cache directory of compiled code, and the process that compiles."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mooring.scheduling.compiled import kernel_cache

NOWHERE = "/proc/no-such-folder"


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home, and a folder for temporary files; nothing given."""
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def cache() -> Path:
    folder = kernel_cache.cache_directory()
    assert folder is not None
    return Path(folder)


def test_compiled_code_is_cached_in_the_cache_directory_of_the_user(tmp_path: Path) -> None:
    assert cache().is_relative_to(tmp_path / "home" / ".cache")
    assert cache() == cache()
    for folder in (cache(), cache().parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_configured_directory_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    assert cache().is_relative_to(tmp_path / "given")


@pytest.mark.parametrize("home", [NOWHERE, ""])
def test_a_service_without_a_home_uses_the_directory_for_temporary_files(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home or NOWHERE)
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    assert cache().is_relative_to(tmp_path / "temporary")


def test_a_user_unknown_to_the_system_has_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert cache().is_relative_to(tmp_path / "temporary")


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_directory_that_others_can_write_is_not_used(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", NOWHERE)
    planted = tmp_path / "temporary" / f"mooring-{os.getuid()}"
    planted.mkdir()
    planted.chmod(mode)
    assert kernel_cache.cache_directory() is None


def test_a_symbolic_link_in_place_of_the_directory_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", NOWHERE)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "temporary" / f"mooring-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    assert kernel_cache.cache_directory() is None


def test_the_compiling_process_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    # With an empty cache it would compile for many seconds.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    program = "from mooring.scheduling.compiled.compilation import fill_cache; fill_cache(0); print('filled')"
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    printed, _ = process.communicate(timeout=60)
    assert (process.returncode, printed) == (1, b"")


def test_a_change_in_any_module_of_the_package_invalidates_the_cache(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "first.py").write_text("LIMIT = 1")
    (package / "second.py").write_text("LIMIT = 2")
    seen = {kernel_cache.source_hash(package)}
    (package / "second.py").write_text("LIMIT = 3")
    seen.add(kernel_cache.source_hash(package))
    (package / "first.py").write_text("LIMIT = 2")
    seen.add(kernel_cache.source_hash(package))
    (package / "third.py").write_text("")
    seen.add(kernel_cache.source_hash(package))
    assert len(seen) == 4


def test_a_package_without_sources_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_cache.source_hash(tmp_path) is None
    monkeypatch.setattr(kernel_cache, "__file__", str(tmp_path / "kernel_cache.pyc"))
    assert kernel_cache.cache_directory() is None
