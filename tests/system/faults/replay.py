"""The event feed again, one committed transaction after the other: which task was where at each moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from mooring.model.lifecycle import OCCUPYING, TaskStatus, is_end
from tests.system.faults.records import Records, Row

_STATUSES = frozenset(status.value for status in TaskStatus)


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster after a transaction."""

    changed: list[Row]
    """The events of the transaction."""
    status: dict[UUID, TaskStatus]
    on_node: dict[UUID, set[UUID]]
    """Tasks that are charged to a node: until nothing is left of them there, which may be after their end."""
    node_status: dict[UUID, str]

    @property
    def placed(self) -> list[Row]:
        """The events of tasks that got a place by it."""
        kinds = (TaskStatus.RESERVED, TaskStatus.SCHEDULED)
        return [event for event in self.changed if event["noun"] == "task" and event["kind"] in kinds]


@dataclass
class Replay:
    """Goes through the records once. Transactions that touched the same rows come in the order of their commits: each
    tells its events last, with the locks that the other waits for in its hands."""

    records: Records
    status: dict[UUID, TaskStatus] = field(default_factory=dict)
    on_node: dict[UUID, set[UUID]] = field(default_factory=lambda: defaultdict(set))
    node_status: dict[UUID, str] = field(default_factory=dict)

    def moments(self) -> Iterator[Moment]:
        self.status = {task["id"]: TaskStatus.PENDING for task in self.records.tasks}
        freed_later = {event["object_id"] for event in self.records.events if event["kind"] == "freed"}
        history = [row for row in self.records.history if row["noun"] == "node"]
        became = {(row["object_id"], row["at"]): row["new_status"] for row in history}
        transactions: dict[int, list[Row]] = defaultdict(list)
        for event in self.records.events:
            transactions[event["transaction_id"]].append(event)
        for events in sorted(transactions.values(), key=lambda events: events[-1]["revision"]):
            for event in events:
                if event["noun"] == "task":
                    self._apply(event, freed_later)
                elif event["noun"] == "node" and (found := became.get((event["object_id"], event["at"]))) is not None:
                    self.node_status[event["object_id"]] = found
            yield Moment(events, self.status, self.on_node, self.node_status)

    def _apply(self, event: Row, freed_later: set[UUID]) -> None:
        task, kind = event["object_id"], event["kind"]
        if kind == "freed":
            self._leave(task)
        elif kind in _STATUSES:
            status = self.status[task] = TaskStatus(kind)
            if status in OCCUPYING:
                self._leave(task)
                self.on_node[event["node_id"]].add(task)
            elif not (is_end(status) and task in freed_later):
                self._leave(task)

    def _leave(self, task: UUID) -> None:
        for there in self.on_node.values():
            there.discard(task)
