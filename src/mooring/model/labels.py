"""Labels and selectors, with Kubernetes' meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mooring.model.errors import InvalidInput

Labels = Mapping[str, str]

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_KEY_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_KEY_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label. A label that is absent satisfies NotIn and DoesNotExist only."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case _:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        """Gt and Lt compare whole numbers; anything else on either side matches nothing."""
        if len(self.values) != 1 or not all(_WHOLE_NUMBER.fullmatch(text) for text in (value, self.values[0])):
            return False
        left, right = int(value), int(self.values[0])
        return left > right if self.operator is Operator.GT else left < right

    @property
    def problem(self) -> str | None:
        """The problem, if it is invalid."""
        count = len(self.values)
        match self.operator:
            case Operator.IN | Operator.NOT_IN if not count:
                return f"{self.key}: {self.operator} needs at least one value"
            case Operator.EXISTS | Operator.DOES_NOT_EXIST if count:
                return f"{self.key}: {self.operator} takes no values"
            case Operator.GT | Operator.LT if count != 1 or not _WHOLE_NUMBER.fullmatch(self.values[0]):
                return f"{self.key}: {self.operator} takes one whole number"
        return key_problem(self.key) or next(filter(None, map(value_problem, self.values)), None)


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold; a selector without requirements matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


def equal_to(labels: Labels) -> Selector:
    """Return the selector that requires these labels."""
    return Selector(tuple(Requirement(key, Operator.IN, (value,)) for key, value in sorted(labels.items())))


def parse_selector(text: str) -> Selector:
    """Return the selector of `app=web,tier!=db,gpu,!old`, as kubectl writes it."""
    requirements = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, unequal, value = part.partition("!=")
        if unequal:
            found = Requirement(key.strip(), Operator.NOT_IN, (value.strip(),))
        elif "=" in part:
            key, _, value = part.replace("==", "=", 1).partition("=")
            found = Requirement(key.strip(), Operator.IN, (value.strip(),))
        elif part.startswith("!"):
            found = Requirement(part.removeprefix("!").strip(), Operator.DOES_NOT_EXIST)
        else:
            found = Requirement(part, Operator.EXISTS)
        requirements.append(found)
    selector = Selector(tuple(requirements))
    check_selector(selector, what=f"label selector {text[:80]!r}")
    return selector


def check_selector(selector: Selector | None, *, what: str = "selector") -> None:
    """Raise InvalidInput that names the invalid requirement."""
    for requirement in () if selector is None else selector.requirements:
        if requirement.problem is not None:
            raise InvalidInput(f"{what}: {requirement.problem}", code="invalid-selector")


def key_problem(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if _KEY_NAME.fullmatch(name) and (not slash or _KEY_PREFIX.fullmatch(prefix)):
        return None
    return f"{key[:80]!r} is not a label key"


def value_problem(value: str) -> str | None:
    if _VALUE.fullmatch(value):
        return None
    return (
        f"{value[:80]!r} is not a label value: up to 63 letters, digits, '-', '_' and '.', "
        "beginning and ending with a letter or digit"
    )
