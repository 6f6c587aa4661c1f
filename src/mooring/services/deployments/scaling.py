"""The limits on the replicas of a deployment that is scaled up by any request."""

from __future__ import annotations

from mooring.services.submission.context_loader import policy_for
from mooring.services.submission.pending_tasks import Owner, PendingTasks
from mooring.services.submission.rules import too_many_tasks
from mooring.store.core.engine import Connection


async def check_scale_up(
    connection: Connection, pending_tasks: PendingTasks, owner: Owner, *, before: int, replicas: int
) -> None:
    """Raise where the owner's policies do not allow this many replicas. Fewer than before are always allowed."""
    if replicas <= before:
        return
    if (refused := too_many_tasks(replicas, await policy_for(connection, owner.access_key))) is not None:
        raise refused
    await pending_tasks.check(connection, owner, replicas - before)
