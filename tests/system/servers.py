"""Real Mooring servers and agents, each a separate process on loopback with a free port and a temporary folder.

This module does not need pytest, since the benchmarks use it too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from mooring.client import Client
from mooring.client.credentials import CredentialStore
from mooring.wire.cluster.pools import PoolChange
from tests.system.fork_server import ForkedProcess, can_fork, launch

MOORING = str(Path(sys.executable).with_name("mooring"))
PASSWORD = "admin123"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.03
_MAX_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 60.0

T = TypeVar("T")


def eventually(condition: Callable[[], T], seconds: float = 120.0) -> T:
    """Return the result of `condition` once it is true. Raise AssertionError with the last result after `seconds`."""
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"still {answer!r} after {seconds:g} seconds")
        # Poll less often the longer it takes: polling is work for the program that is waited for.
        time.sleep(min(max(_POLL_SECONDS, waited / 20), _MAX_POLL_SECONDS))
    return answer


def is_ready(client: Client, node: str) -> bool:
    """Return whether a node of this name has joined and takes work."""
    return any(found.name == node and found.status == "READY" for found in client.nodes().nodes)


def process_of(task_id: str | bytes, *words: str) -> int:
    """Return the host's pid of the task's own process, or of the one with this command line.

    The pid in the task's PID namespace is different.
    """
    name = (task_id if isinstance(task_id, str) else task_id.decode()).strip()
    return min(
        eventually(
            lambda: [
                process.pid
                for process in psutil.process_iter(["environ", "cmdline"])
                if (process.info["environ"] or {}).get("MOORING_TASK_ID") == name
                and (not words or process.info["cmdline"] == list(words))
            ]
        )
    )


@contextmanager
def workspace() -> Iterator[Path]:
    """Create a folder that tasks of other users can enter. Afterwards kill its remaining processes and remove it.

    Not in /tmp: tasks have their own, and some tests put files here for tasks to read.
    """
    folder = Path(tempfile.mkdtemp(prefix="mooring-system-", dir="/var/lib" if os.getuid() == 0 else Path.home()))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        _end_processes_in(folder)
        _remove_cgroups_of(folder)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Program(ABC):
    """One `mooring` process with a log. It can be started again after it ends."""

    data: Path
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    log_name: str = ""
    """The base name of its logs beside the data folder; by default the folder's name."""
    prefix: tuple[str, ...] = ()
    """A program that runs the command, such as one that drops privileges."""
    forks: bool = False
    """Fork it from a process that has imported Mooring, which is faster."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """Return the arguments after the command's name."""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        """Everything that it wrote to standard error, over all starts."""
        path = self._log_file("err")
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def printed(self) -> str:
        return self._log_file("out").read_text(errors="replace")

    def launch(self) -> None:
        self.data.parent.mkdir(parents=True, exist_ok=True)
        environment = clean_environment(self.data.parent / "home") | dict(self.environment)
        with self._log_file("out").open("ab") as out, self._log_file("err").open("ab") as err:
            if self.forks and not self.prefix and can_fork(self.environment):
                self.process = launch(MOORING, self.arguments(), environment, out, err)
                return
            self.process = subprocess.Popen(
                [*self.prefix, MOORING, *self.arguments()],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                # Its own session, as in a terminal, so that signals to the tests do not reach it.
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill it as in a crash, without any cleanup."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(_STOP_SECONDS)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(_STOP_SECONDS)

    def exit_code(self) -> int:
        """Wait for a process that ends by itself and return its exit code."""
        assert self.process is not None
        return self.process.wait(_START_SECONDS)

    def _log_file(self, stream: str) -> Path:
        return self.data.with_name(f"{self.log_name or self.data.name}.{stream}.txt")


@dataclass
class Server(Program):
    """`mooring up`."""

    url: str = ""
    ca_file: Path | None = None
    default_requests: bool = False
    """Keep the default requests of pools, with which a small machine runs few tasks at once."""

    def arguments(self) -> list[str]:
        return ["up", "--data", str(self.data), "--port", "0", *self.flags]

    def start(self, *, ready: bool = True) -> Server:
        """Launch it and wait until it responds. `ready` also waits until the scheduler leads."""
        self._address.unlink(missing_ok=True)
        self.launch()
        self.wait(ready=ready)
        if ready and not self.default_requests and "MOORING_ADMIN_PASSWORD" in self.environment:
            self._clear_default_requests()
            self.default_requests = True
        return self

    def _clear_default_requests(self) -> None:
        nothing = PoolChange(default_cpu=0, default_memory=0)
        with self.client(password=self.environment["MOORING_ADMIN_PASSWORD"]) as client:
            for pool in client.pools().pools:
                if (pool.default_cpu, pool.default_memory) != ("0", "0"):
                    client.change_pool(pool.name, nothing)

    def wait(self, *, ready: bool = True) -> Server:
        """Wait until a launched server responds."""
        assert self.process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log[-4000:]}")
            with contextlib.suppress(OSError, ValueError):
                self.url = json.loads(self._address.read_text())["url"]
                if self.status("/ready" if ready else "/health") == 200:
                    return self
            time.sleep(_POLL_SECONDS)
        raise AssertionError(f"the server did not get ready:\n{self.log[-4000:]}")

    @property
    def _address(self) -> Path:
        return self.data / "server.json"

    def client(self, username: str = "admin", password: str = PASSWORD) -> Client:
        """Return a logged-in client, whose login lasts as long as the client."""
        client = self._stranger()
        client.login(username, password)
        return client

    def credential(self, username: str, password: str = PASSWORD) -> dict[str, str]:
        """Return the authorization header of this user."""
        with self._stranger() as client:
            return {"Authorization": f"Bearer {client.login(username, password).access_token}"}

    def _stranger(self) -> Client:
        return Client(self.url, store=CredentialStore(self.data.parent / "no-logins.json"), ca_file=self.ca_file)

    def status(self, path: str) -> int:
        """Return the HTTP status of a GET that needs no login."""
        try:
            trusted = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None
            with urllib.request.urlopen(self.url + path, timeout=_ANSWER_SECONDS, context=trusted) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def leads(self) -> bool:
        """Return whether its scheduler is the leader. This needs no login."""
        with urllib.request.urlopen(f"{self.url}/health", timeout=_ANSWER_SECONDS) as answer:
            return bool(json.load(answer)["role"] == "leader")

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=_ANSWER_SECONDS) as answer:
            text: str = answer.read().decode()
            return text

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def assert_books_agree(self) -> None:
        """Assert a clean audit: ledger, counters and JSON agree, nothing is over capacity or allocated twice."""
        with self.client() as client:
            report = client.audit()
        assert report.clean, report.findings


