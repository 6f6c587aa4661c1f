"""Real servers for the tests: PostgreSQL, etcd and a registry on loopback, in temporary folders.

`postgres_url` is a fresh PostgreSQL database per test, `database_url` runs a test once per kind of database, and
`etcd_endpoint` is an etcd shared by the session (use your own keys). `running_postgres()`, `running_etcd()` and
`running_registry()` start a server for one test that kills or pauses it. If the binaries are missing, the test is
skipped, or fails if the environment variable MOORING_REQUIRE names the server (`pg`, `etcd`, `registry`).
"""

import asyncio
import ctypes
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypedDict, TypeVar

import asyncpg
import pytest

START_SECONDS = 60.0
STOP_SECONDS = 10.0
START_ATTEMPTS = 3


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: the test runs twice, once per kind."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'mooring.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def postgres_url(postgres_server: "PostgresServer") -> Iterator[str]:
    """An empty PostgreSQL database, dropped after the test."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator["PostgresServer"]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def etcd_endpoint() -> Iterator[str]:
    with running_etcd() as server:
        yield server.endpoint


@dataclass
class PostgresServer:
    """A PostgreSQL server that belongs to the tests."""

    process: subprocess.Popen[bytes]
    port: int
    user: str = "mooring"

    def url(self, database: str) -> str:
        return f"postgresql+asyncpg://{self.user}@127.0.0.1:{self.port}/{database}"

    def create_database(self, template: str = "template1") -> str:
        name = f"test_{next(_database_numbers)}"
        self._ask("postgres", lambda connection: copy_database(connection, template, name))
        return name

    def drop_database(self, name: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str) -> None:
        """Run one statement as the administrator, outside any transaction."""
        self._ask("postgres", lambda connection: connection.execute(statement))

    def value(self, url: str, question: str) -> Any:
        """Return the single value that a statement selects in the database of this URL."""
        return self._ask(url.rpartition("/")[2], lambda connection: connection.fetchval(question))

    def _ask(self, database: str, question: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            connection = await asyncpg.connect(
                host="127.0.0.1", port=self.port, user=self.user, database=database, ssl=False
            )
            try:
                return await question(connection)
            finally:
                await connection.close()

        # A separate loop, which does not disturb the one that pytest-asyncio keeps for the test.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(run())


async def copy_database(connection: Any, template: str, name: str) -> None:
    # Copy files, as older servers do: logging every page as well doubles the work.
    strategy = "STRATEGY file_copy" if connection.get_server_version().major >= 15 else ""
    await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {strategy}')


@dataclass
class EtcdServer:
    """An etcd server that belongs to the tests."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass
class RegistryServer:
    """A registry of container images that requires a password and belongs to the tests."""

    process: subprocess.Popen[bytes]
    port: int
    username: str = "ada"
    password: str = "correct-horse-7"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def running_postgres(options: Sequence[str] = ()) -> Iterator[PostgresServer]:
    """A PostgreSQL server with its own data folder. `options` are settings such as `max_connections=10`."""
    binaries = needed_postgres()
    quick = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0"]
    quick += ["checkpoint_timeout=1h", "jit=off"]
    settings = [*quick, "max_connections=200", *options]
    with private_folder("mooring-pg-") as folder:
        make_postgres(binaries, folder)

        def command(port: int) -> list[str]:
            return postgres_command(binaries, folder, port, settings)

        def ready(server: PostgresServer) -> bool:
            server.execute("SELECT 1")
            return True

        # SIGINT is PostgreSQL's fast shutdown: it closes open connections instead of waiting for them.
        with running(PostgresServer, command, ready, folder / "log", stop_signal=signal.SIGINT) as server:
            yield server


