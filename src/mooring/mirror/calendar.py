"""The timeslots of a mirror: all that are not over, passed to the cluster as their unoccupied capacity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from mooring.model.calendar.timeslots import (
    OVER,
    PROMISED,
    Timeslot,
    TimeslotKind,
    TimeslotStatus,
)
from mooring.model.events import Event
from mooring.model.lifecycle import NodeStatus
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.cluster_state import Cluster
from mooring.store.core.chunks import chunks
from mooring.store.core.engine import Connection
from mooring.store.reservations import timeslots

_AT_ONCE = 1000
_MAY_HAVE_WORK = frozenset({TimeslotStatus.ACTIVE, TimeslotStatus.AT_RISK})
_NOTHING: Mapping[UUID, Amounts] = {}


class Promised(NamedTuple):
    """The capacity that a timeslot keeps, by node, from `begins` to `ends` in seconds."""

    begins: int
    ends: int
    left: Mapping[UUID, Amounts]
    is_open: bool
    """Its own work may be placed."""
    firm: bool
    """Running work is not moved for it."""


class Calendar:
    """An event names the timeslot to read again. A node's timeslots are read with it, so that nothing counts twice."""

    def __init__(self, cluster: Cluster) -> None:
        self.slots: dict[UUID, Timeslot] = {}
        self.nodes_to_check: set[UUID] = set()
        """Nodes that changed, or whose timeslots did: their promised capacity may no longer suffice."""
        self._cluster = cluster
        self._by_status: dict[TimeslotStatus, dict[UUID, Timeslot]] = {status: {} for status in TimeslotStatus}
        self._on: dict[UUID, set[UUID]] = defaultdict(set)
        self._occupied: dict[UUID, Mapping[UUID, Amounts]] = {}
        self._nodes: dict[UUID, tuple[int, NodeStatus, bool, Amounts] | None] = {}
        """Nodes with timeslots: their rows and their last known state."""
        self.given_back = 0
        """Number of times that capacity was released or moved."""
        self._ends: dict[UUID, dict[Hashable, int]] = {}
        """By node: the last known ends of its running tasks."""
        self._eased: set[str] = set()
        self._changed: set[UUID] = set()

    def eased(self) -> set[str]:
        """Return the pools in which capacity was released or moved since the last call."""
        eased, self._eased = self._eased, set()
        return eased

    def changed(self) -> set[UUID]:
        """Return the timeslots whose capacity may have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def on(self, node_id: UUID) -> list[Timeslot]:
        """Return the timeslots with capacity on a node, oldest first."""
        return [self.slots[id] for id in sorted(self._on.get(node_id, ()))]

    def occupied(self, timeslot_id: UUID) -> Mapping[UUID, Amounts]:
        """Return the amounts that a timeslot's own work occupies, by node."""
        return self._occupied.get(timeslot_id, _NOTHING)

    def with_status(self, status: TimeslotStatus) -> list[Timeslot]:
        """Return the timeslots in a status, oldest first."""
        return [slot for _, slot in sorted(self._by_status[status].items())]

    @property
    def undecided(self) -> bool:
        """Whether a request is unanswered."""
        return bool(self._by_status[TimeslotStatus.REQUESTED])

    @property
    def unsettled(self) -> bool:
        """Whether there is anything to decide."""
        return self.undecided or bool(self.nodes_to_check)

    def charged(self, at: datetime) -> dict[Tenant, dict[str, int]]:
        """Return the amounts charged to tenants for active timeslots; the work inside them is not charged."""
        charged: dict[Tenant, dict[str, int]] = {}
        for slot in (slot for status in _MAY_HAVE_WORK for slot in self._by_status[status].values()):
            if slot.eligible_at > at:
                continue
            for tenant in () if slot.kind is TimeslotKind.MAINTENANCE else _bookers(slot):
                own = charged.setdefault(tenant, {})
                for name, amount in slot.request.items():
                    own[name] = own.get(name, 0) + slot.count * amount
        return charged

    async def load(self, connection: Connection) -> None:
        """Read all timeslots that are not over."""
        for part in chunks(await timeslots.live_ids(connection), _AT_ONCE):
            await self.read(connection, part)

    async def follow(self, connection: Connection, news: Iterable[Event]) -> None:
        """Read the timeslots that events name."""
        named = sorted({event.object_id for event in news if event.noun == "timeslot"})
        for part in chunks(named, _AT_ONCE):
            await self.read(connection, part)

    async def read(self, connection: Connection, ids: Sequence[UUID]) -> None:
        found = {slot.id: slot for slot in await timeslots.load(connection, ids)}
        await self._read_occupied(connection, found.values())
        for timeslot_id in ids:
            slot = found.get(timeslot_id)
            if slot is None or slot.status in OVER:
                self.drop(timeslot_id)
            else:
                self.put(slot)

    async def update_nodes(self, connection: Connection, node_ids: Collection[UUID]) -> None:
        """Update the capacity of the timeslots on nodes that were read or removed."""
        if not self._on:
            return
        here = {id: self.slots[id] for node_id in node_ids for id in self._on.get(node_id, ())}
        await self._read_occupied(connection, here.values())
        self.note_nodes(node_ids)

    def note_nodes(self, node_ids: Collection[UUID]) -> None:
        """Pass on the timeslots of nodes that the cluster replaced or removed."""
        # On an unchanged node, only timeslots with their own work can have different capacity left.
        in_use = self._occupied.keys() | {id for status in _MAY_HAVE_WORK for id in self._by_status[status]}
        affected: set[UUID] = set()
        for node_id in node_ids:
            here = self._on.get(node_id)
            if here:
                affected |= here if self._note_node(node_id) else here & in_use
        for timeslot_id in affected:
            self._update_capacity(self.slots[timeslot_id])

    def set_occupied(self, timeslot_id: UUID, occupied: Mapping[UUID, Amounts]) -> None:
        """Set the amounts that the work inside a timeslot occupies, by node."""
        # The timeslot may leave the nodes that its work has left.
        self.nodes_to_check |= self.occupied(timeslot_id).keys() - occupied.keys()
        self._occupied[timeslot_id] = occupied

    def put(self, slot: Timeslot, *, fits: bool = False) -> None:
        """Add or replace a timeslot that is not over. `fits`: its capacity was just found and needs no check."""
        before = self.slots.get(slot.id)
        if before is not None and (before.placements != slot.placements or before.ends_at != slot.ends_at):
            self._ease(before.pool)
        if (
            before is None or before.placements != slot.placements or slot.kind is TimeslotKind.MAINTENANCE
        ) and not fits:
            self.nodes_to_check |= slot.placements.keys()
        self._unlink(slot.id)
        self.slots[slot.id] = slot
        self._by_status[slot.status][slot.id] = slot
        if slot.status in PROMISED:
            for node_id in slot.placements:
                self._on[node_id].add(slot.id)
                if node_id not in self._nodes:
                    self._note_node(node_id)
        self._update_capacity(slot)

    def drop(self, timeslot_id: UUID) -> None:
        """Remove a timeslot that is over or deleted."""
        slot = self.slots.get(timeslot_id)
        if slot is not None:
            self._ease(slot.pool)
            self._unlink(timeslot_id)
            del self.slots[timeslot_id]
        self._occupied.pop(timeslot_id, None)
        self._changed.add(timeslot_id)
        self._cluster.timeslots.forget(timeslot_id)

    def _ease(self, pool: str) -> None:
        self._eased.add(pool)
        self.given_back += 1

    def _unlink(self, timeslot_id: UUID) -> None:
        before = self.slots.get(timeslot_id)
        for node_id in () if before is None else before.placements:
            self._on[node_id].discard(timeslot_id)
            if not self._on[node_id]:
                del self._on[node_id]
                self._nodes.pop(node_id, None)
                self._ends.pop(node_id, None)
        if before is not None:
            del self._by_status[before.status][timeslot_id]

    def _note_node(self, node_id: UUID) -> bool:
        """Record a node as the cluster has it. Return whether it changed."""
        row = self._cluster.row_of(node_id)
        node = None if row is None else self._cluster.node(row)
        seen = None if row is None or node is None else (row, node.status, node.schedulable, node.allocatable)
        before, self._ends[node_id] = self._ends.get(node_id, {}), {} if row is None else self._ends_on(row)
        longer = any(before.get(task, end) < end for task, end in self._ends[node_id].items())
        changed = node_id not in self._nodes or self._nodes[node_id] != seen
        if longer or changed:
            self._nodes[node_id] = seen
            self.nodes_to_check.add(node_id)
        return changed

    def _ends_on(self, row: int) -> dict[Hashable, int]:
        promises = self._cluster.timeline.on(row)
        return {key: each.end for key, each in promises if each.start is None and each.end is not None}

    def _update_capacity(self, slot: Timeslot) -> None:
        self._changed.add(slot.id)
        if slot.status not in PROMISED:
            self._cluster.timeslots.forget(slot.id)
            return
        promised = self._promised(slot)
        self._cluster.timeslots.update(
            slot.id,
            promised.begins,
            promised.ends,
            promised.left,
            is_open=promised.is_open,
            firm=promised.firm,
        )

    def promised(self) -> dict[UUID, Promised]:
        """Return the promised capacity of every timeslot that has some."""
        return {slot.id: self._promised(slot) for slot in self.slots.values() if slot.status in PROMISED}

    def _promised(self, slot: Timeslot) -> Promised:
        upkeep = slot.kind is TimeslotKind.MAINTENANCE
        begins = slot.starts_at if upkeep else slot.eligible_at
        left = {node_id: self._whole(node_id) if upkeep else self._left(slot, node_id) for node_id in slot.placements}
        # A timeslot at risk uses its remaining capacity.
        is_open = slot.status in _MAY_HAVE_WORK and not upkeep
        return Promised(seconds_of(begins), seconds_of(slot.ends_at), left, is_open, upkeep)

    def _left(self, slot: Timeslot, node_id: UUID) -> Amounts:
        taken = self.occupied(slot.id).get(node_id, {})
        tasks = slot.placements[node_id]
        return {name: max(0, tasks * amount - taken.get(name, 0)) for name, amount in slot.request.items()}

    def _whole(self, node_id: UUID) -> Amounts:
        row = self._cluster.row_of(node_id)
        if row is None:
            return {}
        amounts = self._cluster.allocatable[:, row].tolist()
        return dict(zip(self._cluster.slot_names, amounts, strict=False))

    async def _read_occupied(self, connection: Connection, slots: Iterable[Timeslot]) -> None:
        # The work of a changed timeslot continues in its replacement.
        ids = [slot.id for slot in slots if slot.status in _MAY_HAVE_WORK or slot.replaces is not None]
        if ids:
            found = await timeslots.occupied(connection, ids)
            for id in ids:
                self.set_occupied(id, found.get(id, {}))


def _bookers(slot: Timeslot) -> tuple[Tenant, ...]:
    return (
        Tenant(Scope.KEYPAIR, slot.access_key),
        Tenant(Scope.USER, str(slot.user_id)),
        Tenant(Scope.PROJECT, str(slot.project_id)),
        Tenant(Scope.DOMAIN, str(slot.domain_id)),
    )
