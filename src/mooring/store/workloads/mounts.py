"""Mounts: the volumes of workloads, the placement constraints they impose, and the placement of new volumes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.decisions import Decision
from mooring.model.workloads.constraints import Constraints, MountedVolume
from mooring.model.workloads.workload import Workload
from mooring.store.commit.history import ChangeLog
from mooring.store.control import events
from mooring.store.core import batch_sql
from mooring.store.tables import pools, workload_volumes
from mooring.store.tables import volumes as volume_rows
from mooring.store.workloads import volumes
from mooring.store.workloads.volumes import SHARED_FOLDER

_BIND_TO_NODE = batch_sql.Statement(
    """
    UPDATE volumes AS v SET node_id = i.node_id, node_name = i.node_name FROM {rows} i
    WHERE v.id = i.id AND v.node_id IS NULL AND v.node_name IS NULL
    """,
    {"id": "uuid", "node_id": "uuid", "node_name": "text"},
)


class Mounted(NamedTuple):
    """Volume as placement sees it."""

    volume_id: UUID
    name: str
    size: int
    shared: bool
    node_id: UUID | None
    node: str | None
    """Name of the node, even after the node was removed."""
    folder: str | None = None
    """Folder with the shared volumes on the nodes of the pool; only used for a shared volume."""

    @classmethod
    def of(cls, volume: volumes.Volume) -> Mounted:
        return cls(volume.id, volume.name, volume.size, volume.shared, volume.node_id, volume.node)

    @property
    def is_unplaced(self) -> bool:
        return not self.shared and self.node is None


async def lock_mountable(connection: AsyncConnection, ids: Collection[UUID]) -> set[UUID]:
    """Return those of these volumes that can be mounted, locked against removal until the transaction ends."""
    if not ids:
        return set()
    rows = await connection.execute(
        select(volume_rows.c.id)
        .where(batch_sql.among(volume_rows.c.id, ids), volume_rows.c.removed_at.is_(None))
        .order_by(volume_rows.c.id)
        .with_for_update(read=True)
    )
    return set(rows.scalars())


async def of_workloads(
    connection: AsyncConnection, ids: Collection[UUID], *, lock: bool = False
) -> dict[UUID, list[Mounted]]:
    """Return the mounted volumes by workload. `lock` locks the volumes until the transaction ends."""
    if not ids:
        return {}
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
        .where(batch_sql.among(workload_volumes.c.workload_id))
        .order_by(volume_rows.c.id)
    )


def followed(workload: Workload, mounted: Iterable[Mounted]) -> Workload:
    """Return the workload constrained by its volumes.

    While one of them has no node yet, only the first tasks are placed: one, or all that must start together. They all
    go to one node, which also needs capacity for the volume.
    """
    own = [mount for mount in mounted if not mount.shared]
    if not own:
        return workload
    constraints = bound(workload.constraints, own)
    coming = sum(mount.size for mount in own if mount.is_unplaced)
    if not coming:
        return replace(workload, constraints=constraints)
    first = _first(workload)
    # The first tasks bring the volume once: each requests an equal part of its size, rounded up to whole bytes.
    constraints = replace(constraints, volume_bytes=-(-coming // first))
    return replace(
        workload,
        constraints=constraints,
        tasks=workload.tasks[:first],
        single_node=workload.single_node or first > 1,
    )


def bound(constraints: Constraints, mounted: Iterable[Mounted]) -> Constraints:
    """Return the constraints with the volumes that exist on one node each."""
    own = (MountedVolume(each.name, each.node_id, each.node) for each in mounted if not each.shared)
    return replace(constraints, volumes=tuple(own))


def _first(workload: Workload) -> int:
    """Return the number of tasks to place first."""
    waiting = len(workload.tasks)
    if workload.gang:
        return waiting
    there = sum(workload.occupied.values())
    return max(1, min(waiting, (workload.min_tasks or 1) - there))


@dataclass(slots=True)
class VolumeGuard:
    """Volumes that the decisions of a batch place on nodes: their locked state and the batch's placements so far."""

    _mounts: Mapping[UUID, Sequence[Mounted]] = field(default_factory=dict)
    _placed: dict[UUID, tuple[UUID, str]] = field(default_factory=dict)
    """Nodes that the batch assigns to volumes."""

    @classmethod
    async def read(cls, connection: AsyncConnection, decisions: Sequence[Decision]) -> VolumeGuard:
        """Read and lock the volumes; the caller has locked the nodes of the decisions."""
        ids = [decision.workload.id for decision in decisions if brings_volumes(decision)]
        if not ids:
            return cls()
        return cls(await of_workloads(connection, ids, lock=True))

    def conflict(self, decision: Decision) -> str | None:
        """Return the conflict of the decision with the node of a volume, or None."""
        nodes = {placement.node_id for placement in decision.placements}
        unplaced = False
        for mount in self._mounts.get(decision.workload.id, ()):
            node_id, node = self._placed.get(mount.volume_id, (mount.node_id, mount.node))
            if mount.shared:
                continue
            if node is not None and nodes != {node_id}:
                return f"volume {mount.name} is on node {node}"
            unplaced = unplaced or node is None
        return "all tasks that mount a new volume go to one node" if unplaced and len(nodes) > 1 else None

    def brought(self, decision: Decision) -> int:
        """Return the bytes of volumes that the decision places on its node."""
        return sum(mount.size for mount in self._coming(decision))

    def take(self, decision: Decision) -> None:
        """Count a decision that will be committed."""
        for mount in self._coming(decision):
            first = decision.placements[0]
            self._placed[mount.volume_id] = (first.node_id, first.node_name)

    def _coming(self, decision: Decision) -> list[Mounted]:
        own = self._mounts.get(decision.workload.id, ())
        return [mount for mount in own if mount.is_unplaced and mount.volume_id not in self._placed]

    async def write(self, connection: AsyncConnection, writes: batch_sql.Writes, log: ChangeLog) -> None:
        """Write the nodes of the volumes and their sizes there; events reload other workloads that mount them."""
        if not self._placed:
            return
        sizes = {mount.volume_id: mount.size for own in self._mounts.values() for mount in own}
        bytes_on: dict[UUID, int] = defaultdict(int)
        for volume_id, (node_id, _) in self._placed.items():
            bytes_on[node_id] += sizes[volume_id]
        rows = sorted((volume_id, *bound) for volume_id, bound in self._placed.items())
        writes.add(_BIND_TO_NODE, rows, expected=len(rows))
        writes.add(volumes.COUNT_ON_NODES, sorted(bytes_on.items()), expected=len(bytes_on))
        events.add(writes, await volumes.mount_events(connection, self._placed), log.now, log.term)


def brings_volumes(decision: Decision) -> bool:
    return decision.workload.constraints.volume_bytes > 0
