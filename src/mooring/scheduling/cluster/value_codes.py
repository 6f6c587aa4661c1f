"""Small codes for repeated values: a predicate is evaluated once per value and applied to rows by their codes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mooring.model.labels import Operator, Requirement
from mooring.model.nodes.node import Node
from mooring.model.workloads.constraints import NODE_NAME_FIELD

Value = TypeVar("Value", bound=Hashable)


class Codes(Generic[Value]):
    """Small codes for repeated values, in the order of their first use."""

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self.values: list[Value] = []
        self._code_of: dict[Value, int] = {}
        for value in values:
            self.code(value)

    def code(self, value: Value) -> int:
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        return code

    def __contains__(self, value: Value) -> bool:
        return value in self._code_of


class LabelColumn:
    """One label of all nodes: the code of its value per row, -1 if absent."""

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        self.codes: NDArray[np.int32] = np.full(capacity, -1, dtype=np.int32)
        self._values: Codes[str] = Codes()
        self._truths: dict[Requirement, NDArray[np.bool_]] = {}

    @property
    def values(self) -> list[str]:
        """The value of each code. Some may be on no node any more."""
        return self._values.values

    def write(self, row: int, node: Node | None) -> None:
        value = None if node is None else node.name if self.key == NODE_NAME_FIELD else node.labels.get(self.key)
        self.codes[row] = -1 if value is None else self._values.code(value)

    def truth(self, requirement: Requirement) -> NDArray[np.bool_]:
        """Return whether each value satisfies the requirement; last, for code -1, whether absence does."""
        known = self._truths.get(requirement)
        if known is None or len(known) != len(self.values) + 1:
            known = np.empty(len(self.values) + 1, dtype=np.bool_)
            known[-1] = requirement.matches({})
            if requirement.operator in (Operator.IN, Operator.NOT_IN):
                negated = requirement.operator is Operator.NOT_IN
                known[:-1] = negated
                for value in requirement.values:
                    if value in self._values:
                        known[self._values.code(value)] = not negated
            else:
                known[:-1] = [requirement.matches({requirement.key: value}) for value in self.values]
            if len(self._truths) >= 1024:
                self._truths.clear()
            self._truths[requirement] = known
        return known

    def grow(self, capacity: int) -> None:
        more = np.full(capacity - len(self.codes), -1, dtype=np.int32)
        self.codes = np.concatenate((self.codes, more))
