"""Options of an agent, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mooring.wire.agents.agent_protocol import DeviceFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    devices: Mapping[str, Sequence[DeviceFact]] = field(default_factory=dict)
    """Devices, instead of those that the agent detects."""
    address: str | None = None
    """Address for other nodes; None: the source address of the connection to the server."""
    licence: str | None = None
    machine_image: str | None = None
    machine_image_version: str = ""
    trust_tenants: bool = False
    """An agent without root runs tasks of all tenants as its own user. Only for tenants that trust each other."""
    uid_range: tuple[int, int] = (200_000, 299_999)
    """First and last uid for the projects of a root agent. The range must contain no account of the machine."""
    ca_file: Path | None = None
    """The only CA certificates to trust; None: those of the system."""
    shared_work_root: Path = Path("/var/lib/mooring-work")
    """Work folders of a root agent whose own folder tenants cannot traverse."""
    log_bytes: int = 10 * 1024 * 1024
    log_files: int = 3
    keep_seconds: float = 7 * 24 * 3600
    keep_bytes: int = 2 * 1024**3
    upload_cache_bytes: int = 10 * 1024**3
    """Chunks of uploads that are kept for the next tasks."""
    disk_full_percent: float = 95.0
    max_processes: int = 2048
    """Limit per container or, if enforced by an rlimit, for all processes of the tenant's user on the node."""
    scan_seconds: float = 5.0
    """Interval of full scans, a safety net: exits and orders are noticed at once."""
    host_paths: tuple[Path, ...] = ()
    """Folders of the machine that tasks may mount, including those for shared volumes."""
    engine: str | None = None
    """Address of the container engine, or `none`; None: the first usual socket that answers."""
    container_networks: bool = True
    """Give every workload its own network. False: containers have no network."""
    task_network: Literal["host", "none"] = "host"
    """Network of process tasks: the machine's, or only a private loopback."""
