"""Reclaim: the projects of a pool lend each other their unused guarantees, and a lender takes its guarantee back.

Usage above a project's guarantee is borrowed. A workload whose project stays within its own guarantee may preempt
borrowing tasks of any priority, but never so many that their project falls below its guarantee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from mooring.model.policy.preemption import RunningTask
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Workload

Guarantees: TypeAlias = Mapping[str, Mapping[UUID, Amounts]]
"""Guaranteed amounts by pool and project."""
UsedIn: TypeAlias = Callable[[str, UUID], Amounts]
"""The usage of a project in a pool, including the workload that reclaims."""


class Claim:
    """The amounts that one workload may reclaim, by project. Slots without any guarantee are not lent."""

    def __init__(
        self,
        workload: Workload,
        guaranteed: Mapping[UUID, Amounts],
        present: Iterable[RunningTask],
        used_in: UsedIn | None = None,
    ) -> None:
        """`present`: the tasks on the pool's nodes, which with the workload make up its usage if `used_in` is None."""
        lent = {slot for amounts in guaranteed.values() for slot in amounts}
        self._slots = sorted(slot for slot, amount in workload.request.items() if amount and slot in lent)
        used: dict[UUID, Counter[str]] = {}
        for task in present:
            if task.leaving_for is None:
                used.setdefault(task.project_id, Counter()).update(task.request)
        self._borrowed = {
            project: {slot: amounts[slot] - guaranteed.get(project, {}).get(slot, 0) for slot in self._slots}
            for project, amounts in used.items()
        }
        own = guaranteed.get(workload.project_id, {})
        if used_in is not None:
            mine = used_in(workload.pool, workload.project_id)
        else:
            mine = used.get(workload.project_id, Counter())
            mine.update({slot: amount * len(workload.tasks) for slot, amount in workload.request.items()})
        self.entitled = bool(self._slots) and all(mine.get(slot, 0) <= own.get(slot, 0) for slot in self._slots)

    def within(
        self, units: Sequence[tuple[RunningTask, ...]], chosen: Iterable[tuple[RunningTask, ...]]
    ) -> list[tuple[RunningTask, ...]]:
        """Return the units that are still borrowed after the `chosen` ones; the least important are taken first."""
        left = {project: dict(amounts) for project, amounts in self._borrowed.items()}
        for unit in chosen:
            self._take(left, unit)
        return [unit for unit in reversed(units) if self._take(left, unit)][::-1]

    def _take(self, left: Mapping[UUID, dict[str, int]], unit: tuple[RunningTask, ...]) -> bool:
        """Subtract a unit from the borrowed amounts if all of it is borrowed. A unit belongs to one workload."""
        borrowed = left.get(unit[0].project_id, {})
        asked = {slot: sum(each.request.get(slot, 0) for each in unit) for slot in self._slots}
        if not any(asked.values()) or any(amount > borrowed.get(slot, 0) for slot, amount in asked.items() if amount):
            return False
        for slot, amount in asked.items():
            borrowed[slot] -= amount
        return True
