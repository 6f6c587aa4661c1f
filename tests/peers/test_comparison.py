"""The comparison with other schedulers names what it could not measure."""

import subprocess
from pathlib import Path

import pytest

import benchmarks.__main__ as command
from benchmarks import peers


@pytest.fixture
def without_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built, and the scripts fail as they do without root; the other parts have been measured."""
    for script in ("kubernetes-test-server.sh", "test-servers.sh"):
        (tmp_path / script).write_text("#!/bin/sh\necho first >&2\necho KUBERNETES CANNOT BE BUILT HERE >&2\nexit 1\n")
        (tmp_path / script).chmod(0o755)
    monkeypatch.setenv("MOORING_KUBERNETES_FOLDER", str(tmp_path / "cache"))
    monkeypatch.setattr(peers, "SCRIPTS", tmp_path)
    monkeypatch.setattr(peers, "_failures", {})
    monkeypatch.setattr(peers, "_versions", {})
    monkeypatch.setattr(peers, "_slurm", lambda: {"slurm_single_per_second": 50.0})
    monkeypatch.setattr(peers, "_mooring", lambda kind: {f"{kind}_single_per_second": 100.0})


@pytest.mark.usefixtures("without_kubernetes")
def test_a_part_that_cannot_be_built_is_named_and_the_others_are_compared():
    lines = peers.notes(peers.run())
    assert "- kube-scheduler: Unavailable: KUBERNETES CANNOT BE BUILT HERE" in lines
    assert "| one by one to bound, per second |  | 50 | 100 | 100 |  | 2 × |  | 2 × |" in lines


@pytest.mark.usefixtures("without_kubernetes")
def test_a_part_that_fails_is_named_and_the_others_are_compared(monkeypatch: pytest.MonkeyPatch):
    def fail() -> dict[str, float]:
        raise subprocess.CalledProcessError(3, ["slurmctld"])

    monkeypatch.setattr(peers, "_slurm", fail)
    result = peers.run()
    assert set(result) == {"sqlite_single_per_second", "postgresql_single_per_second"}
    assert any(line.startswith("- Slurm: CalledProcessError: ") for line in peers.notes(result))


def test_benchmarks_that_install_programs_run_only_by_name():
    assert "peers" in command.ON_REQUEST
    assert set(command.NAMES).isdisjoint(command.ON_REQUEST)
