"""Groups: workloads of one user that are spread over nodes or packed together, as a preference or strictly.

A group reaches placement in the terms that it knows: its members carry a label that no request may set, and ask for
or shun nodes with tasks that carry it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from mooring.model.labels import Requirement, Selector, equal_to
from mooring.model.workloads.constraints import (
    NODE_NAME_FIELD,
    Constraints,
    PreferredTasks,
    Spread,
    TaskTerm,
)

RESERVED_PREFIX = "mooring/"
"""The prefix of label keys that requests may not use."""
GROUP_LABEL = f"{RESERVED_PREFIX}group"
MAX_NAME_LENGTH = 30
"""Maximum length of a name: the label's value also holds the owner's id."""

_PREFERRED_WEIGHT = 100


class Direction(StrEnum):
    SPREAD = "spread"
    PACK = "pack"


class Enforcement(StrEnum):
    PREFERRED = "preferred"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    direction: Direction = Direction.SPREAD
    enforcement: Enforcement = Enforcement.PREFERRED


def grouped(constraints: Constraints, group: Group, owner: UUID) -> Constraints:
    """Return the constraints of a member: strict (anti-)affinity per node, or a preference that counts members."""
    label = (GROUP_LABEL, f"{owner.hex}.{group.name}")
    members = equal_to(dict((label,)))
    term = TaskTerm(NODE_NAME_FIELD, members)
    labelled = replace(constraints, labels=tuple(sorted((*constraints.labels, label))))
    match group.direction, group.enforcement:
        case Direction.SPREAD, Enforcement.STRICT:
            return replace(labelled, anti_affinity=(*labelled.anti_affinity, term))
        case Direction.SPREAD, _:
            return replace(labelled, spread=(*labelled.spread, Spread(NODE_NAME_FIELD, 1, members, hard=False)))
        case _, Enforcement.STRICT:
            return replace(labelled, affinity=(*labelled.affinity, term))
        case _:
            wish = PreferredTasks(_PREFERRED_WEIGHT, term)
            return replace(labelled, preferred_tasks=(*labelled.preferred_tasks, wish))


def group_of(constraints: Constraints) -> str | None:
    """Return the name of the group that the tasks belong to."""
    value = dict(constraints.labels).get(GROUP_LABEL)
    return None if value is None else value.partition(".")[2]


def is_of_group(term: TaskTerm) -> bool:
    """Return whether a constraint is that of a strict group, for which nothing is preempted."""
    return term.selector is not None and any(r.key == GROUP_LABEL for r in term.selector.requirements)


def reserved_keys(constraints: Constraints) -> list[str]:
    """Return the reserved label keys that a request uses."""
    named = {key for key, _ in constraints.labels} | {requirement.key for requirement in _requirements(constraints)}
    return sorted(key for key in named if key.startswith(RESERVED_PREFIX))


def _requirements(constraints: Constraints) -> Iterator[Requirement]:
    terms = (*constraints.affinity, *constraints.anti_affinity, *(wish.term for wish in constraints.preferred_tasks))
    selectors: list[Selector | None] = [term.selector for term in terms]
    selectors += [spread.selector for spread in constraints.spread]
    for selector in selectors:
        yield from () if selector is None else selector.requirements
