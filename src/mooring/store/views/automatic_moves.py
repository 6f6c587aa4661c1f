"""The budget of automatic moves of pools, and their newest plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.policy.defragmentation import MoveStatus
from mooring.store.nodes import defragmentation_plans
from mooring.store.nodes.defragmentation_plans import BUDGET_WINDOW, StoredPlan
from mooring.store.views.nodes import PoolRow


@dataclass(frozen=True, slots=True)
class AutomaticMoves:
    last_hour: int
    """Moves of the last hour."""
    left: int
    """Moves that the budget allows now."""
    newest: StoredPlan | None

    @property
    def arrived(self) -> int:
        """The moves of the newest plan that have been made."""
        moves = () if self.newest is None else self.newest.moves
        return sum(move.status is MoveStatus.ARRIVED for move in moves)


async def of_pools(connection: AsyncConnection, rows: Sequence[PoolRow], now: datetime) -> dict[UUID, AutomaticMoves]:
    """Return the moves by pool; nothing for pools without automatic moves, now and in the last hour."""
    evicted = await defragmentation_plans.evictions_since(connection, now - BUDGET_WINDOW)
    shown = [row for row in rows if row.id in evicted or row.policy.defragmentation.moves_per_hour]
    newest = await defragmentation_plans.newest_by_pool(connection, [row.id for row in shown])
    found: dict[UUID, AutomaticMoves] = {}
    for row in shown:
        made = len(evicted.get(row.id, ()))
        left = max(row.policy.defragmentation.moves_per_hour - made, 0)
        found[row.id] = AutomaticMoves(made, left, newest.get(row.id))
    return found
