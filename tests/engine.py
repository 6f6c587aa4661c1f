"""A real container engine for the tests: Debian's podman as a service with its own storage, gone afterwards.

`engine` is shared by the session (use names and ids of your own); `running_engine()` starts one for a test that wants
to stop or restart it. Where none can run a test is skipped, or fails if MOORING_REQUIRE names `podman`.
"""

import http.client
import io
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.servers import START_SECONDS, end_with_parent, stop, unavailable

BUSYBOX = "localhost/busybox:1"
_PROGRAMS = {"podman": "podman", "runc": "runc", "conmon": "conmon", "busybox": "busybox-static"}
_REMOVAL_SECONDS = 20.0

_CONTAINERS = """
[containers]
# A machine that does not let root raise limits refuses the usual ones.
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
netns = "none"
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
# Not the memory that all engines of the machine share: each here keeps to its own folder.
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


@pytest.fixture(scope="session")
def engine() -> Iterator["Engine"]:
    with running_engine() as engine:
        yield engine


@dataclass
class Engine:
    """A podman service that belongs to the tests; its containers outlive a stop of it, as with any engine."""

    folder: Path
    insecure_registries: tuple[str, ...] = ()
    """`host:port` of registries that are spoken to without TLS."""
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def socket(self) -> str:
        return f"unix://{self._path}"

    def start(self) -> None:
        with (self.folder / "log").open("ab") as output:
            self.process = subprocess.Popen(
                ["podman", "system", "service", "--time", "0", self.socket],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
                cwd=self.folder,
                preexec_fn=end_with_parent,
            )
        limit = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(
                    f"podman did not start:\n{(self.folder / 'log').read_text(errors='replace')[-4000:]}"
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
        """What podman's own command says about the same storage."""
        done = subprocess.run(
            ["podman", *arguments], input=text, capture_output=True, env=self.environment, check=False, timeout=60
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"podman {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def import_busybox(self, name: str = BUSYBOX, *changes: str) -> str:
        """An image with nothing but busybox under all of its names, made here; `changes`: what else it says."""
        self.run("import", *(f"--change={change}" for change in changes), "-", name, text=_busybox())
        return name

    def containers(self) -> set[str]:
        """The names of all that there are, running or not."""
        return set(self.run("ps", "--all", "--format", "{{.Names}}").split())

    @property
    def environment(self) -> dict[str, str]:
        files = {"CONTAINERS_CONF": "containers", "CONTAINERS_STORAGE_CONF": "storage"}
        files |= {"CONTAINERS_REGISTRIES_CONF": "registries"}
        own = {name: str(self.folder / f"{file}.conf") for name, file in files.items()}
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.folder), **own}

    @property
    def _path(self) -> Path:
        return self.folder / "p.sock"

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("podman", timeout=5)
        with suppress(OSError, http.client.HTTPException):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self._path))
            connection.request("GET", "/_ping")
            return connection.getresponse().status == 200
        return False


@contextmanager
def running_engine(*insecure_registries: str) -> Iterator[Engine]:
    """An engine with storage of its own and busybox in it; everything that it made goes with it."""
    _needed_programs()
    # A short path: the names of sockets may have 108 characters, and those below have the ids of containers in them.
    folder = Path(tempfile.mkdtemp(prefix="moor-", dir="/tmp"))
    engine = Engine(folder, insecure_registries)
    (folder / "tmp").mkdir()
    (folder / "containers.conf").write_text(_CONTAINERS.format(folder=folder))
    (folder / "storage.conf").write_text(_STORAGE.format(folder=folder))
    registries = [f'[[registry]]\nlocation = "{each}"\ninsecure = true\n' for each in insecure_registries]
    (folder / "registries.conf").write_text("".join(registries))
    try:
        engine.start()
        engine.import_busybox()
        try:
            engine.run("run", "--rm", BUSYBOX, "true")
        except RuntimeError as problem:
            unavailable("podman", f"container tests need an engine that runs containers here: {problem}")
        yield engine
    finally:
        engine.stop()
        _remove(engine)


def _needed_programs() -> None:
    missing = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        unavailable("podman", f"container tests need {', '.join(missing)}: run `make test-deps` (root) or install them")
    if os.getuid() != 0:
        unavailable("podman", "container tests need root: the engine of the tests is root's")


def _busybox() -> bytes:
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
        users = b"root:x:0:0:root:/root:/bin/sh\n"
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(users)
        archive.addfile(passwd, io.BytesIO(users))
    return content.getvalue()


def _remove(engine: Engine) -> None:
    """Containers with their processes, mounts and cgroups, networks, then the folder."""
    ids = engine.run("ps", "--all", "--quiet", "--no-trunc", check=False).split()
    limit = time.monotonic() + _REMOVAL_SECONDS
    # More than once: one whose network others use is not removed before them.
    while engine.run("ps", "--all", "--quiet", check=False) and time.monotonic() < limit:
        engine.run("rm", "--all", "--force", "--time", "0", check=False)
    engine.run("network", "prune", "--force", check=False)
    while (processes := _processes_of(engine.folder)) and time.monotonic() < limit:
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    _unmount(engine.folder)
    for container in ids:
        for group in Path("/sys/fs/cgroup").glob(f"**/libpod*{container}*"):
            with suppress(OSError):
                group.rmdir()
    shutil.rmtree(engine.folder, ignore_errors=True)


def _processes_of(folder: Path) -> list[int]:
    """The monitors of containers, which are told in their arguments where they belong."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[0].endswith(b"conmon") and any(word.startswith(bytes(folder)) for word in words):
                found.append(int(path.parent.name))
    return found


def _unmount(folder: Path) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((each for each in mounts if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
