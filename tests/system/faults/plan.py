"""The plan of a run: a list of faults and their times, which depends only on a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

SCHEDULERS, APIS, AGENTS, MEMBERS = 3, 2, 3, 3
LEADER = "leader"
"""The scheduler that leads when the fault begins."""
POSTGRES = "postgres"
ETCD = "etcd"
"""All etcd members, which lose their data or get older data back."""


class FaultKind(StrEnum):
    KILL = "kill -9"
    PAUSE = "pause"
    RESTART = "restart"
    CUT = "cut"
    HOLD = "hold"
    FILL = "fill"
    DRAIN = "drain"
    WIPE = "wipe"
    RESTORE = "restore"


K = FaultKind


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, repaired after `seconds`. `target` is a part of the cluster; for a cut or a hold, a link `FROM>TO`."""

    at: float
    kind: FaultKind
    target: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Lane:
    """Faults of interchangeable parts. They follow one another here and overlap with those of other lanes."""

    choices: Sequence[tuple[FaultKind, str]]
    gap_seconds: tuple[float, float]


def named(part: str, count: int) -> list[str]:
    return [f"{part}-{number}" for number in range(1, count + 1)]


def lanes() -> dict[str, Lane]:
    schedulers, apis, agents = named("scheduler", SCHEDULERS), named("api", APIS), named("agent", AGENTS)
    members = named("etcd", MEMBERS)
    processes = (K.KILL, K.PAUSE, K.RESTART)
    leader = [(kind, LEADER) for kind in (K.KILL, K.PAUSE, K.KILL, K.PAUSE, K.RESTART)]
    leader += [(kind, f"{LEADER}>{what}") for kind in (K.CUT, K.HOLD) for what in ("etcd", POSTGRES)]
    return {
        "schedulers": Lane([*leader, *((kind, each) for kind in processes for each in schedulers)], (2.0, 6.0)),
        "apis": Lane(
            [
                *((kind, each) for kind in processes for each in apis),
                *((kind, f"{each}>{POSTGRES}") for kind in (K.CUT, K.HOLD) for each in apis),
            ],
            (2.0, 8.0),
        ),
        "agents": Lane(
            [
                *((kind, each) for kind in processes for each in agents),
                *((kind, f"{each}>api") for kind in (K.CUT, K.HOLD) for each in agents),
            ],
            (1.0, 6.0),
        ),
        "storage": Lane(
            [
                *((kind, each) for kind in processes for each in members),
                *((kind, POSTGRES) for kind in processes),
                *((kind, ETCD) for kind in (K.WIPE, K.RESTORE)),
            ],
            (4.0, 14.0),
        ),
        "nodes": Lane([(K.FILL, "nodes"), *((K.DRAIN, each) for each in agents)], (2.0, 8.0)),
    }


def make_plan(seed: int, seconds: float, lease_seconds: float) -> list[Fault]:
    """Return the faults of a run in the order of their start. All are repaired when the run ends."""
    faults = [
        fault
        for name, lane in lanes().items()
        for fault in _of_lane(lane, random.Random(f"{seed}/{name}"), seconds, lease_seconds)
    ]
    return sorted(faults, key=lambda fault: (fault.at, fault.target))


def _of_lane(lane: Lane, chance: random.Random, seconds: float, lease_seconds: float) -> Iterator[Fault]:
    at = 0.0
    while True:
        # Each once before any is repeated, so that a short run covers many.
        for kind, target in chance.sample(lane.choices, len(lane.choices)):
            at += chance.uniform(*lane.gap_seconds)
            lasts = _lasts(kind, target, chance, lease_seconds)
            if at + lasts > seconds:
                return
            yield Fault(round(at, 3), kind, target, round(lasts, 3))
            at += lasts


def _lasts(kind: FaultKind, target: str, chance: random.Random, lease_seconds: float) -> float:
    if kind is K.RESTART:
        return 0.0
    if target == POSTGRES:
        # All parts wait for it: long enough to matter, and short enough for other faults to happen.
        return chance.uniform(0.5, 1.2 * lease_seconds)
    if kind in (K.PAUSE, K.CUT, K.HOLD):
        return chance.uniform(1.3, 3.0) * lease_seconds
    return chance.uniform(0.2, 2.0) * lease_seconds
