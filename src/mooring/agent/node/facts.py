"""Facts about the machine: its resources, and their current usage."""

from __future__ import annotations

import errno
import os
import platform
import socket
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from mooring import __version__
from mooring.agent.node import gpus, hugepages
from mooring.agent.options import Options
from mooring.agent.runtimes.process.isolation import Isolation
from mooring.agent.runtimes.process.supervisor.record import boot_id
from mooring.model.errors import InvalidInput
from mooring.model.nodes.isolation import MAX_REASON_LENGTH
from mooring.model.resources.devices import MAX_DEVICES
from mooring.model.resources.quantity import to_units
from mooring.model.resources.slots import UNITS_PER_ONE, slot_type
from mooring.wire.agents.agent_protocol import DeviceFact, Facts, Heartbeat

_PROBE_BYTES = 1 << 16


def machine_facts(
    root: Path,
    *,
    runtimes: Mapping[str, Mapping[str, str]],
    multi_tenant: bool,
    isolation: Isolation,
    options: Options,
    address: str | None = None,
) -> Facts:
    """Return the facts that the node registers with; `root` is on the disk that tasks use.

    `runtimes`: by name, how each enforces the limits of slots.
    """
    found = gpus.gpus()
    devices = {"gpu": found} if found else {}
    devices |= {slot: list(named) for slot, named in options.devices.items()}
    huge = hugepages.capacity()
    capacity = {
        "cpu": (psutil.cpu_count() or 1) * 1000,
        # Huge pages are not available as ordinary memory.
        "memory": psutil.virtual_memory().total - sum(huge.values()),
        **huge,
        "storage": psutil.disk_usage(str(root)).total,
    }
    capacity |= {slot: sum(device.capacity for device in named) for slot, named in devices.items()}
    return Facts(
        hostname=platform.node(),
        architecture=platform.machine(),
        capacity=capacity,
        runtimes=sorted(runtimes),
        boot_id=boot_id(),
        agent_version=__version__,
        enforces=_enforced({name: dict.fromkeys(devices, "environment") | dict(how) for name, how in runtimes.items()}),
        devices=devices,
        licence=options.licence,
        machine_image=options.machine_image,
        machine_image_version=options.machine_image_version,
        isolation=isolation.level,
        isolation_reason=isolation.reason[:MAX_REASON_LENGTH],
        multi_tenant=multi_tenant,
        address=options.address or address,
    )


def _enforced(runtimes: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return how the limit of each slot is enforced, per runtime if they differ."""
    enforced: dict[str, str] = {}
    for slot in dict.fromkeys(slot for how in runtimes.values() for slot in how):
        ways = {name: how[slot] for name, how in runtimes.items() if slot in how}
        same = len(set(ways.values())) == 1
        enforced[slot] = (
            next(iter(ways.values())) if same else ", ".join(f"{name}: {way}" for name, way in ways.items())
        )
    return enforced


def declared_devices(written: Iterable[str]) -> dict[str, list[DeviceFact]]:
    """Return the devices of `SLOT=COUNT[:MODEL[:MEMORY]]` texts, numbered in their order."""
    devices: dict[str, list[DeviceFact]] = {}
    for text in written:
        slot, _, rest = text.partition("=")
        count, _, further = rest.partition(":")
        model, _, memory = further.partition(":")
        if slot in ("cpu", "memory", "storage"):
            raise InvalidInput(f"{text!r}: {slot} has no devices", code="invalid-device")
        whole = UNITS_PER_ONE[slot_type(slot).kind]
        if not count.isdigit() or not 1 <= int(count) <= MAX_DEVICES:
            raise InvalidInput(
                f"{text!r}: write SLOT=COUNT[:MODEL[:MEMORY]] with a count of 1 to {MAX_DEVICES}",
                code="invalid-device",
            )
        own = devices.setdefault(slot, [])
        bytes_of_each = to_units(memory, 1, what="device memory") if memory else None
        own += [
            DeviceFact(index=len(own) + number, model=model or None, memory=bytes_of_each, capacity=whole)
            for number in range(int(count))
        ]
    return devices


def measure(folders: Iterable[Path], disk_full_percent: float, *, stopping: bool = False) -> Heartbeat:
    """Return the current usage. A nearly full disk is a problem, during which the node gets no new tasks."""
    there = [folder for folder in folders if folder.exists()]
    disk_percent, fullest = max((_disk_percent(folder), folder) for folder in there)
    inode_percent, most_files = max((_inode_percent(folder), folder) for folder in there)
    problem = None
    if disk_percent >= disk_full_percent:
        problem = f"disk nearly full: {disk_percent:.0f}% of the disk of {fullest} is used"
    elif inode_percent >= disk_full_percent:
        problem = f"disk nearly full: {inode_percent:.0f}% of the inodes of the disk of {most_files} are used"
    return Heartbeat(
        cpu_percent=psutil.cpu_percent(),
        memory_percent=psutil.virtual_memory().percent,
        disk_percent=disk_percent,
        problem=problem,
        stopping=stopping,
    )


def _disk_percent(folder: Path) -> float:
    return float(psutil.disk_usage(str(folder)).percent)


def _inode_percent(folder: Path) -> float:
    """Return the percentage of used inodes; 0 on a file system that does not count them."""
    found = os.statvfs(folder)
    return 100.0 * (found.f_files - found.f_favail) / found.f_files if found.f_files else 0.0


def is_out_of_space(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def space_problem(folder: Path) -> str | None:
    """Return why nothing can be written to a folder, by trying: a quota is not visible in disk statistics."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
    except OSError as error:
        if is_out_of_space(error):
            return f"disk full: nothing can be written to {folder} ({error.strerror})"
    return None


def node_name() -> str:
    """Return this machine's host name as a valid node name."""
    first = socket.gethostname().lower().partition(".")[0]
    name = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in first).strip("-")
    return name[:63].rstrip("-") or "local"
