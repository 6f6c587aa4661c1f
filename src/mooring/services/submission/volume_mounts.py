"""Volumes of a request: they belong to its project and its pool, and one node can have them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mooring.model.errors import InvalidInput
from mooring.model.tenancy.access import not_there
from mooring.model.workloads.containers import TaskTemplate, VolumeKind
from mooring.services.submission.submission_context import SubmissionContext
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.mounts import Mounted
from mooring.store.workloads.volumes import Volume


def volumes_of(template: TaskTemplate, context: SubmissionContext) -> list[Volume]:
    """Return the project volumes that the tasks mount."""
    found: list[Volume] = []
    for named in template.volumes:
        if named.kind is VolumeKind.NAMED:
            volume = context.volumes.get(named.name)
            if volume is None:
                raise not_there(f"volume {named.name!r} in this project; `mooring volume create` creates one")
            found.append(volume)
    return found


def check_settled(mounts: Iterable[Mounted]) -> None:
    """Raise InvalidInput for a volume without a node in a timeslot, which reserves no storage for it."""
    unplaced = next((mount.name for mount in mounts if mount.is_unplaced), None)
    if unplaced is not None:
        raise InvalidInput(
            f"volume {unplaced!r} has no node yet, and a booking reserves no storage: mount it once outside of one",
            code="volume-unplaced",
            details={"volume": unplaced},
        )


def check_available(volumes: Sequence[Volume], pool: Pool) -> None:
    """Raise InvalidInput if no node of the pool could have all of them."""
    for volume in volumes:
        if volume.pool_id != pool.id:
            raise InvalidInput(
                f"volume {volume.name!r} is in pool {volume.pool!r}, and this runs in pool {pool.name!r}",
                code="volume-in-other-pool",
                details={"volume": volume.name, "pool": volume.pool},
            )
    placed = [volume for volume in volumes if not volume.shared and volume.node is not None]
    if len({(volume.node_id, volume.node) for volume in placed}) > 1:
        where = ", ".join(f"{volume.name} on node {volume.node}" for volume in placed)
        raise InvalidInput(
            f"the volumes are on different nodes, and one task cannot mount them all: {where}",
            code="volumes-apart",
            details={"volumes": {volume.name: volume.node for volume in placed}},
        )
