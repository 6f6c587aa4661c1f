"""A Slurm cluster of emulated nodes: munged, slurmctld and one slurmd per node, all by one unprivileged user.

Debian builds its slurmd so that many can run on one machine. Each has a port; all listen on loopback. A hundred take
seconds to start, a thousand minutes. `hollow` nodes need none: jobs are allocated, and wait for them to boot.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.servers import Identity, end_with_parent, free_port, stop, unavailable, unprivileged

PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmstepd", "sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
INSTALL = "run `scripts/test-servers.sh slurm` (root on Debian) or install slurmctld, slurmd and munge"
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_COMMAND_SECONDS = 60.0
_POLL_SECONDS = 0.1
_FIRST_PORT, _LAST_PORT = 10_000, 30_000

_SETTINGS = """\
ClusterName=mooring
SlurmctldHost=localhost({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/spool/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmctldDebug=info
SlurmdLogFile={folder}/spool/%n.log
SlurmdDebug=error
LogTimeFormat=iso8601_ms
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
MaxJobCount=100000
MaxArraySize=10001
{options}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# For the cloud: Slurm asks the program to boot a node, and waits. It fails the job after an hour.
_HOLLOW = (
    "ResumeProgram=/bin/true",
    "SuspendProgram=/bin/true",
    "SuspendTime=INFINITE",
    "ResumeTimeout=3600",
    "PrivateData=cloud",  # which makes them visible
)


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster. Commands run as its user, who may do everything."""

    folder: Path
    identity: Identity

    @property
    def environment(self) -> Mapping[str, str]:
        return _environment(self.folder)

    @property
    def jobs(self) -> Path:
        """The folder that commands run in, where jobs write their output."""
        return self.folder / "jobs"

    @property
    def log(self) -> str:
        """The log of slurmctld, with the time of each event in milliseconds."""
        return (self.folder / "slurmctld.log").read_text(errors="replace")

    def __call__(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command such as `sbatch` and return its output and exit code."""
        return subprocess.run(
            [program(words[0]) or words[0], *words[1:]],
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
            env=self.environment,
            cwd=self.jobs,
            **self.identity,
        )

    def out(self, *words: str, given: str | None = None) -> str:
        """Return the output of a command, which must succeed."""
        done = self(*words, given=given)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)} exited with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def is_idle(self) -> bool:
        """Return whether no job is pending or running."""
        return self.out("squeue", "--noheader", "--format=%i") == ""


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A cluster of four nodes of eight cores and 16 GiB, shared by the session."""
    require_programs()
    with running_slurm(nodes=4, cores=8, memory_mib=16 * 1024) as cluster:
        yield cluster


def require_programs() -> None:
    """Skip the test where Slurm is not installed, or fail it if MOORING_REQUIRE names `slurm`."""
    if absent := missing_programs():
        unavailable("slurm", f"Slurm tests need {', '.join(absent)}: {INSTALL}")


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if program(name) is None]


def program(name: str) -> str | None:
    """Return the path of a program. Users other than root may not have the folders of servers on their PATH."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def version() -> str:
    """Return the version, such as 22.05.8."""
    printed = subprocess.run([program("slurmctld") or "slurmctld", "-V"], capture_output=True, text=True, check=True)
    return printed.stdout.split()[-1]


