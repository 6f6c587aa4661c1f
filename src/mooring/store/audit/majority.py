"""The vote of independent sources on one fact: the majority decides; an even split decides nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from mooring.store.audit.corrections import shown

V = TypeVar("V")


class Vote(NamedTuple, Generic[V]):
    source: str
    value: V


class Decided(NamedTuple, Generic[V]):
    value: V
    why: str


class Undecided(Exception):
    """Raised when the sources of a fact are split evenly, or when there is none."""


def majority(fact: str, votes: Iterable[Vote[V]]) -> Decided[V]:
    """Return the value that more sources state than any other; raise Undecided if there is none."""
    by_value: dict[V, list[str]] = defaultdict(list)
    for vote in votes:
        by_value[vote.value].append(vote.source)
    if not by_value:
        raise Undecided(f"{fact}: no source is left")
    ranked = sorted(by_value, key=lambda value: -len(by_value[value]))
    if len(ranked) > 1 and len(by_value[ranked[0]]) == len(by_value[ranked[1]]):
        raise Undecided(f"{fact}: {stated(by_value, ranked)}")
    return Decided(ranked[0], stated(by_value, ranked))


def stated(by_value: Mapping[Any, Sequence[str]], order: Iterable[Any]) -> str:
    """Return each value with the sources that state it, as text."""
    return "; ".join(f"{', '.join(by_value[value])}: {shown(value)}" for value in order)
