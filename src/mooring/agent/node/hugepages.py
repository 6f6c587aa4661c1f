"""Huge pages of the machine: how much of each size there is, and how a container is held to its share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mooring.agent import use
from mooring.model.quantity import format_binary

_POOLS = Path("/sys/kernel/mm/hugepages")
_CONTROLLER = "hugetlb"


def capacity(pools: Path = _POOLS) -> dict[str, int]:
    """By slot the bytes that an operator has set apart; sizes without any are left out."""
    found: dict[str, int] = {}
    for folder in pools.glob("hugepages-*kB"):
        size = int(folder.name.removeprefix("hugepages-").removesuffix("kB")) * 1024
        if count := int((folder / "nr_hugepages").read_text()):
            found[f"hugepages-{format_binary(size)}"] = count * size
    return found


def enforced(mountinfo: str) -> bool:
    """Whether cgroups of this machine limit them."""
    mounts = use.mounts_of(mountinfo)
    unified = mounts[use.UNIFIED][0] / "cgroup.controllers" if use.UNIFIED in mounts else None
    return _CONTROLLER in mounts or (unified is not None and _CONTROLLER in unified.read_text().split())


def hold(groups: Mapping[str, Path], slots: Mapping[str, int]) -> None:
    """Let a container have the huge pages that it asked for, and none of other sizes."""
    for folder, limit in ((groups.get(_CONTROLLER), "limit_in_bytes"), (groups.get(use.UNIFIED), "max")):
        for file in folder.glob(f"hugetlb.*B.{limit}") if folder is not None else ():
            size = file.name.split(".")[1].removesuffix("B")
            file.write_text(str(slots.get(f"hugepages-{size}i", 0)))