@contextmanager
def running_slurm(
    nodes: int, cores: int, memory_mib: int, options: Sequence[str] = (), *, hollow: bool = False
) -> Iterator[SlurmCluster]:
    """Run a cluster of equal nodes `n1`, `n2` … that are idle. `options` are further lines of slurm.conf.

    Jobs on `hollow` nodes are allocated and never start.
    """
    with tempfile.TemporaryDirectory(prefix="mooring-slurm-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder, identity = Path(name), _identity()
        cluster = SlurmCluster(folder, identity)
        node = f"NodeName=n[1-{nodes}] CPUs={cores} RealMemory={memory_mib}"
        if hollow:
            node, options = f"{node} State=CLOUD", (*_HOLLOW, *options)
        else:
            first = _free_ports(nodes)
            ports = f"[{first}-{first + nodes - 1}]"
            node = f"{node} State=UNKNOWN NodeHostname=localhost NodeAddr={_address()} Port={ports}"
        _write(folder, _configuration(folder, node, options), identity)
        start = _Starter(stack, cluster)
        munged = start("munged", "--foreground", "--num-threads=4", *_munge_files(folder))
        _wait(lambda: (folder / "munge.socket").exists(), "munged", munged, cluster)
        slurmctld = start("slurmctld", "-D", "-i")
        for number in range(1, 1 if hollow else nodes + 1):
            start("slurmd", "-D", "-N", f"n{number}")
        # Before the daemons end: they know the processes of the jobs.
        stack.callback(_end_jobs, cluster)
        _wait(lambda: _idle_nodes(cluster) == nodes, "slurmctld", slurmctld, cluster)
        yield cluster


class _Starter:
    """Start programs of the cluster, which end in reverse order when the stack is closed."""

    def __init__(self, stack: ExitStack, cluster: SlurmCluster) -> None:
        self._stack = stack
        self._cluster = cluster

    def __call__(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self._cluster.folder / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                [program(name) or name, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._cluster.folder,
                env=self._cluster.environment,
                preexec_fn=end_with_parent,
                **self._cluster.identity,
            )
        self._stack.callback(stop, process, signal.SIGTERM)
        return process


def _identity() -> Identity:
    """Return the user that Debian's package creates for Slurm, if this is root."""
    if os.geteuid() == 0:
        with suppress(KeyError):
            user = pwd.getpwnam("slurm")
            return Identity(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
    return unprivileged()


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return {
        "PATH": path,
        "HOME": str(folder / "jobs"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "SLURM_CONF": str(folder / "slurm.conf"),
    }


def _configuration(folder: Path, nodes: str, options: Sequence[str]) -> str:
    return _SETTINGS.format(
        address=_address(),
        port=free_port(),
        user=pwd.getpwuid(int(_identity().get("user", os.geteuid()))).pw_name,
        folder=folder,
        options="\n".join(options),
        nodes=nodes,
    )


def _address() -> str:
    """Return the loopback address that daemons listen on: that of the host's name, which Debian sets to 127.0.1.1."""
    with suppress(OSError):
        if (address := socket.gethostbyname(socket.gethostname())).startswith("127."):
            return address
    return "127.0.0.1"


def _free_ports(number: int) -> int:
    """Return the first of so many free ports in a row."""
    chance = secrets.SystemRandom()
    for _ in range(1000):
        first = chance.randrange(_FIRST_PORT, _LAST_PORT - number)
        if all(_is_free(port) for port in range(first, first + number)):
            return first
    raise RuntimeError(f"there are no {number} free ports in a row between {_FIRST_PORT} and {_LAST_PORT}")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind((_address(), port))
        except OSError:
            return False
        return True


def _write(folder: Path, configuration: str, identity: Identity) -> None:
    (folder / "slurm.conf").write_text(configuration)
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    for name in ("state", "spool", "jobs"):
        (folder / name).mkdir()
    # Others may pass through: munged insists that clients can reach its socket.
    folder.chmod(0o755)
    if "user" in identity:
        for path in (folder, *folder.iterdir()):
            os.chown(path, int(identity["user"]), int(identity["group"]))


def _munge_files(folder: Path) -> list[str]:
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return [f"--{option}={folder}/munge.{name}" for option, name in files.items()]


def _wait(condition: Callable[[], bool], name: str, process: subprocess.Popen[bytes], cluster: SlurmCluster) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if condition():
            return
        time.sleep(_POLL_SECONDS)
    logs = [path for path in (cluster.folder / f"{name}.out", cluster.folder / "slurmd.out") if path.exists()]
    printed = "\n".join(path.read_text(errors="replace")[-2000:] for path in logs)
    raise RuntimeError(f"{name} did not start:\n{printed}")


def _idle_nodes(cluster: SlurmCluster) -> int:
    return idle_nodes(cluster("sinfo", "--noheader", "--format=%D %T").stdout)


def idle_nodes(printed: str) -> int:
    """Return the number of idle nodes by `sinfo --noheader --format="%D %T"`. `idle~` are those not booted."""
    return sum(int(number) for number in re.findall(r"^(\d+) idle~?$", printed, re.MULTILINE))


def _end_jobs(cluster: SlurmCluster) -> None:
    """Cancel all jobs, and kill the steps of those that do not end."""
    with suppress(subprocess.TimeoutExpired, RuntimeError):
        cluster("scancel", "--partition=main")
        deadline = time.monotonic() + _STOP_SECONDS
        while not cluster.is_idle() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if process.info["name"] == "slurmstepd" and Path(process.cwd()) == cluster.folder:
                for each in (*process.children(recursive=True), process):
                    each.kill()
