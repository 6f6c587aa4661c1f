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
from mooring.agent.supervisor.record import boot_id
from mooring.wire.agent import Facts, Heartbeat

_DEVICE_UNITS = 1000


def machine_facts(root: Path, *, runtimes: Iterable[str], enforces: Mapping[str, str], multi_tenant: bool) -> Facts:
    """The facts that the node registers with; `root` is on the disk that tasks use."""
    devices = graphics_processors()
    capacity = {
        "cpu": (psutil.cpu_count() or 1) * 1000,
        "memory": psutil.virtual_memory().total,
        "storage": psutil.disk_usage(str(root)).total,
    }
    if devices:
        capacity["gpu"] = len(devices) * _DEVICE_UNITS
    return Facts(
        hostname=platform.node(),
        architecture=platform.machine(),
        capacity=capacity,
        runtimes=sorted(runtimes),
        boot_id=boot_id(),
        agent_version=__version__,
        enforces=dict(enforces),
        devices=devices,
        multi_tenant=multi_tenant,
    )


def graphics_processors() -> list[str]:
    """One line per device as the driver's own tool names it; none without the tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.startswith("GPU ")]


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
