"""Devices as the slow placer sees them: lists of what is left, looked at one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mooring.model.decisions import SCORE_ONE
from mooring.model.nodes.node import Node
from mooring.model.resources.devices import WHOLE, DeviceDemand, DeviceShare
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.typical_requests import TypicalRequest


@dataclass
class Left:
    """The free part of one device."""

    index: int
    capacity: int
    free: int
    model: str | None = None
    memory: int | None = None

    def takes(self, share: int, least: int, demand: DeviceDemand | None) -> bool:
        if self.free < share:
            return False
        if demand is None:
            return True
        named = not demand.models or self.model in demand.models
        return named and (not demand.memory or least * (self.memory or 0) >= demand.memory * self.capacity)


def devices_of(node: Node) -> dict[str, list[Left]]:
    """By slot; `gpu` is made of devices also where the node names none."""
    found = {
        slot: [Left(d.index, d.capacity, d.capacity - d.taken, d.model, d.memory) for d in devices]
        for slot, devices in node.devices.items()
    }
    if "gpu" not in found:
        offered = node.allocatable.get("gpu", 0)
        taken = sum(part.get("gpu", 0) for part in (node.held, node.reserved, node.used))
        sizes = [WHOLE] * (offered // WHOLE) + ([offered % WHOLE] if offered % WHOLE else [])
        found["gpu"] = []
        for index, size in enumerate(sizes):
            here = min(taken, size)
            taken -= here
            found["gpu"].append(Left(index, size, size - here))
    return {slot: sorted(devices, key=lambda device: device.index) for slot, devices in found.items()}


def shares_of(
    devices: Sequence[Left], amount: int, demand: DeviceDemand | None, *, fragmentation: bool
) -> list[tuple[Left, int]] | None:
    """The devices that a request gets: as few as can hold it, or more where fragmentation is allowed."""
    if not devices:
        return None
    fewest = -(-amount // max(device.capacity for device in devices))
    for number in range(fewest, len(devices) + 1):
        shares = [amount // number + (position < amount % number) for position in range(number)]
        given: list[tuple[Left, int]] = []
        for share in shares:
            open_ones = [device for device in devices if all(device is not taken for taken, _ in given)]
            fitting = [device for device in open_ones if min(shares) and device.takes(share, min(shares), demand)]
            if not fitting:
                break
            given.append((min(fitting, key=lambda device: (device.free, device.index)), share))
        else:
            return given
        if not fragmentation:
            return None
    return None


def given_devices(
    devices: dict[str, list[Left]], workload: Workload, *, fragmentation: bool
) -> list[tuple[str, Left, int]] | None:
    """Return a task's devices in all device slots, or None if something does not fit."""
    demands = {demand.slot: demand for demand in workload.constraints.devices}
    given: list[tuple[str, Left, int]] = []
    for slot, amount in sorted(workload.request.items()):
        if amount and (slot == "gpu" or devices.get(slot)):
            shares = shares_of(devices.get(slot, ()), amount, demands.get(slot), fragmentation=fragmentation)
            if shares is None:
                return None
            given += [(slot, device, share) for device, share in shares]
    return given


def named(given: Sequence[tuple[str, Left, int]]) -> tuple[DeviceShare, ...]:
    return tuple(sorted(DeviceShare(slot, device.index, share) for slot, device, share in given))


def fragment(devices: Sequence[Left], cpu: int, memory: int, typical: Sequence[TypicalRequest]) -> int:
    """Return the capacity that typical requests cannot use, times their weights."""
    result = 0
    for each in typical:
        amount = each.request.get("gpu", 0)
        number = -(-amount // WHOLE)
        share = -(-amount // number) if number else 0
        useful = [d for d in devices if d.free >= share and (not each.models or d.model in each.models)]
        fits = (
            0 < number <= len(useful) and cpu >= each.request.get("cpu", 0) and memory >= each.request.get("memory", 0)
        )
        lost = [d for d in devices if not fits or d not in useful]
        result += each.weight * sum(max(device.free, 0) for device in lost)
    return result


def fragmentation_score(before: int, after: int, weight: int) -> int:
    part = SCORE_ONE // 2 * abs(before - after) // (WHOLE * weight + abs(before - after))
    return (SCORE_ONE // 2 + part if after <= before else SCORE_ONE // 2 - part) // 10_000 * 10_000
