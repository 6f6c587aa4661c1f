"""What tasks are to be told in confidence when they start, as it is kept: sealed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from mooring.model.errors import InvalidInput
from mooring.model.images import parse_image
from mooring.store import registry_logins, secrets
from mooring.store.engine import Connection
from mooring.store.sealed import Kept
from mooring.wire.agent import DesiredTask


@dataclass(frozen=True, slots=True)
class Confidence:
    """What one task is to be told, still sealed; nothing, if its project has no login for its images."""

    project_id: UUID
    secrets: Mapping[str, Kept | None]
    """None: there is no such secret."""
    logins: Sequence[Kept]


Confidences = Mapping[UUID, Confidence]
"""By task; those that could need nothing secret are not among them."""


async def read(connection: Connection, tasks: Iterable[DesiredTask]) -> Confidences:
    """What those of the tasks need that have not started."""
    unstarted = [task for task in tasks if task.action != "stop" and not task.started]
    named: dict[UUID, set[str]] = {}
    registries: dict[UUID, set[str]] = {}
    for task in unstarted:
        named.setdefault(task.owner.project_id, set()).update(_secrets(task))
        registries.setdefault(task.owner.project_id, set()).update(_registries(task))
    known = await secrets.named(connection, named)
    logins = await registry_logins.named(connection, registries)
    found: dict[UUID, Confidence] = {}
    for task in unstarted:
        project, own, places = task.owner.project_id, sorted(_secrets(task)), sorted(_registries(task))
        if own or places:
            found[task.task_id] = Confidence(
                project,
                {name: known.get((project, name)) for name in own},
                [logins[project, place] for place in places if (project, place) in logins],
            )
    return found


def _secrets(task: DesiredTask) -> set[str]:
    return {name for container in (*task.init_containers, *task.containers) for name in container.secrets.values()}


def _registries(task: DesiredTask) -> set[str]:
    found: set[str] = set()
    for container in (*task.init_containers, *task.containers):
        if container.image is not None:
            # One that was handed in before names were checked: its node says what is wrong with it.
            with suppress(InvalidInput):
                found.add(parse_image(container.image).registry)
    return found
