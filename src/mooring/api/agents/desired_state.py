"""The desired state of a node: the tasks to run and to end and the volumes to remove, sent when it changes."""

from __future__ import annotations

import msgspec

from mooring.api.agents import task_secrets
from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.orders import desired_task
from mooring.api.agents.reports import fail_unstarted
from mooring.api.agents.secret_decryption import SecretDecryption
from mooring.store.control import leadership
from mooring.store.core.engine import (
    Database,
)
from mooring.store.nodes import (
    desired_tasks,
    quarantine,
)
from mooring.store.workloads import mounts, volumes
from mooring.wire.agents.agent_protocol import Desired
from mooring.wire.agents.desired_tasks import RemovedVolume


class DesiredStateSender:
    def __init__(self, database: Database, decryption: SecretDecryption) -> None:
        self._database = database
        self._decryption = decryption

    async def send(self, session: AgentSession) -> None:
        """Send the desired state of the session's node unless its agent has it already."""
        async with self._database.read() as connection:
            term = await leadership.current_term(connection)
            rows = await desired_tasks.desired(connection, session.node_id)
            end = await quarantine.to_end(connection, session.node_id, session.strays)
            gangs = await desired_tasks.gang_tasks(connection, rows)
            mounted = await mounts.of_workloads(connection, {row.workload_id for row in rows})
            tasks = [
                desired_task(row, gangs.get(row.workload_id, ()), mounted.get(row.workload_id, ())) for row in rows
            ]
            removed = await volumes.to_delete(connection, session.node_id)
            sealed = await task_secrets.read(connection, tasks)
        going = [RemovedVolume(volume_id=row.id, project_id=row.project_id, path=row.folder) for row in removed]
        desired = Desired(term=term, tasks=tasks, end=end, removed_volumes=going)
        if (desired, sealed) == (session.last_desired, session.last_secrets):
            return
        whole, refused = self._decryption.decrypt(session, tasks, sealed)
        if refused:
            await fail_unstarted(self._database, session, refused)
        await session.send(msgspec.structs.replace(desired, tasks=whole))
        session.last_desired, session.last_secrets = desired, sealed
