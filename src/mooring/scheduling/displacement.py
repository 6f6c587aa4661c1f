"""What a search for victims rests on: who is on the nodes, by which rules and budgets they may have to leave, and what
is known of nodes from earlier looks."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, TypeAlias
from uuid import UUID

from mooring.model.constraints import Constraints
from mooring.model.preemption import Budgets, Preemption, Resident, VictimScope
from mooring.model.workloads import Workload
from mooring.scheduling.columns import Cluster
from mooring.scheduling.profiles import Profile
from mooring.scheduling.reclaim import Claim, Guarantees, UsedIn
from mooring.scheduling.residents import NOT_STARTED, Residents, importance, shown_constraints

_KINDS_KEPT = 64
LOWEST_PRIORITY = -(1 << 31)
"""Sums of priorities count from here, so that no victim makes a sum smaller."""
HIGHEST_PRIORITY = 1 << 31
"""Above every priority."""


class Cost(NamedTuple):
    """What the victims on a node are worth; the smallest is chosen, by name among equals."""

    violations: int
    highest: int
    total: int
    victims: int
    age: int
    """The later the longest-running of the highest priority started, the smaller."""


NOBODY_LEAVES = Cost(0, 2 * LOWEST_PRIORITY, 0, 0, -NOT_STARTED)


class Unit(NamedTuple):
    """Tasks that leave together: one, or all of a workload that lives or dies as a whole; the most important first."""

    residents: tuple[Resident, ...]
    violating: frozenset[UUID]
    """Those whose loss breaks a budget."""

    @property
    def order(self) -> tuple[bool, tuple[int, int, int]]:
        """Who is given back first."""
        return not self.violating, importance(self.residents[0])


Option: TypeAlias = tuple[Cost, tuple[Unit, ...]]
"""Who has to leave a row, and what they are worth."""


class Known:
    """What leaving tasks would make of the rows, as long as nothing changes there."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.by_row: dict[int, Option | None] = {}
        self._seen = self._residents_seen = -1

    def forget_stale(self, cluster: Cluster, residents: Residents) -> None:
        rows, nodes = cluster.changes.since(self._seen), residents.changed_since(self._residents_seen)
        if rows is None or nodes is None:
            self.by_row.clear()
            return
        for row in (*rows.tolist(), *map(cluster.row_of, nodes)):
            self.by_row.pop(row, None)

    def mark_seen(self, cluster: Cluster, residents: Residents) -> None:
        self._seen, self._residents_seen = cluster.changes.revision, residents.revision


class Standing:
    """The rules of one pool, and whom they are about."""

    def __init__(
        self,
        cluster: Cluster,
        profile: Profile,
        residents: Residents,
        rules: Preemption,
        budgets: Budgets | None = None,
    ) -> None:
        self.cluster = cluster
        self.profile = profile
        self.residents = residents
        self.rules = rules
        self.allowed: dict[UUID, int] = {}
        """How many more tasks of a workload may be disturbed, what was planned subtracted."""
        self.guarantees: Guarantees = {}
        """What projects have for sure, for the scope `reclaim`."""
        self.used_in: UsedIn | None = None
        self._known: dict[tuple[object, ...], Known] = {}
        self.tell_budgets(budgets or Budgets())

    def tell_budgets(self, budgets: Budgets) -> None:
        """How many tasks may be disturbed from now on; plans made before are no longer subtracted."""
        for workload_id in self.allowed.keys() | budgets.allowed.keys():
            if self.allowed.get(workload_id) != budgets.allowed.get(workload_id):
                self.residents.note_workload(workload_id)
        self.allowed = dict(budgets.allowed)

    def owner(self, one: Resident | Workload) -> UUID | None:
        """Whose tasks may have to leave for whose: those with the same answer."""
        match self.rules.scope:
            case VictimScope.USER:
                return one.user_id
            case VictimScope.PROJECT:
                return one.project_id
            case VictimScope.DOMAIN:
                return one.domain_id
            case VictimScope.POOL | VictimScope.RECLAIM:
                return None

    def claim(self, workload: Workload) -> Claim | None:
        """What it may take back; None where rules go by priority."""
        if self.rules.scope is not VictimScope.RECLAIM:
            return None
        nodes = self.cluster.nodes_of(workload.pool)
        present = (resident for node in nodes for resident in self.residents.on(node.id))
        return Claim(workload, self.guarantees.get(workload.pool, {}), present, self.used_in)

    def told_constraints(self, resident: Resident, row: int) -> Constraints | None:
        """What the cluster counts of a task for others to ask about; None where it was not told of it."""
        for constraints in (shown_constraints(resident), resident.constraints):
            if self.cluster.placed.has(row, constraints, leaving=resident.leaving_for is not None):
                return constraints
        return None

    def known(self, key: tuple[object, ...], now: datetime) -> Known:
        """What is kept about nodes for workloads that are alike."""
        known = self._known.get(key)
        if known is None or (known.now != now and self.rules.min_runtime_seconds):
            if len(self._known) >= _KINDS_KEPT:
                self._known.clear()
            known = self._known[key] = Known(now)
        return known
