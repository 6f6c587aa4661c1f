"""A network per workload, isolated from other workloads and from cloud metadata services."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from uuid import UUID

import structlog

from mooring.agent.runtimes.container.engine import Engine, EngineRefused, EngineTransient
from mooring.agent.runtimes.container.specification import NODE, WORKLOAD

log = structlog.get_logger(__name__)

NO_NETWORK = "none"
_NAME, _INTERFACE = "mooring-", "moor"
_METADATA = {"iptables": "169.254.0.0/16,100.100.100.200,192.0.0.192", "ip6tables": "fd00:ec2::254"}
"""Addresses of cloud metadata services: link-local with most clouds, specific addresses with others."""
_ISOLATION_CHAIN = "MOORING-APART"
"""The iptables chain that isolates the networks of workloads from each other."""
_ADDRESSES = IPv4Network("10.128.0.0/9")
"""Address range for networks when the engine's own is exhausted; Podman uses it, too."""
_USED_UP = re.compile(r"available, non-overlapping IPv4 address pool|address pools have been fully subnetted")
_TRIES = 20
_ADDRESS_BOOKS = Path("/var/lib/cni/networks")
"""Folder of a CNI plugin of older Podman versions, which does not remove its entries."""


class Networks:
    """Networks of workloads. If no isolated network can be created, tasks have none."""

    def __init__(self, node_id: UUID, *, wanted: bool) -> None:
        self._node_id = node_id
        self._usable = wanted
        self._made = False
        """A network was created before, so a later failure is reported as an error."""
        self._changing = asyncio.Lock()
        """Prevents a container from joining a network that is being removed together with its rules."""

    async def join(self, engine: Engine, workload_id: UUID) -> str:
        """Return the name of the workload's network, created if missing, or that of no network."""
        async with self._changing:
            return await self._join(engine, workload_id)

    async def _join(self, engine: Engine, workload_id: UUID) -> str:
        name = f"{_NAME}{workload_id.hex}"
        if self._usable:
            self._usable = await asyncio.to_thread(_guard, _bridge(name))
        if not self._usable:
            return NO_NETWORK
        labels = {NODE: str(self._node_id), WORKLOAD: str(workload_id)}
        try:
            await _make(engine, name, labels)
        except EngineRefused as refusal:
            await asyncio.to_thread(_unguard, _bridge(name))
            if self._made or isinstance(refusal, EngineTransient):
                raise
            log.warning("the engine creates no networks: tasks run without one", reason=refusal.message)
            self._usable = False
            return NO_NETWORK
        self._made = True
        return name

    async def clean_up(self, engine: Engine, workloads: Callable[[], Iterator[UUID]]) -> None:
        """Remove the unused networks of this node that belong to none of these workloads."""
        try:
            found = await engine.networks(f"{NODE}={self._node_id}")
        except EngineRefused as refusal:
            log.info("the engine does not list its networks at the moment", reason=refusal.message)
            return
        for name, labels in found:
            async with self._changing:
                # Checked again for each, since a task may have been added meanwhile.
                wanted = any(name == f"{_NAME}{workload_id.hex}" for workload_id in workloads())
                if not wanted and labels.get(NODE) == str(self._node_id):
                    with contextlib.suppress(EngineRefused):
                        await engine.remove_network(name)
                        await asyncio.to_thread(_clear_away, name)


async def _make(engine: Engine, name: str, labels: Mapping[str, str]) -> None:
    """Create a network. Docker has addresses for about thirty networks; later ones get an explicit subnet."""
    try:
        return await engine.make_network(name, _bridge(name), labels)
    except EngineRefused as refusal:
        if not _USED_UP.search(refusal.message):
            raise
        problem = refusal
    taken = await asyncio.to_thread(_routed)
    for _ in range(_TRIES):
        subnet = IPv4Network((int(_ADDRESSES.network_address) + 256 * random.randrange(2**15), 24))
        if not any(subnet.overlaps(each) for each in taken):
            try:
                return await engine.make_network(name, _bridge(name), labels, str(subnet))
            except EngineRefused as refusal:
                problem = refusal
    raise problem


