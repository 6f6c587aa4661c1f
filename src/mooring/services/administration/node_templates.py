"""Translation of requested node templates into stored ones."""

from __future__ import annotations

from mooring.model.errors import InvalidInput
from mooring.model.labels import key_problem, value_problem
from mooring.model.nodes.node_templates import NodeTemplate
from mooring.model.resources.devices import Device
from mooring.model.resources.slots import UNITS_PER_ONE, parse_amounts, slot_type
from mooring.services.submission.placement_constraints import taints_of
from mooring.store.nodes.pools import Pool
from mooring.wire.cluster.scaling import TemplateDevices, TemplateRequest


def template_of(asked: TemplateRequest, *, name: str, pool: Pool) -> NodeTemplate:
    """Return the template; raise InvalidInput for one that no node could match."""
    amounts = parse_amounts(asked.resources)
    for key, value in asked.labels.items():
        problem = key_problem(key) or value_problem(value)
        if problem is not None:
            raise InvalidInput(problem, code="invalid-label")
    return NodeTemplate(
        name=name,
        pool=pool.name,
        allocatable=amounts,
        labels=asked.labels,
        taints=taints_of(asked.taints),
        architecture=asked.architecture,
        runtimes=frozenset(asked.runtimes or pool.runtimes),
        region=asked.region,
        licence=asked.licence,
        machine_image=asked.machine_image,
        machine_image_version=asked.machine_image_version,
        devices={slot: _devices(slot, amounts.get(slot, 0), named) for slot, named in asked.devices.items()},
        max_tasks=asked.max_tasks,
        cost=asked.cost,
        boot_seconds=asked.boot_seconds,
        least=asked.least,
        most=asked.most,
    )


def _devices(slot: str, amount: int, asked: list[TemplateDevices]) -> tuple[Device, ...]:
    whole = UNITS_PER_ONE[slot_type(slot).kind]
    alike = [devices for devices in asked for _ in range(devices.count)]
    if not slot_type(slot).devices or len(alike) * whole != amount:
        raise InvalidInput(
            f"{len(alike)} devices are named for {slot}, and a node is to have {slot_type(slot).format(amount)}",
            code="invalid-template",
        )
    memory = slot_type("memory")
    return tuple(
        Device(index, whole, each.model, None if each.memory is None else memory.parse(each.memory))
        for index, each in enumerate(alike)
    )
