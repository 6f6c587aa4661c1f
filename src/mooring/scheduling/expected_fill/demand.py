"""The demand to come, as the rule sees it: distinct requests, sampled sequences of them, and groups that share limits.

Everything is a whole number and follows from the typical requests alone, so that equal demand gives equal decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mooring.model.resources.devices import WHOLE
from mooring.scheduling.cluster.typical_requests import TypicalRequest, devices_and_share

SEQUENCES = 64
LENGTH = 600
"""Requests per sequence: more than the largest nodes are asked for within their horizon."""
HORIZON = 16
"""A sequence ends once it has asked for this many times the free devices of the node."""
CPU_LEVELS = 4
"""Steps between leaving requests without devices out of the sequences and giving them their full weight."""
SHARE_ONE = 1 << 16
"""The scale of shares of the demand for devices."""
MOST_REQUESTS = 512
MOST_GROUPS = 16
MOST_CLASSES = 8
"""Classes of device models. The loads of models are compared for every set of classes."""
_SEED = 20_230_710

ModelSet: TypeAlias = frozenset[str | None]
Numbers: TypeAlias = NDArray[np.int32]


class Request(NamedTuple):
    """A distinct request; memory is left out."""

    cpu: int
    devices: int
    share: int
    """Of each device."""
    classes: int
    """The classes of models that it accepts, as bits."""


class Group(NamedTuple):
    """Requests for several devices of one node that count alike and accept the same models."""

    devices: int
    classes: int
    share: int
    """Of the demand for devices that these requests and all larger ones that compete with them make up."""


class Restricted(NamedTuple):
    """The demand for devices that accepts the same models."""

    classes: int
    share: int
    """Of the demand for devices; more than that where models are named."""


@dataclass(frozen=True, slots=True)
class Demand:
    requests: tuple[Request, ...]
    sequences: tuple[Numbers, ...]
    """Per CPU level the numbers of requests, as [sequence, position]."""
    class_of: Mapping[ModelSet, int]
    """Per set of models on a node, its class."""
    classes: int
    """Number of classes."""
    by_models: tuple[Restricted, ...]
    groups: tuple[Group, ...]
    smallest_share: int
    """Of one device; 0 if no request wants devices."""
    least_cpu: int
    """Of a request for devices."""
    cpu_per_device: int
    """Millicores that requests for devices want per device, in 1024ths of a millicore per thousandth."""

    def asked(self, level: int) -> Numbers:
        """Return the device capacity that each sequence has asked for before each position."""
        amounts = np.array([each.devices * each.share for each in self.requests], dtype=np.int64)
        of_positions = amounts[self.sequences[level]]
        before: Numbers = np.minimum(np.cumsum(of_positions, axis=1) - of_positions, (1 << 31) - 1).astype(np.int32)
        return before


def demand_of(typical: Sequence[TypicalRequest], on_nodes: Sequence[ModelSet]) -> Demand:
    """Return the demand that typical requests describe. `on_nodes`: the sets of models that nodes have."""
    weights = _weights(typical)
    named = _named_sets(weights, on_nodes)
    class_of, classes = _classes(named, on_nodes)
    merged: dict[Request, int] = defaultdict(int)
    for (cpu, devices, share, models), weight in weights.items():
        accepted = sum(1 << number for number in {class_of[each] for each in on_nodes if models & each})
        merged[Request(cpu, devices, share, accepted if models in named else (1 << classes) - 1)] += weight
    ordered = sorted(merged.items(), key=lambda item: (-item[1], item[0]))[:MOST_REQUESTS]
    requests = tuple(request for request, _ in ordered)
    weight_of = [weight for _, weight in ordered]
    wanting = [(each, weight) for each, weight in ordered if each.devices]
    total = sum(weight * each.devices * each.share for each, weight in wanting)
    return Demand(
        requests,
        tuple(_sequences(requests, weight_of, level) for level in range(CPU_LEVELS + 1)),
        class_of,
        classes,
        _by_models(wanting, total, (1 << classes) - 1),
        _groups(wanting, total),
        min((each.share for each, _ in wanting), default=0),
        min((each.cpu for each, _ in wanting), default=0),
        sum(weight * each.cpu for each, weight in wanting) * 1024 // max(total, 1),
    )


def _weights(typical: Sequence[TypicalRequest]) -> dict[tuple[int, int, int, frozenset[str]], int]:
    weights: dict[tuple[int, int, int, frozenset[str]], int] = defaultdict(int)
    for each in typical:
        if each.weight:
            devices, share = devices_and_share(each)
            models = each.models if devices else frozenset()
            weights[each.request.get("cpu", 0), devices, share, models] += each.weight
    return weights


def _named_sets(
    weights: Mapping[tuple[int, int, int, frozenset[str]], int], on_nodes: Sequence[ModelSet]
) -> list[frozenset[str]]:
    """Return the sets of models that requests name: the most demanded that do not tell too many classes apart."""
    demanded: dict[frozenset[str], int] = defaultdict(int)
    for (_, devices, share, models), weight in weights.items():
        if models:
            demanded[models] += weight * devices * share
    named: list[frozenset[str]] = []
    for models in sorted(demanded, key=lambda models: (-demanded[models], sorted(models))):
        if _classes([*named, models], on_nodes)[1] <= MOST_CLASSES:
            named.append(models)
    return named


def _classes(named: Sequence[frozenset[str]], on_nodes: Sequence[ModelSet]) -> tuple[dict[ModelSet, int], int]:
    """Return the class of each set of models on a node: sets that the same requests accept are one class."""
    numbers: dict[tuple[bool, ...], int] = {}
    class_of: dict[ModelSet, int] = {}
    for each in on_nodes:
        accepted_by = tuple(bool(models & each) for models in named)
        class_of[each] = numbers.setdefault(accepted_by, len(numbers))
    return class_of, max(len(numbers), 1)


def _sequences(requests: Sequence[Request], weights: Sequence[int], level: int) -> Numbers:
    """Draw sequences by stratified sampling: over all sequences, each position holds every request as often as its
    weight says, up to one, and so do all positions together.
    """
    scaled = [weight * (CPU_LEVELS if each.devices else level) for each, weight in zip(requests, weights, strict=True)]
    total = sum(scaled)
    if not total:
        return np.zeros((SEQUENCES, 0), dtype=np.int32)
    strata = SEQUENCES * LENGTH
    points = (2 * np.arange(strata, dtype=np.int64) + 1) * total // (2 * strata)
    firsts = np.searchsorted(points, np.cumsum([0, *scaled]))
    drawn = np.repeat(np.arange(len(scaled), dtype=np.int32), np.diff(firsts))
    numbers: Numbers = drawn[_strata()]
    return numbers


@cache
def _strata() -> NDArray[np.int32]:
    """Return the stratum of the demand that each position is drawn from, as [sequence, position].

    The strata of one position are evenly apart, in an order of its own.
    """
    random = np.random.Generator(np.random.PCG64(_SEED))
    orders = random.permuted(np.tile(np.arange(SEQUENCES, dtype=np.int32), (LENGTH, 1)), axis=1)
    offsets = random.permutation(LENGTH).astype(np.int32)
    return np.ascontiguousarray((orders * np.int32(LENGTH) + offsets[:, None]).T)


def _by_models(wanting: Sequence[tuple[Request, int]], total: int, every: int) -> tuple[Restricted, ...]:
    """Return the demand per set of accepted classes. Requests that cannot go anywhere count 1.5-fold."""
    amounts: dict[int, int] = defaultdict(int)
    for each, weight in wanting:
        if each.classes:
            amounts[each.classes] += weight * each.devices * each.share
    return tuple(
        Restricted(classes, amount * SHARE_ONE // total * (3 if classes != every else 2) // 2)
        for classes, amount in sorted(amounts.items())
    )


def _groups(wanting: Sequence[tuple[Request, int]], total: int) -> tuple[Group, ...]:
    amounts: dict[tuple[int, int], int] = defaultdict(int)
    for each, weight in wanting:
        if each.devices > 1 and each.classes:
            amounts[each.devices, each.classes] += weight * each.devices * WHOLE
    largest = sorted(amounts, key=lambda group: (-amounts[group], group))[:MOST_GROUPS]
    return tuple(
        Group(
            devices,
            classes,
            sum(
                amount
                for (others, accepted), amount in amounts.items()
                if (others, accepted) == (devices, classes) or (others > devices and accepted & classes)
            )
            * SHARE_ONE
            // total,
        )
        for devices, classes in sorted(largest)
    )
