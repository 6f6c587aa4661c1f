"""A real container engine for the tests: Podman or Docker as a service with its own storage, removed afterwards.

`engine` is shared by the session (use your own names and ids). `running_engine()` starts one for a test that stops or
restarts it. MOORING_TEST_ENGINE selects the kind. If the engine cannot run here, its tests are skipped, or fail if
MOORING_REQUIRE names it.
"""

import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.servers import START_SECONDS, end_with_parent, stop, unavailable

BUSYBOX = "localhost/busybox:1"
_REMOVAL_SECONDS = 20.0

_CONTAINERS = """
[containers]
# The usual limits are refused where root may not raise limits.
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
netns = "none"
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
# Not in shared memory, which all engines of the machine would use: each engine here has its own folder.
lock_type = "file"
tmp_dir = "{folder}/tmp"
[network]
network_config_dir = "{folder}/networks"
"""
_STORAGE = """
[storage]
driver = "vfs"
runroot = "{folder}/run"
graphroot = "{folder}/graph"
"""
_CONTAINERD = """
version = 2
root = "{folder}/containerd-root"
state = "{folder}/containerd-state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/c.sock"
"""


@dataclass(frozen=True)
class Kind:
    """The differences between engines. Their commands are nearly the same."""

    packages: Mapping[str, str]
    """The Debian package of each program."""
    service: tuple[str, ...]
    """The command of the service. Words in braces are filled in for each engine."""
    below: tuple[str, ...]
    """The command of a service that it depends on, if any. It keeps running when the engine stops."""
    environment: Mapping[str, str]
    files: Callable[["Engine"], dict[str, str]]
    remove: tuple[str, ...]
    """The command that removes containers without waiting for them to stop."""
    monitor: str
    """The program that monitors a container."""


def _podman_files(engine: "Engine") -> dict[str, str]:
    insecure = [f'[[registry]]\nlocation = "{each}"\ninsecure = true\n' for each in engine.insecure_registries]
    return {
        "containers.conf": _CONTAINERS.format(folder=engine.folder),
        "storage.conf": _STORAGE.format(folder=engine.folder),
        "registries.conf": "".join(insecure),
        "logins.json": "{}",
    }


def _docker_files(engine: "Engine") -> dict[str, str]:
    settings = {
        "hosts": [engine.socket],
        **{name: f"{engine.folder}/{name}" for name in ("data-root", "exec-root", "pidfile")},
        "containerd": f"{engine.folder}/c.sock",
        "storage-driver": "vfs",
        "live-restore": True,
        "insecure-registries": engine.insecure_registries,
        # Leave the machine's own firewall and networks alone.
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
    }
    return {"daemon.json": json.dumps(settings), "containerd.toml": _CONTAINERD.format(folder=engine.folder)}


_KINDS = {
    "podman": Kind(
        packages={"podman": "podman", "runc": "runc", "conmon": "conmon", "busybox": "busybox-static"},
        service=("podman", "system", "service", "--time", "0", "{socket}"),
        below=(),
        environment={
            "CONTAINERS_CONF": "{folder}/containers.conf",
            "CONTAINERS_STORAGE_CONF": "{folder}/storage.conf",
            "CONTAINERS_REGISTRIES_CONF": "{folder}/registries.conf",
            "REGISTRY_AUTH_FILE": "{folder}/logins.json",
        },
        files=_podman_files,
        remove=("rm", "--force", "--time", "0"),
        monitor="conmon",
    ),
    "docker": Kind(
        packages={
            "dockerd": "docker.io",
            "docker": "docker.io",
            "containerd": "containerd",
            "runc": "runc",
            "busybox": "busybox-static",
        },
        service=("dockerd", "--config-file", "{folder}/daemon.json"),
        below=("containerd", "--config", "{folder}/containerd.toml"),
        environment={"DOCKER_HOST": "{socket}", "DOCKER_CONFIG": "{folder}"},
        files=_docker_files,
        remove=("rm", "--force"),
        monitor="containerd-shim-runc-v2",
    ),
}
CHOSEN = os.environ.get("MOORING_TEST_ENGINE", "podman")
"""The name of the chosen kind, which is also its command."""
_KIND = _KINDS[CHOSEN]


@pytest.fixture(scope="session")
def engine() -> Iterator["Engine"]:
    with running_engine() as engine:
        yield engine


