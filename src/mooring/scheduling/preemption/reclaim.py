"""Reclaiming: projects of a pool lend each other what they are guaranteed and do not use; who needs it takes it back.

What a project uses above its guarantee is borrowed. A workload whose project stays within its own guarantee may have
borrowed tasks leave, whatever their priority, but never so many that their project falls below what it is guaranteed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from mooring.model.preemption import Resident
from mooring.model.slots import Amounts
from mooring.model.workloads import Workload

Guarantees: TypeAlias = Mapping[str, Mapping[UUID, Amounts]]
"""By pool and project."""
UsedIn: TypeAlias = Callable[[str, UUID], Amounts]
"""What a project uses of a pool, the workload that asks included."""


class Claim:
    """What one workload may take back, and of whom. Slots that nobody is guaranteed are not lent."""

    def __init__(
        self,
        workload: Workload,
        guaranteed: Mapping[UUID, Amounts],
        present: Iterable[Resident],
        used_in: UsedIn | None = None,
    ) -> None:
        """`present` are the tasks on the pool's nodes. Without `used_in` they are all that counts of its project."""
        lent = {slot for amounts in guaranteed.values() for slot in amounts}
        self._slots = sorted(slot for slot, amount in workload.request.items() if amount and slot in lent)
        used: dict[UUID, Counter[str]] = {}
        for resident in present:
            if resident.leaving_for is None:
                used.setdefault(resident.project_id, Counter()).update(resident.request)
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
        self, units: Sequence[tuple[Resident, ...]], chosen: Iterable[tuple[Resident, ...]]
    ) -> list[tuple[Resident, ...]]:
        """Those of the units that are borrowed together with those chosen before; the least important leave first."""
        left = {project: dict(amounts) for project, amounts in self._borrowed.items()}
        for unit in chosen:
            self._take(left, unit)
        return [unit for unit in reversed(units) if self._take(left, unit)][::-1]

    def _take(self, left: Mapping[UUID, dict[str, int]], unit: tuple[Resident, ...]) -> bool:
        """Count a unit as gone if all of it is borrowed. The tasks of a unit are of one workload."""
        borrowed = left.get(unit[0].project_id, {})
        asked = {slot: sum(each.request.get(slot, 0) for each in unit) for slot in self._slots}
        if not any(asked.values()) or any(amount > borrowed.get(slot, 0) for slot, amount in asked.items() if amount):
            return False
        for slot, amount in asked.items():
            borrowed[slot] -= amount
        return True
