"""A whole cluster of real processes on loopback: PostgreSQL, three members of etcd, schedulers, APIs and agents.

Whatever talks to another part does so through a link of its own, so that it can be cut off alone.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from mooring.client import Client
from mooring.client.credentials import CredentialStore
from mooring.wire.cluster.nodes import JoinTokenRequest
from tests.servers import (
    end_with_parent,
    free_port,
    make_postgres,
    needed_etcd,
    needed_postgres,
    postgres_command,
    private_folder,
    unprivileged,
)
from tests.system.faults.plan import AGENTS, APIS, MEMBERS, POSTGRES, SCHEDULERS, named
from tests.system.faults.proxy import Link, Proxy, running_proxy
from tests.system.servers import PASSWORD, NodeAgent, Server, eventually, workspace

LEASE_SECONDS = 3.0
_AGAIN_SECONDS = 1.0
_SHARED = {
    "MOORING_ADMIN_PASSWORD": PASSWORD,
    "MOORING_SIGNING_KEY": "one key that all of the servers share",
    "MOORING_NODE_TIMEOUT_SECONDS": "6",
    "MOORING_HEARTBEAT_SECONDS": "1",
    "MOORING_HEARTBEAT_GRACE_SECONDS": "1",
    "LEADER_LEASE_TTL": f"{LEASE_SECONDS:g}",
    "RECONCILE_INTERVAL": "5",
}
# The process may be killed, the machine is not: what PostgreSQL has written is with the kernel, and that is enough.
_POSTGRES = ("fsync=off", "synchronous_commit=on", "max_connections=200", "jit=off")


class Part(Protocol):
    """A process that can be started again."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def log(self) -> str: ...
    def launch(self) -> None: ...
    def kill(self) -> None: ...