class EtcdHost:
    """One address at which a test stops, wipes, restores and restarts etcd."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._peer = f"http://127.0.0.1:{free_port()}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        client = f"http://{self.address}"
        command = [
            needed_etcd(), "--name=test", f"--data-dir={self._data}", "--logger=zap", "--log-level=warn",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={self._peer}", f"--initial-advertise-peer-urls={self._peer}",
            f"--initial-cluster=test={self._peer}",
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                preexec_fn=end_with_parent,
                **unprivileged(),
            )
        server = EtcdServer(self._process, self.port)
        assert answers(server, etcd_answers), (self._folder / "log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process, signal.SIGTERM)
            self._process = None

    def save(self) -> None:
        """Save a snapshot of the data. etcd must be stopped."""
        shutil.rmtree(self._saved, ignore_errors=True)
        subprocess.run(["cp", "--archive", self._data, self._saved], check=True)

    def restore(self) -> None:
        """Replace the data with the snapshot. etcd must be stopped."""
        self.wipe()
        subprocess.run(["cp", "--archive", self._saved, self._data], check=True)

    def wipe(self) -> None:
        shutil.rmtree(self._data)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _saved(self) -> Path:
        return self._folder / "saved"


@contextmanager
def etcd_host() -> Iterator[EtcdHost]:
    """A running etcd. Its cluster id survives a wipe, since it depends only on addresses and names."""
    needed_etcd()
    with private_folder("mooring-etcd-") as folder:
        host = EtcdHost(folder)
        host.start()
        try:
            yield host
        finally:
            host.stop()


def etcd_answers(server: EtcdServer) -> bool:
    with urllib.request.urlopen(f"{server.endpoint}/health", timeout=2) as answer:
        return b'"true"' in answer.read()


@contextmanager
def running_etcd(*options: str, also: str | None = None, port: int | None = None) -> Iterator[EtcdServer]:
    """A single etcd member with a new data folder, on a free port unless one is given.

    `options` are further flags, `also` is a further URL.
    """
    binary = needed_etcd()
    with private_folder("mooring-etcd-") as folder:

        def command(port: int) -> list[str]:
            client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
            listen = ",".join(filter(None, [client, also]))
            # A data folder per attempt: a member remembers the peer address that it was first started with.
            return [
                binary, "--name=test", f"--data-dir={folder / str(port)}", "--logger=zap", "--log-level=warn",
                f"--listen-client-urls={listen}", f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}",
                *options,
            ]  # fmt: skip

        with running(
            EtcdServer, command, etcd_answers, folder / "log", stop_signal=signal.SIGTERM, port=port
        ) as server:
            yield server


@contextmanager
def running_registry() -> Iterator[RegistryServer]:
    """An empty registry without TLS."""
    binary = shutil.which("docker-registry")
    if binary is None:
        unavailable("registry", "registry tests need docker-registry: run `make test-deps` (root) or install it")
    with private_folder("mooring-registry-") as folder:

        def command(port: int) -> list[str]:
            # The password of RegistryServer. The registry accepts bcrypt hashes only.
            hidden = "ada:$2b$04$5o.uJYlDAQ8jp0kcoQ0Jze3aEAHASsKfx/d7azMQlIMYn9.au/JzG\n"
            (folder / "passwords").write_text(hidden)
            (folder / "config.yml").write_text(
                f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
                f"http: {{addr: '127.0.0.1:{port}'}}\n"
                f"auth: {{htpasswd: {{realm: mooring, path: {folder}/passwords}}}}\n"
            )
            for name in ("passwords", "config.yml"):
                (folder / name).chmod(0o644)  # Another user reads them, whatever the umask.
            return [binary, "serve", str(folder / "config.yml")]

        def ready(server: RegistryServer) -> bool:
            try:
                with urllib.request.urlopen(f"http://{server.address}/v2/", timeout=2):
                    return False
            except urllib.error.HTTPError as refused:
                return refused.code == 401

        with running(RegistryServer, command, ready, folder / "log", stop_signal=signal.SIGTERM) as server:
            yield server


def needed_postgres() -> Path:
    """Return the folder with PostgreSQL's server programs. Skip the test without them."""
    found = postgres_binaries()
    if found is None:
        unavailable("pg", "PostgreSQL tests need initdb: run `make test-deps` (root) or install the package postgresql")
    return found


