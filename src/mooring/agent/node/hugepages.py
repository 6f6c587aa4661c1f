"""Huge pages of the machine: the amount of each size, and the limit of a container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mooring.agent.node import usage_counters
from mooring.model.resources.quantity import format_binary

_POOLS = Path("/sys/kernel/mm/hugepages")
_CONTROLLER = "hugetlb"


def capacity(pools: Path = _POOLS) -> dict[str, int]:
    """Return the reserved bytes by slot, without sizes that have none."""
    found: dict[str, int] = {}
    for folder in pools.glob("hugepages-*kB"):
        size = int(folder.name.removeprefix("hugepages-").removesuffix("kB")) * 1024
        if count := int((folder / "nr_hugepages").read_text()):
            found[f"hugepages-{format_binary(size)}"] = count * size
    return found


def enforced(mountinfo: str) -> bool:
    """Return whether cgroups of this machine can limit huge pages."""
    mounts = usage_counters.mounts_of(mountinfo)
    unified = mounts[usage_counters.UNIFIED][0] / "cgroup.controllers" if usage_counters.UNIFIED in mounts else None
    return _CONTROLLER in mounts or (unified is not None and _CONTROLLER in unified.read_text().split())


def hold(groups: Mapping[str, Path], slots: Mapping[str, int]) -> None:
    """Limit a container to the huge pages that it requested, and none of other sizes."""
    for folder, limit in ((groups.get(_CONTROLLER), "limit_in_bytes"), (groups.get(usage_counters.UNIFIED), "max")):
        for file in folder.glob(f"hugetlb.*B.{limit}") if folder is not None else ():
            size = file.name.split(".")[1].removesuffix("B")
            file.write_text(str(slots.get(f"hugepages-{size}i", 0)))
