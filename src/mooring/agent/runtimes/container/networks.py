"""A network for each workload, apart from all others and from the cloud's own services."""

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

from mooring.agent.containers.engine import Engine, EngineRefused
from mooring.agent.containers.specification import NODE, WORKLOAD

log = structlog.get_logger(__name__)

NO_NETWORK = "none"
_NAME, _INTERFACE = "mooring-", "moor"
_METADATA = {"iptables": "169.254.0.0/16,100.100.100.200,192.0.0.192", "ip6tables": "fd00:ec2::254"}
"""Where clouds tell machines their credentials: the link's own addresses with most of them, one of each with others."""
_APART = "MOORING-APART"
"""The chain for what a workload's network sends elsewhere: no other workload's is to get it."""
_ADDRESSES = IPv4Network("10.128.0.0/9")
"""Of networks for which the engine has none left; Podman looks there, too."""
_USED_UP = re.compile(r"available, non-overlapping IPv4 address pool|address pools have been fully subnetted")
_TRIES = 20
_ADDRESS_BOOKS = Path("/var/lib/cni/networks")
"""Where a plugin of Podman's older networks keeps a folder for each, which it leaves when the network is gone."""


class Networks:
    """Where no network can be made, or none that keeps the cloud's services away, tasks have none."""

    def __init__(self, node_id: UUID, *, wanted: bool) -> None:
        self._node_id = node_id
        self._usable = wanted
        self._made = False
        """One has been: who gets none from now on is told why."""
        self._changing = asyncio.Lock()
        """Nobody joins a network that is being taken down, with what guards it."""

    async def join(self, engine: Engine, workload_id: UUID) -> str:
        """The name of the workload's network, made if need be; or that of none."""
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
            if self._made:
                raise
            log.warning("the engine makes no networks: tasks have none", reason=refusal.message)
            self._usable = False
            return NO_NETWORK
        self._made = True
        return name

    async def tidy(self, engine: Engine, workloads: Callable[[], Iterator[UUID]]) -> None:
        """Remove the networks of this node that none of these workloads has, as far as nobody is in them."""
        try:
            found = await engine.networks(f"{NODE}={self._node_id}")
        except EngineRefused as refusal:
            log.info("the engine does not list its networks now", reason=refusal.message)
            return
        for name, labels in found:
            async with self._changing:
                # Asked for each anew: a task of it may have come meanwhile.
                wanted = any(name == f"{_NAME}{workload_id.hex}" for workload_id in workloads())
                if not wanted and labels.get(NODE) == str(self._node_id):
                    with contextlib.suppress(EngineRefused):
                        await engine.remove_network(name)
                        await asyncio.to_thread(_clear_away, name)


async def _make(engine: Engine, name: str, labels: Mapping[str, str]) -> None:
    """Docker has addresses for about thirty networks of its own choice: those that follow are given some."""
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
    """Where the node's own routes lead but the one for all that is left."""
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    found = [(bytes.fromhex(row[1])[::-1], bytes.fromhex(row[7])[::-1]) for row in rows]
    return [IPv4Network((address, int.from_bytes(mask).bit_count())) for address, mask in found if any(mask)]


def _bridge(name: str) -> str:
    """The network's interface on the node. The kernel takes 15 characters, and ids begin with the time."""
    return f"{_INTERFACE}{name[-11:]}"


def _clear_away(name: str) -> None:
    """What is left of a network that is gone."""
    bridge = _bridge(name)
    _unguard(bridge)
    shutil.rmtree(_ADDRESS_BOOKS / name, ignore_errors=True)
    # Docker leaves one that it found there, as after it was killed while it made the network.
    if Path("/sys/class/net", bridge).exists() and shutil.which("ip") is not None:
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True, check=False)


def _guard(bridge: str) -> bool:
    """Drop what the network's tasks send to other workloads or to the cloud's own services; False: that cannot be."""
    if os.getuid() != 0:
        log.debug("without root the services of a cloud cannot be kept from tasks")
        return True
    # Networks are of IPv4 alone unless the engine is told otherwise: the other kind is kept off where it can be.
    kept, _ = [_insert(program, "raw", _guarding(program, bridge)) for program in _METADATA]
    if not (kept and _keep_apart(bridge)):
        log.warning("other networks cannot be kept from tasks without iptables: they have none")
        return False
    return True


def _keep_apart(bridge: str) -> bool:
    """Engines do so themselves, but not a Docker that is told to leave the firewall alone."""
    _done("iptables", "filter", "--new-chain", _APART)
    rules = [_APART, "--out-interface", f"{_INTERFACE}+", "--jump", "DROP"], _keeping_apart(bridge)
    return all(_insert("iptables", "filter", rule) for rule in rules)


def _unguard(bridge: str) -> None:
    for program in _METADATA:
        _delete(program, "raw", _guarding(program, bridge))
    for rule in (_keeping_apart(bridge), *_forgotten(bridge)):
        _delete("iptables", "filter", rule)


def _guarding(program: str, bridge: str) -> list[str]:
    return ["PREROUTING", "--in-interface", bridge, "--destination", _METADATA[program], "--jump", "DROP"]


def _keeping_apart(bridge: str) -> list[str]:
    return ["FORWARD", "--in-interface", bridge, "!", "--out-interface", bridge, "--jump", _APART]


def _forgotten(bridge: str) -> list[list[str]]:
    """Podman's older networks are kept apart by rules of a plugin that leaves them when a network is gone."""
    first, second = "CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"
    comment = ["--match", "comment", "--comment", "CNI firewall plugin rules (ingressPolicy: same-bridge)"]
    return [
        [first, "--in-interface", bridge, "!", "--out-interface", bridge, *comment, "--jump", second],
        [second, "--out-interface", bridge, *comment, "--jump", "DROP"],
    ]


def _insert(program: str, table: str, rule: list[str]) -> bool:
    """Unless it is there."""
    return _done(program, table, "--check", *rule) or _done(program, table, "--insert", *rule)


def _delete(program: str, table: str, rule: list[str]) -> None:
    """As often as it is there: two agents of one machine may have inserted it at the same time."""
    while _done(program, table, "--delete", *rule):
        pass


def _done(program: str, table: str, *change: str) -> bool:
    if os.getuid() != 0 or shutil.which(program) is None:
        return False
    command = [program, "--wait", "5", "--table", table, *change]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