@dataclass
class NodeAgent(Program):
    """`mooring agent`: a separate node."""

    server: str = ""
    name: str = "second"
    token: str | None = None

    def arguments(self) -> list[str]:
        token = ["--token", self.token] if self.token else []
        return ["agent", "--server", self.server, "--data", str(self.data), "--name", self.name, *token, *self.flags]


@dataclass(frozen=True)
class Cli:
    """The `mooring` command as a person uses it, with its own home folder."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [MOORING, *words],
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            env=clean_environment(self.home) | dict(self.environment),
        )

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that keeps running. Use it in a `with` block."""
        return subprocess.Popen(
            [MOORING, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=clean_environment(self.home) | dict(self.environment),
            preexec_fn=_listen_to_interrupts,
        )

    def out(self, *words: str, given: str | None = None) -> str:
        """Return the output of a command, which must succeed."""
        done = self(*words, given=given)
        assert done.returncode == 0, f"{' '.join(words)} exited with {done.returncode}: {done.stderr}"
        return done.stdout


@contextmanager
def running_server(
    data: Path, *flags: str, environment: Mapping[str, str] | None = None, audited: bool = True
) -> Iterator[Server]:
    """Run a server for one block and audit it afterwards, unless it was stopped or failed."""
    server = Server(data, flags, {"MOORING_ADMIN_PASSWORD": PASSWORD, **(environment or {})})
    try:
        yield server.start()
        if audited and server.alive:
            server.assert_books_agree()
    finally:
        if server.alive:
            server.stop()


def _listen_to_interrupts() -> None:
    """Handle Ctrl-C in the child. Tests that run in the background ignore it, and their children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment without anything that Mooring or a proxy would read.

    Compiled kernels are shared with the tests. Otherwise every server would spend its first seconds compiling them.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = ("PATH", "PYTHONPATH", "LANG", "TZ", "TMPDIR", "NUMBA_CACHE_DIR")
    stored = {name: os.environ[name] for name in names if name in os.environ}
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    # Leave the container engine of this machine alone.
    return {**stored, "HOME": str(home), "XDG_CACHE_HOME": caches, "NO_COLOR": "1", "DOCKER_HOST": "none"}


def everything_in(folder: Path) -> Iterator[Path]:
    """Yield all files and folders in it. Unlike `glob`, this works while other processes remove some."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


def _end_processes_in(folder: Path) -> None:
    """Kill the supervisors that a killed agent left behind, found by the folder in their command line."""
    left: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(word.startswith(f"{folder}/") for word in process.cmdline()):
                left += [process, *process.children(recursive=True)]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=10)


def _remove_cgroups_of(folder: Path) -> None:
    for credential in folder.glob("*/agent/credential.json"):
        with contextlib.suppress(OSError, ValueError):
            node = json.loads(credential.read_text())["node_id"]
            bases = [path for path in everything_in(Path("/sys/fs/cgroup")) if path.name == f"mooring-{node}"]
            for base in bases:
                for group in sorted((path for path in base.glob("**/") if path.is_dir()), reverse=True):
                    group.rmdir()