def needed_etcd() -> str:
    found = shutil.which("etcd")
    if found is None:
        unavailable("etcd", "etcd tests need etcd: run `make test-deps` (root) or install the package etcd-server")
    return found


def make_postgres(binaries: Path, folder: Path) -> None:
    """Create an empty database cluster in a folder."""
    initdb = [str(binaries / "initdb"), "--pgdata", str(folder / "data"), "--username=mooring", "--auth=trust"]
    initdb += ["--encoding=UTF8", "--no-locale", "--no-sync"]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, **unprivileged())


def postgres_command(binaries: Path, folder: Path, port: int, settings: Sequence[str]) -> list[str]:
    addresses = ["listen_addresses=127.0.0.1", "unix_socket_directories="]
    flags = itertools.chain.from_iterable(("-c", setting) for setting in [*addresses, *settings])
    return [str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(port), *flags]


def postgres_binaries() -> Path | None:
    """The folder with PostgreSQL's server programs: the one on PATH, else the newest that Debian installed."""
    on_path = shutil.which("initdb")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    folders = [Path(on_path).resolve().parent] if on_path else []
    for folder in [*folders, *reversed(installed)]:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return None


def unavailable(server: str, reason: str) -> NoReturn:
    required = [name.strip() for name in os.environ.get("MOORING_REQUIRE", "").split(",")]
    if server in required:
        pytest.fail(f"{reason} (MOORING_REQUIRE names {server})", pytrace=False)
    pytest.skip(reason)


Server = TypeVar("Server", PostgresServer, EtcdServer, RegistryServer)


@contextmanager
def running(
    kind: type[Server],
    command: Callable[[int], list[str]],
    ready: Callable[[Server], bool],
    log: Path,
    stop_signal: signal.Signals,
    port: int | None = None,
) -> Iterator[Server]:
    """Start a server on this or a free port, wait until it answers, and stop it at the end."""
    for _ in range(START_ATTEMPTS):  # another process may take the port first
        chosen = port or free_port()
        with log.open("ab") as output:
            process = subprocess.Popen(
                command(chosen),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                preexec_fn=end_with_parent,
                **unprivileged(),
            )
        server = kind(process, chosen)
        try:
            if answers(server, ready):
                yield server
                return
        finally:
            stop(process, stop_signal)
    raise RuntimeError(f"{process.args!r} did not start:\n{log.read_text(errors='replace')[-4000:]}")


def answers(server: Server, ready: Callable[[Server], bool]) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while server.process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError, asyncpg.PostgresError):
            if ready(server):
                return True
        time.sleep(0.05)
    return False


def stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)  # a test may have paused it
        process.send_signal(how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)


def free_port() -> int:
    """Return a port that stays reserved until the tests end, even before its server is started.

    It is below the kernel's range for outgoing connections.
    """
    while True:
        reconciler = socket.socket()
        try:
            reconciler.bind(("127.0.0.1", _chance.randrange(10_000, 30_000)))
        except OSError:
            reconciler.close()
            continue
        # Set after binding: a server that sets it too can listen here, and a search like the one above cannot.
        reconciler.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _held_ports.append(reconciler)
        port: int = reconciler.getsockname()[1]
        return port


@contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """Create a temporary folder owned by the server's user, which cannot read root's home."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    user = server_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[str | int]


def unprivileged() -> Identity:
    """Return the arguments with which `subprocess` drops root's privileges. PostgreSQL refuses to run as root."""
    user = server_user()
    return Identity() if user is None else Identity(user=user.pw_uid, group=user.pw_gid, extra_groups=[])


def server_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


def end_with_parent() -> None:
    """Let the kernel end a server whose test run was killed before it could stop the server."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        _libc.prctl(set_parent_death_signal, signal.SIGQUIT)


_libc = ctypes.CDLL(None)
# Not the module-level generator, which tests seed.
_chance = random.SystemRandom()
_held_ports: list[socket.socket] = []
_database_numbers = itertools.count(1)
