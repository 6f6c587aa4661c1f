"""The volumes that a request names: those of its project, in its pool, and where one node has them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mooring.intake.circumstances import Circumstances
from mooring.model.access import not_there
from mooring.model.containers import TaskTemplate, VolumeKind
from mooring.model.errors import InvalidInput
from mooring.store.mounts import Mounted
from mooring.store.pools import Pool
from mooring.store.volumes import Volume


def volumes_of(template: TaskTemplate, circumstances: Circumstances) -> list[Volume]:
    """What the names mean that the tasks mount."""
    found: list[Volume] = []
    for named in template.volumes:
        if named.kind is VolumeKind.NAMED:
            volume = circumstances.volumes.get(named.name)
            if volume is None:
                raise not_there(f"volume {named.name!r} in this project; `mooring volume create` makes one")
            found.append(volume)
    return found


def check_settled(mounts: Iterable[Mounted]) -> None:
    """InvalidInput where work inside a timeslot would bring a volume to its node: the timeslot keeps no room for it."""
    unplaced = next((mount.name for mount in mounts if mount.is_unplaced), None)
    if unplaced is not None:
        raise InvalidInput(
            f"volume {unplaced!r} is on no node yet, and a timeslot keeps no room for it: mount it once outside of one",
            code="volume-unplaced",
            details={"volume": unplaced},
        )


def check_reach(volumes: Sequence[Volume], pool: Pool) -> None:
    """InvalidInput where no node of the pool could have all of them."""
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
            f"one task can mount them only where all of them are: {where}",
            code="volumes-apart",
            details={"volumes": {volume.name: volume.node for volume in placed}},
        )