@dataclass
class Daemon:
    """A server that is not Mooring's."""

    command: Sequence[str]
    folder: Path
    name: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        return self._log_file.read_text(errors="replace")

    @property
    def _log_file(self) -> Path:
        return self.folder / f"{self.name}.txt"

    def launch(self) -> None:
        with self._log_file.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                preexec_fn=end_with_parent,
                start_new_session=True,
                **unprivileged(),
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@dataclass
class Cluster:
    """The parts by name, the links by `WHO>WHAT`. `keep` starts again what has ended and is wanted."""

    folder: Path
    database_port: int
    _etcd_folder: Path = Path()
    parts: dict[str, Part] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    ended: list[tuple[str, str]] = field(default_factory=list)
    """Parts that ended without being stopped, with the last line of their log."""
    _down: set[str] = field(default_factory=set)
    _paused: set[str] = field(default_factory=set)
    _asked_to_end: set[str] = field(default_factory=set)
    _launched_at: dict[str, float] = field(default_factory=dict)

    @property
    def database_url(self) -> str:
        """Without a proxy in between."""
        return _url(self.database_port)

    @property
    def api_url(self) -> str:
        """Leads to any of the API processes."""
        return f"http://127.0.0.1:{self.links['clients>api'].ports[0]}"

    @property
    def starts(self) -> Path:
        """The folder in which each task notes its start."""
        return self.folder / "starts"

    def add(self, name: str, part: Part) -> None:
        self.parts[name] = part
        self.launch(name)

    def client(self, username: str = "admin", password: str = PASSWORD, *, timeout_seconds: float = 10.0) -> Client:
        store = CredentialStore(self.folder / "no-logins.json")
        client = Client(self.api_url, store=store, timeout_seconds=timeout_seconds)
        client.login(username, password)
        return client

    def kill(self, name: str) -> None:
        self._down.add(name)
        self._asked_to_end.add(name)
        if self.parts[name].alive:
            self.parts[name].kill()

    def start(self, name: str) -> None:
        self._down.discard(name)

    def lose_data(self, *, restored: bool) -> None:
        """Kill all members of etcd, and take their data away or put the older data in its place."""
        members = named("etcd", MEMBERS)
        for name in members:
            self.kill(name)
        older = self._etcd_folder / "older"
        newest = self._etcd_folder / "newest"
        _copy(members, self._etcd_folder, newest)
        for name in members:
            shutil.rmtree(self._etcd_folder / name)
        if restored:
            _copy(members, older, self._etcd_folder)
        shutil.rmtree(older)
        newest.rename(older)

    def save_etcd(self) -> None:
        """Make a copy of etcd's data, for the first time that it is restored."""
        members = named("etcd", MEMBERS)
        for name in members:
            self.kill(name)
        _copy(members, self._etcd_folder, self._etcd_folder / "older")
        self.start_etcd()
        self.keep()

    def start_etcd(self) -> None:
        for name in named("etcd", MEMBERS):
            self.start(name)

    def restart(self, name: str) -> None:
        """Ask it to end in order; `keep` starts it again."""
        self._asked_to_end.add(name)
        # SIGINT is PostgreSQL's fast shutdown: open connections are ended, not waited for.
        self._send(name, signal.SIGINT if name == POSTGRES else signal.SIGTERM)

    def pause(self, name: str) -> None:
        self._paused.add(name)
        self._send(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._paused.discard(name)
        self._send(name, signal.SIGCONT)

    def keep(self) -> None:
        for name, part in self.parts.items():
            if part.alive or name in self._down or time.monotonic() < self._launched_at.get(name, 0.0) + _AGAIN_SECONDS:
                continue
            if name in self._launched_at and name not in self._asked_to_end:
                self.ended.append((name, part.log.strip().rpartition("\n")[2]))
            self.launch(name)

    def staying(self) -> list[str]:
        """Parts that were asked to end, and are still there."""
        return [name for name in sorted(self._asked_to_end) if self.parts[name].alive]

    def heal(self) -> None:
        """Every part is up and reaches every other."""
        for link in self.links.values():
            link.heal()
        for name in list(self._paused):
            self.resume(name)
        self._down.clear()

    def end(self) -> None:
        for part in reversed(self.parts.values()):
            if part.alive:
                part.kill()

    def launch(self, name: str) -> None:
        self._asked_to_end.discard(name)
        self._launched_at[name] = time.monotonic()
        self.parts[name].launch()

    def _send(self, name: str, number: signal.Signals) -> None:
        """PostgreSQL is a family of processes, which is paused as a whole."""
        part = self.parts[name]
        if not part.alive:
            return
        processes = [psutil.Process(part.pid)]
        if name == POSTGRES and number in (signal.SIGSTOP, signal.SIGCONT):
            processes += processes[0].children(recursive=True)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster whose nodes are ready; ended by process id afterwards, with whatever still runs on its nodes."""
    binaries, etcd = needed_postgres(), needed_etcd()
    with ExitStack() as stack:
        database_folder = stack.enter_context(private_folder("mooring-pg-"))
        etcd_folder = stack.enter_context(private_folder("mooring-etcd-"))
        folder = stack.enter_context(workspace())
        proxy = stack.enter_context(running_proxy())
        make_postgres(binaries, database_folder)
        database_port = free_port()
        clients = [free_port() for _ in range(MEMBERS)]
        cluster = Cluster(folder, database_port, etcd_folder)
        cluster.starts.mkdir()
        cluster.starts.chmod(0o1777)
        stack.callback(cluster.end)
        command = postgres_command(binaries, database_folder, database_port, _POSTGRES)
        cluster.add(POSTGRES, Daemon(command, database_folder, POSTGRES))
        for name, command in zip(named("etcd", MEMBERS), _members(etcd, etcd_folder, clients), strict=True):
            cluster.add(name, Daemon(command, etcd_folder, name))
        eventually(lambda: _answers(database_port))
        _add_servers(cluster, proxy, clients)
        cluster.save_etcd()
        _add_agents(cluster)
        yield cluster


def _copy(members: Sequence[str], source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for name in members:
        # With its owner, who is not the one that copies.
        subprocess.run(["cp", "--archive", source / name, target / name], check=True)


def _members(etcd: str, folder: Path, clients: Sequence[int]) -> list[list[str]]:
    """The commands of the members of one etcd cluster."""
    names = named("etcd", len(clients))
    peers = {name: f"http://127.0.0.1:{free_port()}" for name in names}
    initial_cluster = ",".join(f"{name}={peer}" for name, peer in peers.items())
    return [
        [
            etcd, f"--name={name}", f"--data-dir={folder / name}", "--logger=zap", "--log-level=warn",
            f"--listen-client-urls=http://127.0.0.1:{client}", f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls={peers[name]}", f"--initial-advertise-peer-urls={peers[name]}",
            f"--initial-cluster={initial_cluster}", "--initial-cluster-state=new",
        ]
        for name, client in zip(names, clients, strict=True)
    ]  # fmt: skip


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def _url(port: int) -> str:
    return f"postgresql+asyncpg://mooring@127.0.0.1:{port}/postgres"


def _add_servers(cluster: Cluster, proxy: Proxy, etcd: Sequence[int]) -> None:
    names = [*named("scheduler", SCHEDULERS), *named("api", APIS)]
    ports = {name: free_port() for name in names}
    for name in names:
        to_etcd = cluster.links[f"{name}>etcd"] = proxy.link(*([port] for port in etcd))
        to_database = cluster.links[f"{name}>{POSTGRES}"] = proxy.link([cluster.database_port])
        database = _url(to_database.ports[0])
        environment = {
            **_SHARED,
            "SCHEDULER_INSTANCE_ID": name,
            "ETCD_HOST": ",".join(f"127.0.0.1:{port}" for port in to_etcd.ports),
        }
        flags = ("--role", name.partition("-")[0], "--port", str(ports[name]), "--database", database)
        cluster.add(name, Server(cluster.folder / name, flags, environment, forks=True))
    apis = [ports[name] for name in named("api", APIS)]
    cluster.links["clients>api"] = proxy.link(apis)
    for name in named("agent", AGENTS):
        cluster.links[f"{name}>api"] = proxy.link(*([port] for port in apis))
    for name in names:
        server = cluster.parts[name]
        assert isinstance(server, Server)
        server.wait()


def _add_agents(cluster: Cluster) -> None:
    with cluster.client() as client:
        for name in named("agent", AGENTS):
            urls = ",".join(f"http://127.0.0.1:{port}" for port in cluster.links[f"{name}>api"].ports)
            token = client.create_join_token(JoinTokenRequest(name=name)).token
            cluster.add(name, NodeAgent(cluster.folder / name, server=urls, name=name, token=token, forks=True))
        eventually(lambda: [node.status for node in client.nodes().nodes] == ["READY"] * AGENTS)
    for name in named("agent", AGENTS):
        agent = cluster.parts[name]
        assert isinstance(agent, NodeAgent)
        agent.token = None  # the credential is what counts from now on
