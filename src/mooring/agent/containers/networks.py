"""A network for each workload, apart from all others and from the cloud's own services."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Set
from uuid import UUID

import structlog

from mooring.agent.containers.engine import Engine, EngineRefused
from mooring.agent.containers.specification import NODE, WORKLOAD

log = structlog.get_logger(__name__)

NO_NETWORK = "none"
_BRIDGES = "moor"
_METADATA = {"iptables": "169.254.169.254", "ip6tables": "fd00:ec2::254"}
"""Where clouds tell machines their credentials."""


class Networks:
    """Where no network can be made, or one that keeps the cloud's services away, tasks have none."""

    def __init__(self, node_id: UUID, *, wanted: bool) -> None:
        self._node_id = node_id
        self._usable = wanted
        self._guarded = False

    async def join(self, engine: Engine, workload_id: UUID) -> str:
        """The name of the workload's network, made if need be; or that of none."""
        if self._usable and not self._guarded:
            self._usable = self._guarded = await asyncio.to_thread(_guard)
        if not self._usable:
            return NO_NETWORK
        labels = {NODE: str(self._node_id), WORKLOAD: str(workload_id)}
        try:
            await engine.make_network(_name(workload_id), f"{_BRIDGES}{workload_id.hex[:11]}", labels)
        except EngineRefused as refusal:
            log.warning("the engine makes no networks: tasks have none", reason=refusal.message)
            self._usable = False
            return NO_NETWORK
        return _name(workload_id)

    async def leave(self, engine: Engine, workload_id: UUID) -> None:
        """No task of the workload is here any more."""
        with contextlib.suppress(EngineRefused):
            await engine.remove_network(_name(workload_id))

    async def tidy(self, engine: Engine, workloads: Set[UUID]) -> None:
        """Remove the networks of this node that none of these workloads has."""
        names = {_name(workload_id) for workload_id in workloads}
        for name, labels in await engine.networks(f"{NODE}={self._node_id}"):
            if name not in names and labels.get(NODE) == str(self._node_id):
                with contextlib.suppress(EngineRefused):
                    await engine.remove_network(name)


def _name(workload_id: UUID) -> str:
    return f"mooring-{workload_id.hex}"


def _guard() -> bool:
    """Drop what tasks send to the cloud's own services, once for all of their networks."""
    if os.getuid() != 0:
        log.info("without root the metadata service of a cloud cannot be kept from tasks")
        return True
    for program, address in _METADATA.items():
        if shutil.which(program) is None or not _rule(program, address):
            if program == "iptables":
                log.warning("the metadata service of a cloud cannot be kept from tasks: they have no network")
                return False
            log.debug("no rules for this kind of address", program=program)
    return True


def _rule(program: str, address: str) -> bool:
    rule = ["PREROUTING", "--in-interface", f"{_BRIDGES}+", "--destination", address, "--jump", "DROP"]
    base = [program, "--wait", "5", "--table", "raw"]
    present = subprocess.run([*base, "--check", *rule], capture_output=True, check=False)
    if present.returncode == 0:
        return True
    return subprocess.run([*base, "--insert", *rule], capture_output=True, check=False).returncode == 0
