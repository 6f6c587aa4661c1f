"""What can be set about an agent, with the defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mooring.wire.agent import DeviceFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    devices: Mapping[str, Sequence[DeviceFact]] = field(default_factory=dict)
    """Devices in place of those that the agent finds by itself."""
    address: str | None = None
    """Where other nodes reach this one; None: where its connection to the server comes from."""
    licence: str | None = None
    machine_image: str | None = None
    machine_image_version: str = ""
    trust_tenants: bool = False
    """An agent without root runs everybody's tasks as its own user: only among people who trust each other."""
    uid_range: tuple[int, int] = (200_000, 299_999)
    """First and last uid for the projects of a root agent; no account of the machine should be in it."""
    ca_file: Path | None = None
    """Certificates to trust besides none other; None: those of the system."""
    shared_work_root: Path = Path("/var/lib/mooring-work")
    """Where a root agent keeps work folders when tenants cannot reach its own folder."""
    log_bytes: int = 10 * 1024 * 1024
    log_files: int = 3
    keep_seconds: float = 7 * 24 * 3600
    keep_bytes: int = 2 * 1024**3
    disk_full_percent: float = 95.0
    max_processes: int = 2048
    """Of each container; where an rlimit holds them, of all that the tenant's user runs on the node."""
    scan_seconds: float = 5.0
    """How often everything is looked at again; exits and orders are noticed at once without it."""
    host_paths: tuple[Path, ...] = ()
    """Folders of the machine that its owner lets tasks mount, those for shared volumes among them."""
    engine: str | None = None
    """The address of the container engine, or `none`; None: whichever answers at the usual places."""
    container_networks: bool = True
    """Every workload has a network of its own. False: containers have none, as where the engine can make none."""
