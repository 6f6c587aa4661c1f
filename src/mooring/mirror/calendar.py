"""The timeslots of a mirror: all that are not over, told to the cluster as the room that they have left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from mooring.model.events import Event
from mooring.model.lifecycle import NodeStatus
from mooring.model.quotas import Scope, Tenant
from mooring.model.slots import Amounts
from mooring.model.timeslots import OVER, PROMISED, Timeslot, TimeslotKind, TimeslotStatus
from mooring.scheduling.columns import Cluster
from mooring.scheduling.timeline import seconds_of
from mooring.store import timeslots
from mooring.store.chunks import chunks
from mooring.store.engine import Connection

_AT_ONCE = 1000
_MAY_HAVE_WORK = frozenset({TimeslotStatus.ACTIVE, TimeslotStatus.AT_RISK})
_NOTHING: Mapping[UUID, Amounts] = {}


class Calendar:
    """An event says which timeslot to read again; those of a node are read with it, so that nothing counts twice."""

    def __init__(self, cluster: Cluster) -> None:
        self.slots: dict[UUID, Timeslot] = {}
        self.stirred: set[UUID] = set()
        """Nodes that are other than they were, or have other timeslots: what was promised of them may not hold."""
        self._cluster = cluster
        self._by_status: dict[TimeslotStatus, dict[UUID, Timeslot]] = {status: {} for status in TimeslotStatus}
        self._on: dict[UUID, set[UUID]] = defaultdict(set)
        self._occupied: dict[UUID, Mapping[UUID, Amounts]] = {}
        self._nodes: dict[UUID, tuple[NodeStatus, bool, Amounts] | None] = {}
        """Nodes with timeslots as they were seen last."""
        self.given_back = 0
        """How often room came back, or moved."""
        self._ends: dict[UUID, dict[Hashable, int]] = {}
        """When what runs there was to end then."""
        self._eased: set[str] = set()
        self._changed: set[UUID] = set()

    def eased(self) -> set[str]:
        """The pools in which room came back, or moved, since this was asked last."""
        eased, self._eased = self._eased, set()
        return eased

    def changed(self) -> set[UUID]:
        """The timeslots whose work may find other room than before, since this was asked last."""
        changed, self._changed = self._changed, set()
        return changed

    def on(self, node_id: UUID) -> list[Timeslot]:
        """The timeslots that have room on a node, the oldest first."""
        return [self.slots[id] for id in sorted(self._on.get(node_id, ()))]

    def occupied(self, timeslot_id: UUID) -> Mapping[UUID, Amounts]:
        """What its own work occupies, by node."""
        return self._occupied.get(timeslot_id, _NOTHING)

    def having(self, status: TimeslotStatus) -> list[Timeslot]:
        """Those in a status, the oldest first."""
        return [slot for _, slot in sorted(self._by_status[status].items())]

    @property
    def undecided(self) -> bool:
        """Somebody waits for an answer."""
        return bool(self._by_status[TimeslotStatus.REQUESTED])

    @property
    def unsettled(self) -> bool:
        """There is something to decide."""
        return self.undecided or bool(self.stirred)

    def charged(self, at: datetime) -> dict[Tenant, dict[str, int]]:
        """What bookers are charged with for the timeslots that are in force; the work inside them is not charged."""
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
        """Read all that are not over."""
        for part in chunks(await timeslots.live_ids(connection), _AT_ONCE):
            await self.read(connection, part)

    async def follow(self, connection: Connection, news: Iterable[Event]) -> None:
        """Read those that the feed tells of."""
        told = sorted({event.object_id for event in news if event.noun == "timeslot"})
        for part in chunks(told, _AT_ONCE):
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

    async def tell_nodes(self, connection: Connection, node_ids: Collection[UUID]) -> None:
        """These nodes were read, or are gone: what their timeslots have left there is told with them."""
        if not self._on:
            return
        here = {id: self.slots[id] for node_id in node_ids for id in self._on.get(node_id, ())}
        await self._read_occupied(connection, here.values())
        self.note_nodes(node_ids)

    def note_nodes(self, node_ids: Collection[UUID]) -> None:
        """The cluster has these nodes anew, or no longer."""
        for node_id in node_ids:
            if self._on.get(node_id):
                self._note_node(node_id)
        for timeslot_id in {id for node_id in node_ids for id in self._on.get(node_id, ())}:
            self._tell(self.slots[timeslot_id])

    def tell_occupied(self, timeslot_id: UUID, occupied: Mapping[UUID, Amounts]) -> None:
        """What the work inside a timeslot occupies now, by node."""
        # Where its work has left, it may be moved.
        self.stirred |= self.occupied(timeslot_id).keys() - occupied.keys()
        self._occupied[timeslot_id] = occupied

    def put(self, slot: Timeslot) -> None:
        """A timeslot that is not over is like this."""
        before = self.slots.get(slot.id)
        if before is not None and (before.places != slot.places or before.ends_at != slot.ends_at):
            self._ease(before.pool)
        if before is None or before.places != slot.places or slot.kind is TimeslotKind.MAINTENANCE:
            self.stirred |= slot.places.keys()
        self._unlink(slot.id)
        self.slots[slot.id] = slot
        self._by_status[slot.status][slot.id] = slot
        if slot.status in PROMISED:
            for node_id in slot.places:
                self._on[node_id].add(slot.id)
                if node_id not in self._nodes:
                    self._note_node(node_id)
        self._tell(slot)

    def drop(self, timeslot_id: UUID) -> None:
        """A timeslot that is over, or gone."""
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
        for node_id in () if before is None else before.places:
            self._on[node_id].discard(timeslot_id)
            if not self._on[node_id]:
                del self._on[node_id]
                self._nodes.pop(node_id, None)
                self._ends.pop(node_id, None)
        if before is not None:
            del self._by_status[before.status][timeslot_id]

    def _note_node(self, node_id: UUID) -> None:
        row = self._cluster.row_of(node_id)
        node = None if row is None else self._cluster.node(row)
        seen = None if node is None else (node.status, node.schedulable, node.allocatable)
        before, self._ends[node_id] = self._ends.get(node_id, {}), {} if row is None else self._ends_on(row)
        longer = any(before.get(task, end) < end for task, end in self._ends[node_id].items())
        if longer or node_id not in self._nodes or self._nodes[node_id] != seen:
            self._nodes[node_id] = seen
            self.stirred.add(node_id)

    def _ends_on(self, row: int) -> dict[Hashable, int]:
        promises = self._cluster.timeline.on(row)
        return {key: each.end for key, each in promises if each.start is None and each.end is not None}

    def _tell(self, slot: Timeslot) -> None:
        self._changed.add(slot.id)
        if slot.status not in PROMISED:
            self._cluster.timeslots.forget(slot.id)
            return
        upkeep = slot.kind is TimeslotKind.MAINTENANCE
        begins = slot.starts_at if upkeep else slot.eligible_at
        left = {node_id: self._whole(node_id) if upkeep else self._left(slot, node_id) for node_id in slot.places}
        # One that has lost some of its room uses what it has.
        is_open = slot.status in _MAY_HAVE_WORK and not upkeep
        self._cluster.timeslots.tell(slot.id, seconds_of(begins), seconds_of(slot.ends_at), left, is_open=is_open)

    def _left(self, slot: Timeslot, node_id: UUID) -> Amounts:
        taken = self.occupied(slot.id).get(node_id, {})
        tasks = slot.places[node_id]
        return {name: max(0, tasks * amount - taken.get(name, 0)) for name, amount in slot.request.items()}

    def _whole(self, node_id: UUID) -> Amounts:
        row = self._cluster.row_of(node_id)
        if row is None:
            return {}
        amounts = self._cluster.allocatable[:, row].tolist()
        return dict(zip(self._cluster.slot_names, amounts, strict=False))

    async def _read_occupied(self, connection: Connection, slots: Iterable[Timeslot]) -> None:
        # The work in one that was changed goes on in what takes its place.
        ids = [slot.id for slot in slots if slot.status in _MAY_HAVE_WORK or slot.replaces is not None]
        if ids:
            found = await timeslots.occupied(connection, ids)
            for id in ids:
                self.tell_occupied(id, found.get(id, {}))


def _bookers(slot: Timeslot) -> tuple[Tenant, ...]:
    return (
        Tenant(Scope.KEYPAIR, slot.access_key),
        Tenant(Scope.USER, str(slot.user_id)),
        Tenant(Scope.PROJECT, str(slot.project_id)),
        Tenant(Scope.DOMAIN, str(slot.domain_id)),
    )
