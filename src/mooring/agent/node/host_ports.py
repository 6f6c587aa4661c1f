"""Host ports of the machine: reservation for tasks, and detection of ports that something else uses.

The server assigns ports by its ledger, which knows nothing of other programs, nor of the tasks of another agent on the
same machine. Before a task starts, each of its ports is reserved by binding an abstract Unix socket named after it.
Such a name can be bound once per network namespace, as the port itself, and the kernel frees it when the last process
that holds it has ended: the supervisor of a process task holds it for the life of the task, the agent that of a
container. Then the port itself is tested.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

import psutil

from mooring.agent.runtimes.contract import Observed
from mooring.model.errors import MooringError
from mooring.model.nodes.node import DEFAULT_PORTS, MAX_REPORTED_PORTS
from mooring.model.workloads.lifetime.retries import PORT_IN_USE
from mooring.wire.agents.desired_tasks import DesiredTask

Port = tuple[str, int]
"""Protocol and number."""

_KINDS = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}
_RESERVATION = "mooring/port"
_RESERVED = re.compile(rf"@{_RESERVATION}/(\w+)/(\d+)$", re.MULTILINE)
_LISTENING = {"TCP": "0A", "UDP": "07"}
_PROC = Path("/proc/net")
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortInUse(MooringError):
    """A port of a task is in use by something else."""

    code = PORT_IN_USE


def ports_of(task: DesiredTask) -> list[Port]:
    protocols = task.port_protocols or ["TCP"] * len(task.ports)
    return list(zip(protocols, task.ports, strict=False))


@contextlib.contextmanager
def reserved(ports: Collection[Port]) -> Iterator[list[socket.socket]]:
    """Reserve ports until the sockets and all their copies are closed; PortInUse if one is in use."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(_reserve(port)) for port in ports]
        check(ports)
        yield sockets


@contextlib.contextmanager
def reserved_again(ports: Collection[Port]) -> Iterator[None]:
    """Reserve the ports of a task of an earlier agent, which uses them already."""
    with contextlib.ExitStack() as stack:
        for port in ports:
            with contextlib.suppress(PortInUse):
                stack.enter_context(_reserve(port))
        yield


def check(ports: Iterable[Port]) -> None:
    """Raise PortInUse if another socket of the machine uses one of these ports, on any address."""
    for port in ports:
        if _in_use(port):
            raise PortInUse(f"port {_shown(port)} of the node is in use by {_user(port) or 'another program'}")


class OccupiedPorts:
    """The ports in use that are not those of the node's own tasks."""

    def __init__(self) -> None:
        self._own: frozenset[Port] = frozenset()
        self._refused: frozenset[Port] = frozenset()
        """Ports of tasks that could not start because of them. A socket that is bound but does not listen is in no
        list of the kernel, so these ports are tested until they are free."""

    def update(self, desired: Iterable[DesiredTask], observed: Mapping[UUID, Observed]) -> bool:
        """Take over the node's tasks; return True if another task was refused one of its ports."""
        own: set[Port] = set()
        refused: set[Port] = set()
        for task in desired:
            seen = observed.get(task.task_id)
            (refused if seen is not None and seen.code == PORT_IN_USE else own).update(ports_of(task))
        new = refused - self._refused
        self._own, self._refused = frozenset(own), self._refused | new
        return bool(new)

    def found(self) -> list[Port]:
        """Return the ports that tasks cannot have now: those that a task was refused first, then those of the range
        that ports are assigned from. Blocking.
        """
        refused = self._refused
        still = {port for port in refused if _in_use(port) or port in reserved_ports()}
        self._refused -= refused - still
        first, last = DEFAULT_PORTS
        lowest, highest = _ephemeral()
        # Those of outgoing connections and of servers that take any free port come and go.
        lasting = {each for each in {*_listening(), *reserved_ports()} if not lowest <= each[1] <= highest}
        occupied = (lasting | still) - self._own
        order = sorted(occupied, key=lambda port: (port not in still, not first <= port[1] <= last, port[1], port[0]))
        return order[:MAX_REPORTED_PORTS]


def reserved_ports() -> set[Port]:
    """Return the ports that are reserved for tasks of any agent on this machine."""
    found = _RESERVED.findall(_read(_PROC / "unix"))
    return {(protocol, int(number)) for protocol, number in found}


def _reserve(port: Port) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        made.bind(f"\0{_RESERVATION}/{port[0]}/{port[1]}")
    except OSError as error:
        made.close()
        if error.errno != errno.EADDRINUSE:
            raise
        holder = _holder("unix", f"@{_RESERVATION}/{port[0]}/{port[1]}")
        shown = f" ({holder})" if holder else ""
        message = f"port {_shown(port)} of the node is reserved for a task of another agent on this machine{shown}"
        raise PortInUse(message) from None
    return made


def _in_use(port: Port) -> bool:
    protocol, number = port
    if protocol not in _KINDS:
        return False
    return port in _listening() or any(
        _is_bound(family, protocol, number) for family in (socket.AF_INET, socket.AF_INET6)
    )


def _is_bound(family: socket.AddressFamily, protocol: str, number: int) -> bool:
    """Return whether the port is bound on some address, by binding it on all of them for a moment."""
    try:
        with socket.socket(family, _KINDS[protocol]) as probe:
            if protocol == "TCP":
                # Connections of an earlier server that are still closing do not prevent a new one.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(("", number))
    except OSError as error:
        # Others: the machine has no IPv6, or the agent may not bind a port below 1024.
        return error.errno == errno.EADDRINUSE
    return False


def _listening() -> set[Port]:
    """Return the ports that some socket listens on, IPv4 and IPv6, as the kernel lists them."""
    return {
        (protocol, number)
        for protocol in _KINDS
        for version in ("", "6")
        for number in _listed(_PROC / f"{protocol.lower()}{version}", _LISTENING[protocol])
    }


def _listed(path: Path, state: str) -> Iterator[int]:
    for line in _read(path).splitlines()[1:]:
        _, local, _, its_state, *_ = line.split()
        if its_state == state:
            yield int(local.rpartition(":")[2], 16)


def _ephemeral() -> tuple[int, int]:
    first, last = _read(_EPHEMERAL).split() or ("32768", "60999")
    return int(first), int(last)


def _user(port: Port) -> str | None:
    """Return the program that uses a port, if the agent may know it."""
    return _holder(port[0].lower(), port[1])


def _holder(kind: str, address: str | int) -> str | None:
    with contextlib.suppress(psutil.Error, OSError):
        for found in psutil.net_connections(kind):
            if (
                address in (found.laddr, getattr(found.laddr, "port", None))
                and found.pid is not None
                and found.status in ("LISTEN", "NONE")
            ):
                program = psutil.Process(found.pid)
                return f"{program.name()}, process {found.pid} of user {program.username()}"
    return None


def _shown(port: Port) -> str:
    return f"{port[1]}/{port[0]}"


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
