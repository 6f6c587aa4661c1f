"""Requests from command-line options. Errors are reported before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mooring.wire.workloads.placement import (
        GroupRequest,
        MachineImageRequest,
        PlacementRequest,
        TaintRequest,
    )

    Model = TypeVar("Model", bound=BaseModel)


def build(model: type[Model], /, **fields: Any) -> Model:
    """Return a request; fields that are None are left out."""
    from pydantic import ValidationError

    from mooring.client.answers import invalid_request

    try:
        return model(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as problem:
        raise invalid_request(problem) from problem


def checked_name(name: str | None, *, what: str = "name") -> str | None:
    from mooring.model.names import check_name

    return None if name is None else check_name(name, what=what)


def resources(
    *, cpu: str | None, memory: str | None, gpu: str | None, storage: str | None, slots: Iterable[str] | None
) -> dict[str, str]:
    """Return amounts by slot, each checked to be a quantity, with a unit if it counts bytes."""
    from mooring.model.resources.slots import slot_type

    named = {"cpu": cpu, "memory": memory, "gpu": gpu, "storage": storage}
    written = {name: amount for name, amount in named.items() if amount is not None}
    written.update(assignments(slots, option="--slot"))
    for name, amount in written.items():
        slot_type(name).parse_with_unit(amount)
    return written


def memory_bytes(written: str) -> str:
    """Return an amount of memory, checked to be a quantity with a unit."""
    from mooring.model.resources.slots import slot_type

    slot_type("memory").parse_with_unit(written)
    return written


def assignments(written: Iterable[str] | None, *, option: str) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping."""
    result: dict[str, str] = {}
    for text in written or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InvalidInput(f"{option} {text[:60]!r}: write NAME=VALUE")
        result[name] = value
    return result


def environment(written: Iterable[str] | None) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping; a name alone takes its value from this process's environment."""
    result: dict[str, str] = {}
    for text in written or ():
        name, separator, value = text.partition("=")
        if not name:
            raise InvalidInput(f"--env {text[:60]!r}: write NAME=VALUE, or NAME to pass your own value")
        if not separator and name not in os.environ:
            raise InvalidInput(f"--env {name}: the variable is not set in your environment; write {name}=VALUE")
        result[name] = value if separator else os.environ[name]
    return result


def placement(
    *,
    select: Iterable[str] | None,
    tolerate: Iterable[str] | None,
    ports: int,
    spread_over: Iterable[str] | None = None,
    gpu_models: list[str] | None = None,
    gpu_memory: str | None = None,
    licence: str | None = None,
    machine_image: str | None = None,
) -> PlacementRequest | None:
    """Return the placement constraints, or None if none is given."""
    from mooring.model.calendar.durations import parse_duration
    from mooring.wire.workloads.placement import (
        DevicesRequest,
        PlacementRequest,
        SpreadRequest,
        TolerationRequest,
    )

    tolerations = []
    for text in tolerate or ():
        rest, _, limits = text.partition(":")
        key, separator, value = rest.partition("=")
        effect, _, seconds = limits.partition(":")
        tolerations.append(
            build(
                TolerationRequest,
                key=key,
                operator="Equal" if separator else "Exists",
                value=value,
                effect=effect or None,
                seconds=parse_duration(seconds) if seconds else None,
            )
        )
    if gpu_memory is not None:
        memory_bytes(gpu_memory)
    fields = {
        "node_selector": assignments(select, option="--select"),
        "tolerations": tolerations,
        "ports": ports,
        "spread": [build(SpreadRequest, topology_key=key) for key in spread_over or ()],
        "devices": [build(DevicesRequest, models=gpu_models, memory=gpu_memory)] if gpu_models or gpu_memory else [],
        "licence": licence,
        "machine_image": None if machine_image is None else _machine_image(machine_image),
    }
    return build(PlacementRequest, **fields) if any(fields.values()) else None


def _machine_image(written: str) -> MachineImageRequest:
    """Return the machine image of `NAME[:VERSION]`."""
    from mooring.wire.workloads.placement import MachineImageRequest

    name, _, version = written.partition(":")
    return build(MachineImageRequest, name=name, version=version or None)


def group(written: str | None) -> GroupRequest | None:
    """Return the group of `NAME[:spread|pack[:strict]]`."""
    from mooring.wire.workloads.placement import GroupRequest

    if written is None:
        return None
    name, *rest = written.split(":")
    if len(rest) > 2 or rest[:1] not in ([], ["spread"], ["pack"]) or rest[1:] not in ([], ["strict"], ["preferred"]):
        raise InvalidInput(f"--group {written[:60]!r}: write NAME, NAME:spread, NAME:pack or NAME:pack:strict")
    return build(GroupRequest, name=name, direction=next(iter(rest), None), enforcement=next(iter(rest[1:]), None))


def exit_codes(written: str) -> list[int]:
    try:
        return [int(code) for code in written.split(",")]
    except ValueError:
        raise InvalidInput(f"--retry-on {written[:40]!r}: write exit codes separated by commas: 1,75") from None


def taints(written: Iterable[str] | None) -> list[TaintRequest]:
    """Return the taints of `KEY[=VALUE][:EFFECT]` texts; the default effect is NoSchedule."""
    from mooring.wire.workloads.placement import TaintRequest

    result = []
    for text in written or ():
        rest, _, effect = text.partition(":")
        key, _, value = rest.partition("=")
        result.append(build(TaintRequest, key=key, value=value, effect=effect or None))
    return result
