"""Refusal of work whose secrets are missing, too large or cannot be decrypted."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from mooring.model.errors import InvalidInput, MooringError
from mooring.model.workloads.containers import TaskTemplate
from mooring.security.encryption import OVERHEAD_BYTES, SecretBox
from mooring.store.core.engine import Connection
from mooring.store.tenancy import secrets
from mooring.store.tenancy.sealed_rows import SealedRow

MAX_TASK_BYTES = 256 * 1024
"""Maximum size of all secrets of a task: one message to a node may contain many tasks."""


async def refusals(
    connection: Connection, work: Iterable[tuple[UUID, UUID, TaskTemplate]], secret_box: SecretBox | None = None
) -> dict[UUID, MooringError]:
    """Return the errors by id of work (id, project, template). With keys, each secret is decrypted."""
    needing = [(id, project_id, names) for id, project_id, template in work if (names := _named(template))]
    wanted: dict[UUID, set[str]] = {}
    for _, project_id, names in needing:
        wanted.setdefault(project_id, set()).update(names)
    known = await secrets.named(connection, wanted)
    found: dict[UUID, MooringError] = {}
    for id, project_id, names in needing:
        own = {name: known.get((project_id, name)) for name in sorted(names)}
        if (problem := _problem(own, secret_box)) is not None:
            found[id] = problem
    return found


def _problem(own: dict[str, SealedRow | None], secret_box: SecretBox | None) -> MooringError | None:
    stored = {name: each for name, each in own.items() if each is not None}
    missing = [name for name in own if name not in stored]
    if missing:
        return InvalidInput(
            f"its project has no secret {', '.join(map(repr, missing))}; set it with `mooring secret set {missing[0]}`",
            code="no-such-secret",
            details={"missing": missing},
        )
    size = sum(len(each.sealed.data) - OVERHEAD_BYTES for each in stored.values())
    if size > MAX_TASK_BYTES:
        return InvalidInput(
            f"the secrets have {size:,} bytes in total, and a task can have {MAX_TASK_BYTES:,}",
            code="secrets-too-large",
            details={"requested": size, "limit": MAX_TASK_BYTES},
        )
    if secret_box is None:
        return None
    for name, each in stored.items():
        try:
            each.open(secret_box)
        except MooringError as problem:
            return InvalidInput(f"secret {name!r} cannot be decrypted: {problem.message}", code=problem.code)
    return None


def _named(template: TaskTemplate) -> set[str]:
    containers = (*template.init_containers, *template.containers)
    return {name for container in containers for name in container.secrets.values()}
