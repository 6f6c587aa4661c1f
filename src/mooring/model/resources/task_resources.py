"""The resource model: totals of a task with several containers, quality of service, overcommit, utilisation.

Totals follow Kubernetes: the sum of the containers or the peak of the init phase, sidecars in both, plus overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from fractions import Fraction

from mooring.model.errors import InvalidInput
from mooring.model.resources.quantity import INT64_MAX
from mooring.model.resources.slots import Amounts, slot_type
from mooring.model.workloads.containers import Container, TaskTemplate

UNASKED: Mapping[str, int] = {"cpu": 100, "memory": 200 << 20}
"""The request that scoring assumes for a container without one: 100m CPU and 200 MiB memory."""


class Quality(StrEnum):
    """The quality-of-service class: the order in which tasks suffer when a node runs short."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def requests_of(
    template: TaskTemplate,
    *,
    unasked: Amounts | None = None,
    with_overhead: bool = True,
    with_task_level: bool = True,
) -> dict[str, int]:
    """Return the total request of a task; `unasked` is assumed for slots that a container does not request."""

    def asked(container: Container) -> Amounts:
        return {**unasked, **container.slots} if unasked else container.slots

    result = _total(template, asked)
    if with_task_level:
        result.update((name, units) for name, units in template.requests.items() if at_task_level(name))
    if with_overhead:
        _add(result, template.overhead)
    return result


def limits_of(template: TaskTemplate, *, with_overhead: bool = True, with_task_level: bool = True) -> dict[str, int]:
    """Return the total limits of a task; a slot without a limit is absent. Overhead raises limits, but adds none."""
    result = _total(template, lambda container: container.limits)
    if with_task_level:
        result.update((name, units) for name, units in template.limits.items() if at_task_level(name))
    if with_overhead:
        _add(result, {name: units for name, units in template.overhead.items() if result.get(name)})
    return result


def quality_of(template: TaskTemplate) -> Quality:
    """Guaranteed: all containers limit CPU and memory and request as much; best effort: none requests either."""
    parts: list[tuple[Amounts, Amounts]]
    if template.requests or template.limits:
        parts = [(template.requests, template.limits)]
    else:
        parts = [(c.slots, c.limits) for c in template.all_containers]
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for asked, allowed in parts:
        _add(requests, _counting(asked))
        _add(limits, _counting(allowed))
        guaranteed = guaranteed and len(_counting(allowed)) == len(UNASKED)
    if not requests and not limits:
        return Quality.BEST_EFFORT
    return Quality.GUARANTEED if guaranteed and requests == limits else Quality.BURSTABLE


def oom_score(quality: Quality | str, memory_bytes: int, capacity_bytes: int) -> int:
    """Return the OOM score adjustment of a container, from -1000 (never killed) to 1000.

    The more of the node's memory a burstable container requests, the later; always between the two other classes.
    """
    if quality == Quality.GUARANTEED:
        return -997
    if quality == Quality.BEST_EFFORT:
        return 1000
    return min(max(2, 1000 - 1000 * memory_bytes // max(capacity_bytes, 1)), 999)


def check_resources(template: TaskTemplate) -> None:
    """Raise InvalidInput unless 0 <= request <= limit for every slot, and request = limit for custom ones."""
    parts: Iterable[tuple[str, Amounts, Amounts]] = (
        *((f"container {c.name!r}", c.slots, c.limits) for c in template.all_containers),
        ("the task", template.requests, template.limits),
        ("the overhead", template.overhead, {}),
    )
    for owner, asked, allowed in parts:
        for name in {**asked, **allowed}:
            _check_slot(owner, name, asked.get(name), allowed.get(name))


def overcommitted(allocatable: Amounts, ratios: Mapping[str, Fraction]) -> dict[str, int]:
    """Return the allocatable amounts with overcommit: more than the capacity for slots with a ratio above 1."""
    return {name: min(int(units * ratios.get(name, 1)), INT64_MAX) for name, units in allocatable.items()}


def check_overcommit(ratios: Mapping[str, Fraction]) -> None:
    for name, ratio in ratios.items():
        if ratio < 1:
            raise InvalidInput(f"overcommit of {name}: {ratio} is below 1", code="invalid-overcommit")
        if ratio > 1 and not slot_type(name).compressible:
            raise InvalidInput(
                f"overcommit of {name}: only slots that can be throttled, such as cpu, can be overcommitted",
                code="invalid-overcommit",
            )


def utilisation(allocatable: Amounts, taken: Amounts) -> dict[str, float]:
    """Return the occupied fraction of every slot; without capacity it is 0, or 1 if something is occupied."""
    return {
        name: taken.get(name, 0) / units if units else float(taken.get(name, 0) > 0)
        for name, units in allocatable.items()
    }


def at_task_level(name: str) -> bool:
    """Return whether a task may request this slot as a whole, instead of the sum of its containers."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _total(template: TaskTemplate, part: Callable[[Container], Amounts]) -> dict[str, int]:
    running: dict[str, int] = {}
    for container in template.containers:
        _add(running, part(container))
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container in template.init_containers:
        if container.sidecar:
            _add(running, part(container))
            _add(sidecars, part(container))
            _raise_to(largest, sidecars)
        else:
            moment = dict(sidecars)
            _add(moment, part(container))
            _raise_to(largest, moment)
    _raise_to(running, largest)
    return running


def _add(result: dict[str, int], part: Amounts) -> None:
    for name, units in part.items():
        result[name] = result.get(name, 0) + units


def _raise_to(result: dict[str, int], other: Amounts) -> None:
    for name, units in other.items():
        result[name] = max(result.get(name, 0), units)


def _counting(amounts: Amounts) -> dict[str, int]:
    """Only CPU and memory determine the class; an amount of 0 counts as none."""
    return {name: units for name, units in amounts.items() if name in UNASKED and units > 0}


def _check_slot(owner: str, name: str, asked: int | None, allowed: int | None) -> None:
    slot = slot_type(name)
    if (asked or 0) < 0 or (allowed or 0) < 0:
        raise InvalidInput(f"{owner} requests a negative amount of {name}", code="invalid-request")
    if asked is None or allowed is None:
        return
    if asked > allowed:
        raise InvalidInput(
            f"{owner} asks for {slot.format(asked)} {name} with a limit of {slot.format(allowed)}",
            code="request-above-limit",
        )
    if slot.kind == "count" and asked != allowed:
        raise InvalidInput(
            f"{owner}: {name} cannot be shared, so its request ({asked}) and limit ({allowed}) must be equal",
            code="invalid-request",
        )
