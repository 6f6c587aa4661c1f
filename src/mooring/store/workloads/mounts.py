"""Which workloads mount which volumes, how placement follows these, and how a volume comes to its node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.constraints import Constraints, MountedVolume
from mooring.model.decisions import Decision
from mooring.model.workloads import Workload
from mooring.store import events, sets, volumes
from mooring.store.history import Journal
from mooring.store.tables import pools, workload_volumes
from mooring.store.tables import volumes as volume_rows
from mooring.store.volumes import SHARED_FOLDER

_PLACE = sets.Statement(
    """
    UPDATE volumes AS v SET node_id = i.node_id, node_name = i.node_name FROM {rows} i
    WHERE v.id = i.id AND v.node_id IS NULL AND v.node_name IS NULL
    """,
    {"id": "uuid", "node_id": "uuid", "node_name": "text"},
)


class Mounted(NamedTuple):
    """A volume as placement sees it."""

    volume_id: UUID
    name: str
    size: int
    shared: bool
    node_id: UUID | None
    node: str | None
    """Also when the node is no longer there."""
    folder: str | None = None
    """Of a shared one: where the nodes of its pool have all that they share."""

    @classmethod
    def of(cls, volume: volumes.Volume) -> Mounted:
        return cls(volume.id, volume.name, volume.size, volume.shared, volume.node_id, volume.node)

    @property
    def is_unplaced(self) -> bool:
        return not self.shared and self.node is None


async def lock_living(connection: AsyncConnection, ids: Collection[UUID]) -> set[UUID]:
    """Which of these volumes are there to be mounted: until the transaction ends nobody lets them go."""
    if not ids:
        return set()
    rows = await connection.execute(
        select(volume_rows.c.id)
        .where(sets.among(volume_rows.c.id, ids), volume_rows.c.removed_at.is_(None))
        .order_by(volume_rows.c.id)
        .with_for_update(read=True)
    )
    return set(rows.scalars())


async def of_workloads(
    connection: AsyncConnection, ids: Collection[UUID], *, lock: bool = False
) -> dict[UUID, list[Mounted]]:
    """By workload what it mounts. `lock`: the volumes stay as they are until the transaction ends."""
    query = _mounts().with_for_update(of=volume_rows) if lock else _mounts()
    found: dict[UUID, list[Mounted]] = defaultdict(list)
    for workload_id, *mount in await connection.execute(query, {"ids": ids}):
        found[workload_id].append(Mounted(*mount))
    return dict(found)


@cache
def _mounts() -> Select[Any]:
    return (
        select(
            workload_volumes.c.workload_id,
            volume_rows.c.id,
            volume_rows.c.name,
            volume_rows.c.size,
            volume_rows.c.shared,
            volume_rows.c.node_id,
            volume_rows.c.node_name,
            SHARED_FOLDER,
        )
        .join(volume_rows, volume_rows.c.id == workload_volumes.c.volume_id)
        .join(pools, pools.c.id == volume_rows.c.pool_id)
        .where(sets.among(workload_volumes.c.workload_id))
        .order_by(volume_rows.c.id)
    )


def followed(workload: Workload, mounted: Iterable[Mounted]) -> Workload:
    """The workload as it has to follow its volumes.

    While one of these has no node yet, one task is placed before the others, or as many as start together: these all on
    one node, which has room for the volume, too.
    """
    own = [mount for mount in mounted if not mount.shared]
    if not own:
        return workload
    constraints = bound(workload.constraints, own)
    coming = sum(mount.size for mount in own if mount.is_unplaced)
    if not coming:
        return replace(workload, constraints=constraints)
    first = _first(workload)
    # All of them bring it once: a share each, rounded up to whole bytes.
    constraints = replace(constraints, volume_bytes=-(-coming // first))
    return replace(
        workload,
        constraints=constraints,
        tasks=workload.tasks[:first],
        single_node=workload.single_node or first > 1,
    )


def bound(constraints: Constraints, mounted: Iterable[Mounted]) -> Constraints:
    """With the volumes that only one node has each."""
    own = (MountedVolume(each.name, each.node_id, each.node) for each in mounted if not each.shared)
    return replace(constraints, volumes=tuple(own))


def _first(workload: Workload) -> int:
    """How many of its tasks have to go first."""
    waiting = len(workload.tasks)
    if workload.gang:
        return waiting
    there = sum(workload.occupied.values())
    return max(1, min(waiting, (workload.min_tasks or 1) - there))


@dataclass(slots=True)
class VolumeGuard:
    """The volumes that the decisions of a batch bring to a node, as they are now and with the batch so far."""

    _mounts: Mapping[UUID, Sequence[Mounted]] = field(default_factory=dict)
    _placed: dict[UUID, tuple[UUID, str]] = field(default_factory=dict)
    """Where the batch brings them."""

    @classmethod
    async def read(cls, connection: AsyncConnection, decisions: Sequence[Decision]) -> VolumeGuard:
        """The nodes of the decisions are locked before; the volumes are from here on."""
        ids = [decision.workload.id for decision in decisions if brings_volumes(decision)]
        if not ids:
            return cls()
        return cls(await of_workloads(connection, ids, lock=True))

    def conflict(self, decision: Decision) -> str | None:
        """Who was there first with a volume that this would bring elsewhere."""
        nodes = {placement.node_id for placement in decision.placements}
        unplaced = False
        for mount in self._mounts.get(decision.workload.id, ()):
            node_id, node = self._placed.get(mount.volume_id, (mount.node_id, mount.node))
            if mount.shared:
                continue
            if node is not None and nodes != {node_id}:
                return f"volume {mount.name} is on node {node}"
            unplaced = unplaced or node is None
        return "all that mount a new volume go to one node" if unplaced and len(nodes) > 1 else None

    def brought(self, decision: Decision) -> int:
        """How many bytes of volumes the decision brings to its node."""
        return sum(mount.size for mount in self._coming(decision))

    def take(self, decision: Decision) -> None:
        """Count in a decision that will be committed."""
        for mount in self._coming(decision):
            first = decision.placements[0]
            self._placed[mount.volume_id] = (first.node_id, first.node_name)

    def _coming(self, decision: Decision) -> list[Mounted]:
        own = self._mounts.get(decision.workload.id, ())
        return [mount for mount in own if mount.is_unplaced and mount.volume_id not in self._placed]

    async def write(self, connection: AsyncConnection, writes: sets.Writes, journal: Journal) -> None:
        """Give the volumes their nodes and count them there; others that wait for them are read again."""
        if not self._placed:
            return
        sizes = {mount.volume_id: mount.size for own in self._mounts.values() for mount in own}
        bytes_on: dict[UUID, int] = defaultdict(int)
        for volume_id, (node_id, _) in self._placed.items():
            bytes_on[node_id] += sizes[volume_id]
        rows = sorted((volume_id, *place) for volume_id, place in self._placed.items())
        writes.add(_PLACE, rows, expected=len(rows))
        writes.add(volumes.COUNT_ON_NODES, sorted(bytes_on.items()), expected=len(bytes_on))
        events.tell(writes, await volumes.news_of(connection, self._placed), journal.now, journal.term)


def brings_volumes(decision: Decision) -> bool:
    return decision.workload.constraints.volume_bytes > 0
