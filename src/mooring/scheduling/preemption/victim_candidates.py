"""The input of a victim search: running tasks, preemption rules and disruption budgets, and the results that earlier
searches cached per node."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, TypeAlias
from uuid import UUID

from mooring.model.policy.preemption import (
    Budgets,
    Preemption,
    RunningTask,
    VictimScope,
)
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.preemption.reclaim import Claim, Guarantees, UsedIn
from mooring.scheduling.preemption.running_tasks import (
    NOT_STARTED,
    RunningTasks,
    importance,
    shown_constraints,
)

_MAX_CACHED_KINDS = 64
LOWEST_PRIORITY = -(1 << 31)
"""The base of priority sums, so that no victim lowers a sum."""
HIGHEST_PRIORITY = 1 << 31
"""Above every priority."""


class Cost(NamedTuple):
    """The cost of the victims on a node. The lowest cost wins, and the node's name breaks ties."""

    violations: int
    highest: int
    total: int
    victims: int
    age: int
    """The earliest start among the victims of the highest priority, negated: a later start costs less."""


NOBODY_LEAVES = Cost(0, 2 * LOWEST_PRIORITY, 0, 0, -NOT_STARTED)


class Unit(NamedTuple):
    """Tasks that are preempted together: one task, or all tasks of a gang; the most important first."""

    running_tasks: tuple[RunningTask, ...]
    violating: frozenset[UUID]
    """The tasks whose preemption violates a budget."""

    @property
    def order(self) -> tuple[bool, tuple[int, int, int]]:
        """The order in which units are reprieved: budget violations first, then the most important."""
        return not self.violating, importance(self.running_tasks[0])


Option: TypeAlias = tuple[Cost, tuple[Unit, ...]]
"""The victims on a row and their cost."""


class CachedOptions:
    """The options that a search found per row, valid until the row changes."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.by_row: dict[int, Option | None] = {}
        self._seen = self._running_tasks_seen = -1

    def forget_stale(self, cluster: Cluster, running_tasks: RunningTasks) -> None:
        rows, nodes = cluster.changes.since(self._seen), running_tasks.changed_since(self._running_tasks_seen)
        if rows is None or nodes is None:
            self.by_row.clear()
            return
        for row in (*rows.tolist(), *map(cluster.row_of, nodes)):
            self.by_row.pop(row, None)

    def mark_seen(self, cluster: Cluster, running_tasks: RunningTasks) -> None:
        self._seen, self._running_tasks_seen = cluster.changes.revision, running_tasks.revision


class PreemptionState:
    """The preemption rules of one pool and the running tasks that they apply to."""

    def __init__(
        self,
        cluster: Cluster,
        profile: Profile,
        running_tasks: RunningTasks,
        rules: Preemption,
        budgets: Budgets | None = None,
    ) -> None:
        self.cluster = cluster
        self.profile = profile
        self.running_tasks = running_tasks
        self.rules = rules
        self.allowed: dict[UUID, int] = {}
        """The number of tasks of a workload that may still be disrupted, after all plans."""
        self.guarantees: Guarantees = {}
        """The guarantees of projects, for the scope `reclaim`."""
        self.used_in: UsedIn | None = None
        self._known: dict[tuple[object, ...], CachedOptions] = {}
        self.set_budgets(budgets or Budgets())

    def set_budgets(self, budgets: Budgets) -> None:
        """Replace the budgets; victims planned before are no longer subtracted."""
        for workload_id in self.allowed.keys() | budgets.allowed.keys():
            if self.allowed.get(workload_id) != budgets.allowed.get(workload_id):
                self.running_tasks.note_workload(workload_id)
        self.allowed = dict(budgets.allowed)

    def owner(self, one: RunningTask | Workload) -> UUID | None:
        """Return the tenant that preemptor and victim must share; None: any tenant of the pool."""
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
        """Return the workload's claim to lent guarantees; None where the rules go by priority."""
        if self.rules.scope is not VictimScope.RECLAIM:
            return None
        nodes = self.cluster.nodes_of(workload.pool)
        present = (task for node in nodes for task in self.running_tasks.on(node.id))
        return Claim(workload, self.guarantees.get(workload.pool, {}), present, self.used_in)

    def counted_constraints(self, task: RunningTask, row: int) -> Constraints | None:
        """Return the constraints under which the cluster counts a task; None if it does not count the task."""
        for constraints in (shown_constraints(task), task.constraints):
            if self.cluster.placed_tasks.has(row, constraints, leaving=task.leaving_for is not None):
                return constraints
        return None

    def known(self, key: tuple[object, ...], now: datetime) -> CachedOptions:
        """Return the cached options for equivalent workloads. A minimum runtime makes them depend on the time."""
        known = self._known.get(key)
        if known is None or (known.now != now and self.rules.min_runtime_seconds):
            if len(self._known) >= _MAX_CACHED_KINDS:
                self._known.clear()
            known = self._known[key] = CachedOptions(now)
        return known
