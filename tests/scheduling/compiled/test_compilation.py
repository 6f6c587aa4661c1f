"""Where compiled code is kept, and the process that compiles."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mooring.scheduling import kernels

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
    folder = kernels._cache_folder()
    assert folder is not None
    return Path(folder)


def test_compiled_code_is_kept_in_the_cache_of_the_user(tmp_path: Path) -> None:
    assert cache().is_relative_to(tmp_path / "home" / ".cache")
    assert cache() == cache()
    for folder in (cache(), cache().parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_was_named_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    assert cache().is_relative_to(tmp_path / "given")


@pytest.mark.parametrize("home", [NOWHERE, ""])
def test_a_service_without_a_home_keeps_it_among_the_temporary_files(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home or NOWHERE)
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    assert cache().is_relative_to(tmp_path / "temporary")


def test_a_user_that_the_system_does_not_know_has_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert cache().is_relative_to(tmp_path / "temporary")


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_is_not_trusted(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", NOWHERE)
    planted = tmp_path / "temporary" / f"mooring-{os.getuid()}"
    planted.mkdir()
    planted.chmod(mode)
    assert kernels._cache_folder() is None


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", NOWHERE)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "temporary" / f"mooring-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    assert kernels._cache_folder() is None


def test_the_process_that_compiles_ends_with_the_one_that_waits_for_it(tmp_path: Path) -> None:
    # With an empty cache it would compile for many seconds.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    program = "from mooring.scheduling.compilation import fill_cache; fill_cache(0); print('filled')"
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    printed, _ = process.communicate(timeout=60)
    assert (process.returncode, printed) == (1, b"")
