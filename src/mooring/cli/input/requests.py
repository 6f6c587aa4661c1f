"""Requests from what was typed; what is wrong with it is said before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mooring.wire.placement import GroupRequest, MachineImageRequest, PlacementRequest, TaintRequest

    Model = TypeVar("Model", bound=BaseModel)


def build(model: type[Model], /, **fields: Any) -> Model:
    """A request of the wire; fields that are None are left to the server."""
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
    """Amounts by slot, each of them readable as a quantity."""
    from mooring.model.slots import slot_type

    named = {"cpu": cpu, "memory": memory, "gpu": gpu, "storage": storage}
    written = {name: amount for name, amount in named.items() if amount is not None}
    written.update(assignments(slots, option="--slot"))
    for name, amount in written.items():
        slot_type(name).parse(amount)
    return written


def assignments(written: Iterable[str] | None, *, option: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping."""
    result: dict[str, str] = {}
    for text in written or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InvalidInput(f"{option} {text[:60]!r}: write NAME=VALUE")
        result[name] = value
    return result


def environment(written: Iterable[str] | None) -> dict[str, str]:
    """As `assignments`, but a name alone takes the value of this very environment."""
    result: dict[str, str] = {}
    for text in written or ():
        name, separator, value = text.partition("=")
        if not name:
            raise InvalidInput(f"--env {text[:60]!r}: write NAME=VALUE, or NAME to pass on your own")
        if not separator and name not in os.environ:
            raise InvalidInput(f"--env {name}: there is no such variable here to pass on; write {name}=VALUE")
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
    """What was said about the place; None if nothing was."""
    from mooring.model.durations import parse_duration
    from mooring.wire.placement import DevicesRequest, PlacementRequest, SpreadRequest, TolerationRequest

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
    """`NAME[:VERSION]`."""
    from mooring.wire.placement import MachineImageRequest

    name, _, version = written.partition(":")
    return build(MachineImageRequest, name=name, version=version or None)


def group(written: str | None) -> GroupRequest | None:
    """`NAME[:spread|pack[:strict]]`."""
    from mooring.wire.placement import GroupRequest

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
        raise InvalidInput(f"--retry-on {written[:40]!r}: write exit codes with commas between: 1,75") from None


def taints(written: Iterable[str] | None) -> list[TaintRequest]:
    """`KEY[=VALUE][:EFFECT]` texts, NoSchedule where no effect is named."""
    from mooring.wire.placement import TaintRequest

    result = []
    for text in written or ():
        rest, _, effect = text.partition(":")
        key, _, value = rest.partition("=")
        result.append(build(TaintRequest, key=key, value=value, effect=effect or None))
    return result
