"""Real Mooring servers and agents, each a process of its own: loopback, a free port, a temporary folder, stopped by id.

Needs nothing of pytest, so that the benchmarks use it too.
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

MOORING = str(Path(sys.executable).with_name("mooring"))
PASSWORD = "admin123"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.03
_LONGEST_POLL_SECONDS = 0.1

T = TypeVar("T")


def eventually(condition: Callable[[], T], seconds: float = 120.0) -> T:
    """What `condition` answers as soon as that is true; an AssertionError with its last answer after `seconds`."""
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"still {answer!r} after {seconds:g} seconds")
        # What takes long is asked for less often: each question is work for those who are waited for.
        time.sleep(min(max(_POLL_SECONDS, waited / 20), _LONGEST_POLL_SECONDS))
    return answer


@contextmanager
def workspace() -> Iterator[Path]:
    """A folder that tasks of other users can pass through; afterwards it is gone with whatever still ran in it."""
    folder = Path(tempfile.mkdtemp(prefix="mooring-system-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        _end_processes_in(folder)
        _remove_cgroups_of(folder)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Program(ABC):
    """One `mooring` process with a log, which may be started again after its end."""

    data: Path
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    log_name: str = ""
    """Of its logs, which are beside the data folder; else the folder's own name."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """What follows the command's name."""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        """Everything that it has written to standard error, over all of its lives."""
        path = self._log_file("err")
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def printed(self) -> str:
        return self._log_file("out").read_text(errors="replace")

    def launch(self) -> None:
        self.data.parent.mkdir(parents=True, exist_ok=True)
        with self._log_file("out").open("ab") as out, self._log_file("err").open("ab") as err:
            self.process = subprocess.Popen(
                [MOORING, *self.arguments()],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=clean_environment(self.data.parent / "home") | dict(self.environment),
                # As in a terminal: what is meant for the tests is not for it.
                start_new_session=True,
            )

    def kill(self) -> None:
        """As a crash: no chance to put anything in order."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(_STOP_SECONDS)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end, and the exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(_STOP_SECONDS)

    def exit_code(self) -> int:
        """Of a process that ends by itself."""
        assert self.process is not None
        return self.process.wait(_START_SECONDS)

    def _log_file(self, stream: str) -> Path:
        return self.data.with_name(f"{self.log_name or self.data.name}.{stream}.txt")


@dataclass
class Server(Program):
    """`mooring up`."""

    url: str = ""
    ca_file: Path | None = None

    def arguments(self) -> list[str]:
        return ["up", "--data", str(self.data), "--port", "0", *self.flags]

    def start(self, *, ready: bool = True) -> Server:
        """Launch it and wait until it answers; `ready` is more than alive: the scheduler leads as well."""
        self._address.unlink(missing_ok=True)
        self.launch()
        return self.wait(ready=ready)

    def wait(self, *, ready: bool = True) -> Server:
        """Until a launched server answers."""
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
        """A client that is logged in; its login lives as long as it does."""
        client = self._stranger()
        client.login(username, password)
        return client

    def credential(self, username: str, password: str = PASSWORD) -> dict[str, str]:
        """The header that requests of this user show."""
        with self._stranger() as client:
            return {"Authorization": f"Bearer {client.login(username, password).access_token}"}

    def _stranger(self) -> Client:
        return Client(self.url, store=CredentialStore(self.data.parent / "no-logins.json"), ca_file=self.ca_file)

    def status(self, path: str) -> int:
        """The HTTP status of a GET that needs no login."""
        try:
            trusted = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None
            with urllib.request.urlopen(self.url + path, timeout=10, context=trusted) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def leads(self) -> bool:
        """Whether its scheduler is the leader; anybody may ask for that."""
        with urllib.request.urlopen(f"{self.url}/health", timeout=10) as answer:
            return bool(json.load(answer)["role"] == "leader")

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def assert_books_agree(self) -> None:
        """Ledger = counters = JSON, nothing over capacity, nothing twice."""
        with self.client() as client:
            report = client.audit()
        assert report.clean, report.findings


@dataclass
class NodeAgent(Program):
    """`mooring agent`: a node of its own."""

    server: str = ""
    name: str = "second"
    token: str | None = None

    def arguments(self) -> list[str]:
        token = ["--token", self.token] if self.token else []
        return ["agent", "--server", self.server, "--data", str(self.data), "--name", self.name, *token, *self.flags]


@dataclass(frozen=True)
class Cli:
    """The `mooring` command as a person uses it, with a home folder of its own."""

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
        """A command that is not over at once; use it in a `with`."""
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
        """What a command that succeeds prints."""
        done = self(*words, given=given)
        assert done.returncode == 0, f"{' '.join(words)} exited with {done.returncode}: {done.stderr}"
        return done.stdout


@contextmanager
def running_server(
    data: Path, *flags: str, environment: Mapping[str, str] | None = None, audited: bool = True
) -> Iterator[Server]:
    """A server for one block, audited after it unless it was stopped or failed there."""
    server = Server(data, flags, {"MOORING_ADMIN_PASSWORD": PASSWORD, **(environment or {})})
    try:
        yield server.start()
        if audited and server.alive:
            server.assert_books_agree()
    finally:
        if server.alive:
            server.stop()


def _listen_to_interrupts() -> None:
    """Whoever runs the tests in the background has Ctrl-C ignored, and what is started would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def clean_environment(home: Path) -> dict[str, str]:
    """The environment without anything that Mooring or a proxy would read from it.

    Compiled kernels are shared with the tests: every server would spend its first seconds on compiling them otherwise.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = ("PATH", "PYTHONPATH", "LANG", "TZ", "TMPDIR", "NUMBA_CACHE_DIR")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    # The engine of whoever runs the tests is left alone.
    return {**kept, "HOME": str(home), "XDG_CACHE_HOME": caches, "NO_COLOR": "1", "DOCKER_HOST": "none"}


def everything_in(folder: Path) -> Iterator[Path]:
    """All files and folders in it, unlike with `glob` also while others take some of them away."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


def _end_processes_in(folder: Path) -> None:
    """End the supervisors that a killed agent has left, told by the folder in their command line."""
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
