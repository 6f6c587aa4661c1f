"""What the machine has, and how much of it is in use right now."""

from __future__ import annotations

import platform
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from mooring import __version__
from mooring.agent import hugepages
from mooring.agent.options import Options
from mooring.agent.supervisor.record import boot_id
from mooring.model.devices import MOST_DEVICES
from mooring.model.errors import InvalidInput
from mooring.model.quantity import to_units
from mooring.model.slots import UNITS_PER_ONE, slot_type
from mooring.wire.agent import DeviceFact, Facts, Heartbeat


def machine_facts(
    root: Path,
    *,
    runtimes: Mapping[str, Mapping[str, str]],
    multi_tenant: bool,
    options: Options,
    address: str | None = None,
) -> Facts:
    """The facts that the node registers with; `root` is on the disk that tasks use.

    `runtimes`: by name, how each keeps the limits of slots.
    """
    found = graphics_processors()
    devices = {"gpu": found} if found else {}
    devices |= {slot: list(named) for slot, named in options.devices.items()}
    huge = hugepages.capacity()
    capacity = {
        "cpu": (psutil.cpu_count() or 1) * 1000,
        # What is set apart as huge pages is no memory for others.
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
        multi_tenant=multi_tenant,
        address=options.address or address,
    )


def _enforced(runtimes: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Per slot how a limit is kept, by each runtime where they differ."""
    kept: dict[str, str] = {}
    for slot in dict.fromkeys(slot for how in runtimes.values() for slot in how):
        ways = {name: how[slot] for name, how in runtimes.items() if slot in how}
        same = len(set(ways.values())) == 1
        kept[slot] = next(iter(ways.values())) if same else ", ".join(f"{name}: {way}" for name, way in ways.items())
    return kept


def graphics_processors() -> list[DeviceFact]:
    """The devices as the driver's own tool lists them; none without the tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [device for line in answer.stdout.splitlines() if (device := _device(line)) is not None]


def _device(line: str) -> DeviceFact | None:
    """A line such as `0, NVIDIA A100-SXM4-80GB, 81920`; memory in MiB."""
    index, _, rest = line.partition(",")
    model, _, memory = rest.rpartition(",")
    if not index.strip().isdigit():
        return None
    known = memory.strip().isdigit()
    return DeviceFact(
        index=int(index),
        model=model.strip()[:255] or None,
        memory=int(memory) * 1024 * 1024 if known else None,
    )


def declared_devices(written: Iterable[str]) -> dict[str, list[DeviceFact]]:
    """Devices as an operator writes them, `SLOT=COUNT[:MODEL[:MEMORY]]`, numbered in the order in which they come."""
    devices: dict[str, list[DeviceFact]] = {}
    for text in written:
        slot, _, rest = text.partition("=")
        count, _, further = rest.partition(":")
        model, _, memory = further.partition(":")
        if slot in ("cpu", "memory", "storage"):
            raise InvalidInput(f"{text!r}: {slot} is not made of devices", code="invalid-device")
        whole = UNITS_PER_ONE[slot_type(slot).kind]
        if not count.isdigit() or not 1 <= int(count) <= MOST_DEVICES:
            raise InvalidInput(
                f"{text!r}: write SLOT=COUNT[:MODEL[:MEMORY]] with a count of 1 to {MOST_DEVICES}",
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
    """The present use; a nearly full disk is a problem that keeps new tasks away."""
    disk_percent, fullest = max((_disk_percent(folder), folder) for folder in folders if folder.exists())
    problem = None
    if disk_percent >= disk_full_percent:
        problem = f"disk nearly full: {disk_percent:.0f}% of the disk of {fullest} is used"
    return Heartbeat(
        cpu_percent=psutil.cpu_percent(),
        memory_percent=psutil.virtual_memory().percent,
        disk_percent=disk_percent,
        problem=problem,
        stopping=stopping,
    )


def _disk_percent(folder: Path) -> float:
    return float(psutil.disk_usage(str(folder)).percent)


def node_name() -> str:
    """This machine's host name as the name of a node."""
    first = socket.gethostname().lower().partition(".")[0]
    name = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in first).strip("-")
    return name[:63].rstrip("-") or "local"
