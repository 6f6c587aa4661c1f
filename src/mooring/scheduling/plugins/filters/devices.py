"""Only nodes with free devices: a share must fit on one device, and whole devices must be wholly free."""

from __future__ import annotations

import numpy as np

from mooring.model.resources.slots import slot_type
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.device_requests import DeviceRequest, device_requests
from mooring.scheduling.cluster.device_sharing import divisions
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelFilter
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class DevicesFilter:
    name = "devices"
    depends_on: DependsOn = "row"
    kernel_filter: KernelFilter = "devices"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(device_requests(shape, cluster))

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        fitting = np.ones(len(rows), dtype=np.bool_)
        for request in device_requests(shape, cluster):
            fitting &= request.fits(rows)
        return fitting

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        """Return the rejection. Each node counts for the first slot for which it lacks devices."""
        words: list[str] = []
        details: dict[str, dict[str, int]] = {}
        suitable = np.ones(len(rows), dtype=np.bool_)
        curable = np.ones(len(rows), dtype=np.bool_)
        left = np.ones(len(rows), dtype=np.bool_)
        for request in device_requests(shape, cluster):
            refused = left & ~request.fits(rows)
            left &= ~refused
            empty = request.fits_when_empty(rows)
            suitable &= empty | ~request.fits_when_empty(rows, any_device=True)
            curable &= empty
            if not refused.any():
                continue
            name = request.column.slot
            unsuitable = refused & ~suitable
            short = rows[refused & suitable]
            if not request.valid:
                words.append(_invalid(request, len(short)))
            elif len(short):
                words.append(_short(request, short))
            if unsuitable.any():
                words.append(_unsuitable(request, int(unsuitable.sum())))
            best = int(request.most_free(rows[refused]).max())
            details[name] = {"nodes": int(refused.sum()), "needs": request.amount, "most_free": best}
        invalid = any(not request.valid for request in device_requests(shape, cluster))
        return Rejection(
            "insufficient-devices" if suitable.any() else "unsuitable-devices",
            ", ".join(words),
            cure="never" if invalid else "release" if curable.any() else "change",
            details={"devices": details},
        )


def _short(request: DeviceRequest, rows: Rows) -> str:
    """Return `2 have no single device with 0.3 gpu free (best has 0.2)`, or count devices if it needs several."""
    slot, column = slot_type(request.column.slot), request.column
    many = f"{len(rows):,} {'has' if len(rows) == 1 else 'have'}"
    largest = max(int(column.capacity[rows].max()), column.quantum)
    if not column.capacity[rows].any():
        return f"{many} no {slot.name} devices"
    fewest = next(divisions(request.amount, largest, request.amount, quantum=column.quantum, fragmentation=False))
    share = slot.format(fewest.larger)
    if fewest.devices == 1:
        best = slot.format(int(request.most_free(rows).max()))
        return f"{many} no single device with {share} {slot.name} free (best has {best})"
    least = request.least(rows)
    usable = column.free[rows] if least is None else np.where(least <= fewest.smaller, column.free[rows], 0)
    most = int((usable >= fewest.smaller).sum(axis=1).max())
    return f"{many} fewer than {fewest.devices} devices with {share} {slot.name} free each (best has {most})"


def _unsuitable(request: DeviceRequest, count: int) -> str:
    demand = request.demand
    assert demand is not None
    models = f" of model {' or '.join(sorted(demand.models))}" if demand.models else ""
    memory = f" with {slot_type('memory').format(demand.memory)} of memory for the task" if demand.memory else ""
    lack = "lacks" if count == 1 else "lack"
    return f"{count:,} {lack} {request.column.slot} devices{models}{memory}"


def _invalid(request: DeviceRequest, count: int) -> str:
    slot = slot_type(request.column.slot)
    quantum = slot.format(request.column.quantum)
    return f"{count:,} cannot allocate {slot.format(request.amount)} {slot.name}: amounts are multiples of {quantum}"
