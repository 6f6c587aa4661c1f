"""The isolation of process tasks that this machine permits, probed at the start of the agent."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import structlog

from mooring.agent.runtimes.process import seccomp
from mooring.agent.runtimes.process.supervisor import record
from mooring.model.errors import Conflict
from mooring.model.nodes.isolation import MEANINGS, IsolationLevel

if TYPE_CHECKING:
    from mooring.agent.runtimes.process.supervisor.record import ContainerSpec, TaskSpec

log = structlog.get_logger(__name__)

_PROBE = Path(__file__).parent / "supervisor" / "probe.py"
_PROBE_SECONDS = 30
_FILTER_FILE = "syscalls.bpf"

Namespaces = Literal["", "root", "user"]
Network = Literal["host", "none"]


@dataclass(frozen=True, slots=True)
class Isolation:
    level: IsolationLevel = "none"
    reason: str = ""
    """Reason why the level is not higher."""
    namespaces: Namespaces = ""
    network: Network = "host"
    syscall_filter: Path | None = None


def find(root: Path, *, agent_uid: int, tenant_uid: int, network: Network) -> Isolation:
    """Probe isolation from the strongest to the weakest, and log the level of this node.

    `tenant_uid`: a uid that tasks of a root agent run as.
    """
    filtered, problem = _prepare_filter(root)
    probed = _Probe(root, None if agent_uid != 0 else tenant_uid, network)
    if filtered is not None and (refused := probed.refusal("", filtered)) is not None:
        filtered, problem = None, f"the kernel accepts no seccomp filter: {refused}"
    wanted: Namespaces = "root" if agent_uid == 0 else "user"
    namespaces: Namespaces = wanted
    if (refused := probed.refusal(wanted, filtered)) is not None:
        namespaces, problem = "", f"no namespaces: {refused}"
    if network == "none" and namespaces != "root":
        raise Conflict(
            f"this machine cannot isolate process tasks from its network ({problem or 'the agent runs without root'}); "
            "start the agent as root, or with --task-network host",
            code="isolation-unavailable",
        )
    level: IsolationLevel = "none"
    if agent_uid != 0:
        problem = "the agent runs without root, so tasks run as its own user" + (f"; {problem}" if problem else "")
    else:
        level = "namespaces" if namespaces and filtered is not None else "user"
    found = Isolation(level, problem, namespaces, network, filtered)
    _log(found)
    return found


def _log(found: Isolation) -> None:
    fields = {
        "isolation": found.level,
        "meaning": MEANINGS[found.level],
        "namespaces": bool(found.namespaces),
        "seccomp": found.syscall_filter is not None,
        "network": found.network,
    }
    if found.level == "namespaces":
        log.info("isolation of process tasks", **fields)
    else:
        log.warning("process tasks are not fully isolated on this node", **fields, reason=found.reason)


def _prepare_filter(root: Path) -> tuple[Path | None, str]:
    """Return the file with the compiled filter, or the reason why there is none."""
    try:
        program = seccomp.compile_filter()
    except (seccomp.SeccompMissing, OSError) as error:
        return None, f"no seccomp filter: {error}"
    path = root / _FILTER_FILE
    record.write_bytes(str(path), program)
    return path, ""


@dataclass(frozen=True, slots=True)
class _Probe:
    root: Path
    uid: int | None
    network: Network

    def refusal(self, namespaces: Namespaces, syscall_filter: Path | None) -> str | None:
        """Return why a process cannot be started with this isolation; None if it can."""
        try:
            answer = subprocess.run(
                [sys.executable, "-I", "-S", str(_PROBE), json.dumps(self._spec(namespaces, syscall_filter))],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PROBE_SECONDS,
                check=False,
                env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the probe cannot run: {error}"
        said = answer.stdout.strip() or (answer.stderr.strip().rpartition("\n")[2] if answer.returncode else "")
        return said or None

    def _spec(self, namespaces: Namespaces, syscall_filter: Path | None) -> TaskSpec:
        container: ContainerSpec = {
            "name": "probe",
            "command": ["true"],
            "environment": {"PATH": "/usr/bin:/bin"},
            "folder": "/",
            "log": "/dev/null",
            "cgroup": None,
            "memory_bytes": None,
            "processes": None,
            "oom_score": 0,
            "tmpfs_bytes": 1024 * 1024,
            "terminal": False,
            "stdin": False,
            "terminal_size": (24, 80),
        }
        return {
            "task_id": "probe",
            "workload_name": "",
            "boot_id": "",
            "containers": [container],
            "restart": "never",
            "max_restarts": 0,
            "grace_seconds": 0,
            "uid": self.uid,
            "gid": self.uid or 0,
            "groups": [],
            "cgroup": None,
            "work_folder": "/",
            "ports": [],
            "log_bytes": 0,
            "log_files": 1,
            "notify": "",
            "namespaces": namespaces,
            "network": self.network if namespaces else "host",
            "syscall_filter": None if syscall_filter is None else str(syscall_filter),
        }
