"""Secrets and registry logins that tasks need when they start, still encrypted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from mooring.model.errors import InvalidInput
from mooring.model.workloads.images import parse_image
from mooring.store.core.engine import Connection
from mooring.store.tenancy import registry_logins, secrets
from mooring.store.tenancy.sealed_rows import SealedRow
from mooring.wire.agents.desired_tasks import DesiredTask


@dataclass(frozen=True, slots=True)
class TaskSecrets:
    """Encrypted secrets and logins of one task; empty if its project has no login for its images."""

    project_id: UUID
    secrets: Mapping[str, SealedRow | None]
    """None: the project has no such secret."""
    logins: Sequence[SealedRow]


SecretsByTask = Mapping[UUID, TaskSecrets]
"""By task, without those that need no secrets."""


async def read(connection: Connection, tasks: Iterable[DesiredTask]) -> SecretsByTask:
    """Return the secrets of those tasks that have not started."""
    unstarted = [task for task in tasks if task.action != "stop" and not task.started]
    named: dict[UUID, set[str]] = {}
    registries: dict[UUID, set[str]] = {}
    for task in unstarted:
        named.setdefault(task.owner.project_id, set()).update(_secrets(task))
        registries.setdefault(task.owner.project_id, set()).update(_registries(task))
    known = await secrets.named(connection, named)
    logins = await registry_logins.named(connection, registries)
    found: dict[UUID, TaskSecrets] = {}
    for task in unstarted:
        project, own, used = task.owner.project_id, sorted(_secrets(task)), sorted(_registries(task))
        if own or used:
            found[task.task_id] = TaskSecrets(
                project,
                {name: known.get((project, name)) for name in own},
                [logins[project, registry] for registry in used if (project, registry) in logins],
            )
    return found


def _secrets(task: DesiredTask) -> set[str]:
    return {name for container in (*task.init_containers, *task.containers) for name in container.secrets.values()}


def _registries(task: DesiredTask) -> set[str]:
    found: set[str] = set()
    for container in (*task.init_containers, *task.containers):
        if container.image is not None:
            # One that was handed in before names were checked: its node reports the problem.
            with suppress(InvalidInput):
                found.add(parse_image(container.image).registry)
    return found