def _routed(table: Path = Path("/proc/net/route")) -> list[IPv4Network]:
    """Return the destinations of the node's routes, without the default route."""
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    found = [(bytes.fromhex(row[1])[::-1], bytes.fromhex(row[7])[::-1]) for row in rows]
    return [IPv4Network((address, int.from_bytes(mask).bit_count())) for address, mask in found if any(mask)]


def _bridge(name: str) -> str:
    """Return the network's interface name: at most 15 characters, taken from the end of the id, which is random."""
    return f"{_INTERFACE}{name[-11:]}"


def _clear_away(name: str) -> None:
    """Remove the remains of a removed network."""
    bridge = _bridge(name)
    _unguard(bridge)
    shutil.rmtree(_ADDRESS_BOOKS / name, ignore_errors=True)
    # Docker does not remove an interface that existed before, for example after it was killed while creating it.
    if Path("/sys/class/net", bridge).exists() and shutil.which("ip") is not None:
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True, check=False)


def _guard(bridge: str) -> bool:
    """Block traffic to other workloads and to cloud metadata services; return False if that is not possible."""
    if os.getuid() != 0:
        log.debug("an agent without root cannot block the cloud's metadata services")
        return True
    # Networks are IPv4 only by default. IPv6 is blocked as well if possible.
    guarded, _ = [_insert(program, "raw", _guarding(program, bridge)) for program in _METADATA]
    if not (guarded and _isolate(bridge)):
        log.warning("without iptables tasks cannot be isolated from other networks: they run without one")
        return False
    return True


def _isolate(bridge: str) -> bool:
    """Isolate networks from each other, which Docker does not do if it must not change the firewall."""
    _done("iptables", "filter", "--new-chain", _ISOLATION_CHAIN)
    rules = [_ISOLATION_CHAIN, "--out-interface", f"{_INTERFACE}+", "--jump", "DROP"], _isolation_rule(bridge)
    return all(_insert("iptables", "filter", rule) for rule in rules)


def _unguard(bridge: str) -> None:
    for program in _METADATA:
        _delete(program, "raw", _guarding(program, bridge))
    for rule in (_isolation_rule(bridge), *_forgotten(bridge)):
        _delete("iptables", "filter", rule)


def _guarding(program: str, bridge: str) -> list[str]:
    return ["PREROUTING", "--in-interface", bridge, "--destination", _METADATA[program], "--jump", "DROP"]


def _isolation_rule(bridge: str) -> list[str]:
    return ["FORWARD", "--in-interface", bridge, "!", "--out-interface", bridge, "--jump", _ISOLATION_CHAIN]


def _forgotten(bridge: str) -> list[list[str]]:
    """Remove isolation rules that a CNI plugin of older Podman versions leaves."""
    first, second = "CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"
    comment = ["--match", "comment", "--comment", "CNI firewall plugin rules (ingressPolicy: same-bridge)"]
    return [
        [first, "--in-interface", bridge, "!", "--out-interface", bridge, *comment, "--jump", second],
        [second, "--out-interface", bridge, *comment, "--jump", "DROP"],
    ]


def _insert(program: str, table: str, rule: list[str]) -> bool:
    """Insert a rule unless it exists."""
    return _done(program, table, "--check", *rule) or _done(program, table, "--insert", *rule)


def _delete(program: str, table: str, rule: list[str]) -> None:
    """Delete all copies of a rule: two agents of one machine may have inserted it concurrently."""
    while _done(program, table, "--delete", *rule):
        pass


def _done(program: str, table: str, *change: str) -> bool:
    if os.getuid() != 0 or shutil.which(program) is None:
        return False
    command = [program, "--wait", "5", "--table", table, *change]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
