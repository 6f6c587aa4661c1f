"""Host ports: what counts as in use, reservations between agents, and the ports that the agent reports."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from mooring.agent.node import host_ports
from mooring.agent.node.host_ports import OccupiedPorts, Port, PortInUse
from mooring.model.nodes.node import MAX_REPORTED_PORTS
from tests.agent.builders import one, order, seen


@pytest.fixture
def number() -> int:
    """A free port that no program gets by chance: below those of outgoing connections."""
    while True:
        candidate = random.randint(10_000, 30_000)
        try:
            host_ports.check([("TCP", candidate), ("UDP", candidate)])
        except PortInUse:
            continue
        return candidate


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def bound(
    stack: ExitStack,
    address: str,
    number: int,
    *,
    kind: socket.SocketKind = socket.SOCK_STREAM,
    listens: bool = True,
) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = stack.enter_context(socket.socket(family, kind))
    if kind == socket.SOCK_STREAM:
        # As servers do.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, listens)
    made.bind((address, number))
    if listens and kind == socket.SOCK_STREAM:
        made.listen()
    return made


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "::", "::1"])
def test_a_port_that_listens_on_any_address_is_in_use(stack: ExitStack, number: int, address: str) -> None:
    bound(stack, address, number)
    with pytest.raises(PortInUse, match=f"port {number}/TCP of the node is in use by .*process {os.getpid()} of user"):
        host_ports.check([("TCP", number)])
    host_ports.check([("UDP", number)])


def test_a_udp_port_is_in_use_for_udp_alone(stack: ExitStack, number: int) -> None:
    bound(stack, "127.0.0.1", number, kind=socket.SOCK_DGRAM)
    with pytest.raises(PortInUse, match=f"{number}/UDP"):
        host_ports.check([("UDP", number)])
    host_ports.check([("TCP", number)])


def test_a_bound_port_that_does_not_listen_is_in_use(stack: ExitStack, number: int) -> None:
    bound(stack, "127.0.0.1", number, listens=False)
    with pytest.raises(PortInUse, match=f"port {number}/TCP of the node is in use by another program"):
        host_ports.check([("TCP", number)])


def test_closing_connections_do_not_count_as_use(stack: ExitStack, number: int) -> None:
    server = bound(stack, "127.0.0.1", number)
    with socket.create_connection(("127.0.0.1", number)):
        server.accept()[0].close()
    server.close()
    host_ports.check([("TCP", number)])


def test_a_port_is_reserved_once_until_released(number: int) -> None:
    port: Port = ("TCP", number)
    with host_ports.reserved([port]):
        assert port in host_ports.reserved_ports()
        with pytest.raises(PortInUse, match="reserved for a task of another agent"), host_ports.reserved([port]):
            pass
    with host_ports.reserved([port]):
        pass
    assert port not in host_ports.reserved_ports()


def test_a_failed_reservation_releases_the_others(stack: ExitStack, number: int) -> None:
    bound(stack, "127.0.0.1", number)
    with pytest.raises(PortInUse), host_ports.reserved([("UDP", number), ("TCP", number)]):
        pass
    assert ("UDP", number) not in host_ports.reserved_ports()


def test_listeners_and_reservations_of_others_are_reported(stack: ExitStack, number: int) -> None:
    occupied = OccupiedPorts()
    assert ("TCP", number) not in occupied.found()
    server = bound(stack, "::", number)
    assert ("TCP", number) in occupied.found()
    server.close()
    with host_ports.reserved([("TCP", number)]):
        assert ("TCP", number) in occupied.found()
    assert ("TCP", number) not in occupied.found()


def test_ports_of_the_nodes_own_tasks_are_not_reported(stack: ExitStack, number: int) -> None:
    bound(stack, "127.0.0.1", number)
    occupied = OccupiedPorts()
    assert not occupied.update([order("true", ports=[number])], {})
    assert ("TCP", number) not in occupied.found()


def test_a_refused_port_is_reported_until_it_is_free(stack: ExitStack, number: int) -> None:
    made = bound(stack, "127.0.0.1", number, listens=False)
    occupied = OccupiedPorts()
    refused = order("true", ports=[number])
    observed = one(refused, seen("FAILED", gone=True, code="port-in-use"))
    assert occupied.update([refused], observed)
    assert not occupied.update([refused], observed)
    occupied.update([], {})
    assert occupied.found()[0] == ("TCP", number)
    made.close()
    assert ("TCP", number) not in occupied.found()


def test_the_report_is_bounded_and_keeps_the_ports_that_can_be_assigned(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    many = {("TCP", port) for port in range(10_000, 10_000 + MAX_REPORTED_PORTS)} | {("TCP", 9999)}
    monkeypatch.setattr(host_ports, "_listening", lambda: many)
    found = OccupiedPorts().found()
    assert (len(found), found[0]) == (MAX_REPORTED_PORTS, ("TCP", 9999))