@dataclass
class Engine:
    """A service that belongs to the tests. Its containers survive a stop of the service, as with any engine."""

    folder: Path
    insecure_registries: tuple[str, ...] = ()
    """`host:port` of registries that are accessed without TLS."""
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    below: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def socket(self) -> str:
        return f"unix://{self._path}"

    def start(self) -> None:
        if _KIND.below and self.below is None:
            self.below = self._launched(_KIND.below)
        self.process = self._launched(_KIND.service)
        limit = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(
                    f"{CHOSEN} did not start:\n{(self.folder / 'log').read_text(errors='replace')[-4000:]}"
                )
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            stop(self.process, how)
            self.process = None
        self._path.unlink(missing_ok=True)

    def restart(self) -> None:
        self.stop()
        self.start()

    def run(self, *arguments: str, check: bool = True, text: bytes | None = None) -> str:
        """Run the engine's own command on the same storage and return its output."""
        done = subprocess.run(
            [CHOSEN, *arguments], input=text, capture_output=True, env=self.environment, check=False, timeout=60
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{CHOSEN} {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def import_busybox(self, name: str = BUSYBOX, *, scripts: Mapping[str, str] | None = None) -> None:
        """Create an image with busybox under all of its names, and with these scripts."""
        self.run("import", "-", name, text=_busybox(scripts or {}))

    def build(self, name: str, *instructions: str) -> str:
        """Build an image on busybox with these further instructions and return its name."""
        self.run("build", "--tag", name, "-", text="\n".join([f"FROM {BUSYBOX}", *instructions]).encode())
        return name

    def containers(self) -> set[str]:
        """Return the names of all containers, running or not."""
        return set(self.run("ps", "--all", "--format", "{{.Names}}").split())

    def remove(self, *containers: str) -> None:
        self.run(*_KIND.remove, *containers)

    def push_busybox(self, name: str, username: str, password: str) -> None:
        """Push busybox to a registry. The engine does not keep the login."""
        registry = name.partition("/")[0]
        self.run("login", "--username", username, "--password-stdin", registry, text=password.encode())
        self.run("tag", BUSYBOX, name)
        self.run("push", name)
        self.run("rmi", name)
        self.run("logout", registry)

    @property
    def environment(self) -> dict[str, str]:
        own = {name: self._filled(value) for name, value in _KIND.environment.items()}
        stored = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        return {**stored, "HOME": str(self.folder), "TMPDIR": str(self.folder), **own}

    def _launched(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as output:
            return subprocess.Popen(
                [self._filled(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
                cwd=self.folder,
                preexec_fn=end_with_parent,
            )

    def _filled(self, text: str) -> str:
        return text.format(folder=self.folder, socket=self.socket)

    @property
    def _path(self) -> Path:
        return self.folder / "e.sock"

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("engine", timeout=5)
        with suppress(OSError, http.client.HTTPException):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self._path))
            connection.request("GET", "/_ping")
            return connection.getresponse().status == 200
        return False


@contextmanager
def running_engine(*insecure_registries: str) -> Iterator[Engine]:
    """Start an engine with its own storage and a busybox image. Everything it created is removed with it."""
    _needed_programs()
    # A short path: a socket's path may have 108 characters, and those below contain container ids.
    folder = Path(tempfile.mkdtemp(prefix="moor-", dir="/tmp"))
    engine = Engine(folder, insecure_registries)
    (folder / "tmp").mkdir()
    for file, content in _KIND.files(engine).items():
        (folder / file).write_text(content)
    try:
        engine.start()
        engine.import_busybox()
        try:
            engine.run("run", "--rm", BUSYBOX, "true")
        except RuntimeError as problem:
            unavailable(CHOSEN, f"container tests need an engine that runs containers here: {problem}")
        yield engine
    finally:
        _remove(engine)


def _needed_programs() -> None:
    missing = [package for program, package in _KIND.packages.items() if shutil.which(program) is None]
    if missing:
        unavailable(CHOSEN, f"container tests need {', '.join(missing)}: run `make test-deps` (root) or install them")
    if os.getuid() != 0:
        unavailable(CHOSEN, "container tests need root: the engine of the tests is root's")


def _busybox(scripts: Mapping[str, str]) -> bytes:
    program = shutil.which("busybox")
    assert program is not None
    names = subprocess.run([program, "--list"], capture_output=True, check=True, text=True).stdout.split()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for folder in ("bin", "tmp", "etc", "root"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        archive.add(Path(program).resolve(), "bin/busybox")
        for name in names:
            if name != "busybox":
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
        _add(archive, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644)
        for name, text in scripts.items():
            _add(archive, f"bin/{name}", text, 0o755)
    return content.getvalue()


def _add(archive: tarfile.TarFile, name: str, text: str, mode: int) -> None:
    entry, data = tarfile.TarInfo(name), text.encode()
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _remove(engine: Engine) -> None:
    """Remove the containers with their processes, mounts and cgroups, the networks, then the folder."""
    if engine.process is None:
        engine.start()
    ids = engine.run("ps", "--all", "--quiet", "--no-trunc", check=False).split()
    limit = time.monotonic() + _REMOVAL_SECONDS
    # Repeated, because a container whose network others use can only be removed after them.
    while (left := engine.run("ps", "--all", "--quiet", check=False).split()) and time.monotonic() < limit:
        engine.run(*_KIND.remove, *left, check=False)
    engine.run("network", "prune", "--force", check=False)
    engine.stop()
    if engine.below is not None:
        stop(engine.below, signal.SIGTERM)
    while (processes := _processes_of(engine.folder)) and time.monotonic() < limit:
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    _unmount(engine.folder)
    # Not `glob`, which fails when other processes remove their cgroups meanwhile.
    for parent, groups, _ in os.walk("/sys/fs/cgroup", topdown=False):
        for group in groups:
            if any(container in group for container in ids):
                with suppress(OSError):
                    Path(parent, group).rmdir()
    shutil.rmtree(engine.folder, ignore_errors=True)


def _processes_of(folder: Path) -> list[int]:
    """Return the container monitors of this engine, found by the folder in their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if Path(words[0].decode()).name == _KIND.monitor and any(word.startswith(bytes(folder)) for word in words):
                found.append(int(path.parent.name))
    return found


def _unmount(folder: Path) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((each for each in mounts if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
