"""Work that names secrets is refused where it is known that it could not be told them."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from mooring.model.containers import TaskTemplate
from mooring.model.errors import InvalidInput, MooringError
from mooring.sealing import OVERHEAD_BYTES, Sealing
from mooring.store import secrets
from mooring.store.engine import Connection
from mooring.store.sealed import Kept

MAX_TASK_BYTES = 256 * 1024
"""Of all secrets of a task: its node may be told of many tasks in one message."""


async def refusals(
    connection: Connection, work: Iterable[tuple[UUID, UUID, TaskTemplate]], sealing: Sealing | None = None
) -> dict[UUID, MooringError]:
    """Of work, by id, project and template: what stands in its way. With keys each secret is tried."""
    needing = [(id, project_id, names) for id, project_id, template in work if (names := _named(template))]
    wanted: dict[UUID, set[str]] = {}
    for _, project_id, names in needing:
        wanted.setdefault(project_id, set()).update(names)
    known = await secrets.named(connection, wanted)
    found: dict[UUID, MooringError] = {}
    for id, project_id, names in needing:
        own = {name: known.get((project_id, name)) for name in sorted(names)}
        if (problem := _problem(own, sealing)) is not None:
            found[id] = problem
    return found


def _problem(own: dict[str, Kept | None], sealing: Sealing | None) -> MooringError | None:
    kept = {name: each for name, each in own.items() if each is not None}
    missing = [name for name in own if name not in kept]
    if missing:
        return InvalidInput(
            f"its project has no secret {', '.join(map(repr, missing))}; set it with `mooring secret set {missing[0]}`",
            code="no-such-secret",
            details={"missing": missing},
        )
    size = sum(len(each.sealed.data) - OVERHEAD_BYTES for each in kept.values())
    if size > MAX_TASK_BYTES:
        return InvalidInput(
            f"its secrets have {size:,} bytes together, and a task can have {MAX_TASK_BYTES:,}",
            code="secrets-too-large",
            details={"requested": size, "limit": MAX_TASK_BYTES},
        )
    if sealing is None:
        return None
    for name, each in kept.items():
        try:
            each.open(sealing)
        except MooringError as problem:
            return InvalidInput(f"secret {name!r} cannot be opened: {problem.message}", code=problem.code)
    return None


def _named(template: TaskTemplate) -> set[str]:
    containers = (*template.init_containers, *template.containers)
    return {name for container in containers for name in container.secrets.values()}
