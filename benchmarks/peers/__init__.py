"""kube-scheduler, Slurm and Mooring on the same work in one run, side by side.

The first run on a machine builds Kubernetes and installs Slurm, which needs root on Debian. A part that is unavailable
or fails is named with its reason; the others are measured.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from benchmarks.peers import figures, kubernetes, mooring, slurm, work
from mooring import __version__
from tests.peers import kubernetes as kubernetes_servers
from tests.peers import slurm as slurm_servers
from tests.servers import needed_etcd, needed_postgres

SCRIPTS = Path(__file__).parents[2] / "scripts"
UNMEASURED = (
    "processes of pods: there are no kubelets and no container runtime, so pods are bound and never start",
    "the REST API of Slurm: jobs are submitted with `sbatch`, one process each, whose start counts",
    "processes on PostgreSQL: Mooring's processes run on one machine with SQLite, Slurm's on "
    f"{slurm.STARTED_NODES} slurmd of the same machine",
)
_failures: dict[str, str] = {}
_versions: dict[str, str] = {}


class Unavailable(Exception):
    """A peer cannot be had on this machine."""


def run() -> dict[str, float]:
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "kube-scheduler": _kubernetes,
        "Slurm": _slurm,
        "Mooring on SQLite": lambda: _mooring("sqlite"),
        "Mooring on PostgreSQL": lambda: _mooring("postgresql"),
    }
    result: dict[str, float] = {}
    for name, measure in parts.items():
        print(f"  {name} …", file=sys.stderr, flush=True)
        try:
            result |= measure()
        # Servers of the tests that are missing skip a test.
        except (Exception, pytest.skip.Exception) as error:
            _failures[name] = f"{type(error).__name__}: {error}"
    return result


def notes(results: Mapping[str, float]) -> list[str]:
    """Return the table of ratios, the versions, and what was not measured."""
    lines = [*figures.table(results), ""]
    lines.append(
        f"{work.TASKS:,} tasks of each kind, {work.NODES:,} nodes, {work.CONNECTIONS} clients. A ratio above 1:"
    )
    lines.append("Mooring is so many times better.")
    lines += [
        "",
        f"Versions: {', '.join(f'{name} {version}' for name, version in _versions.items())}.",
        "",
        "Not measured:",
    ]
    lines += [f"- {name}: {reason}" for name, reason in _failures.items()]
    return [*lines, *(f"- {part}." for part in UNMEASURED)]


def _kubernetes() -> dict[str, float]:
    if kubernetes_servers.built_programs() is None:
        _prepare("kubernetes-test-server.sh")
    programs = kubernetes_servers.built_programs()
    if programs is None:
        raise Unavailable("scripts/kubernetes-test-server.sh has not built it")
    _versions["Kubernetes"] = kubernetes_servers.version(programs)
    _versions["etcd"] = _printed(needed_etcd()).splitlines()[0].split()[-1]
    return kubernetes.measure(programs)


def _slurm() -> dict[str, float]:
    if slurm_servers.missing_programs():
        _prepare("test-servers.sh", "slurm")
    if absent := slurm_servers.missing_programs():
        raise Unavailable(f"there is no {', '.join(absent)}: {slurm_servers.INSTALL}")
    _versions["Slurm"] = slurm_servers.version()
    return slurm.measure()


def _mooring(kind: str) -> dict[str, float]:
    _versions["Mooring"] = __version__
    if kind == "postgresql":
        _versions["PostgreSQL"] = _printed(str(needed_postgres() / "postgres")).split()[2]
    return mooring.measure(kind)


def _printed(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


def _prepare(script: str, *arguments: str) -> None:
    """Build or install a peer. Raise Unavailable with the last line that the script printed."""
    done = subprocess.run(
        [SCRIPTS / script, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise Unavailable((done.stdout.strip().splitlines() or [f"{script} failed"])[-1])
