"""Submissions, scaling and removal. Submissions that arrive together are written together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import UUID

from mooring.clock import now
from mooring.intake.translation import translate
from mooring.model.errors import Conflict
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.names import shown
from mooring.model.reasons import Reason
from mooring.model.tenants import Principal
from mooring.model.workloads import Kind
from mooring.store import pools, workloads
from mooring.store.changes import Applied
from mooring.store.engine import Connection, Database, is_taken
from mooring.store.loading import lock_workloads
from mooring.store.narration import narrate
from mooring.store.workloads import NewWorkload
from mooring.wire.api import WorkloadAccepted, WorkloadRequest

_MOST_AT_ONCE = 200


@dataclass(slots=True)
class _Submission:
    new: NewWorkload
    written: asyncio.Future[None]


class Intake:
    """The one way in. `submit` returns when the workload is durable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: list[_Submission] = []
        self._writing = False
        self._pools: list[pools.Pool] = []
        self._pools_read_at = 0.0
        self._writers: set[asyncio.Task[None]] = set()

    async def submit(self, principal: Principal, request: WorkloadRequest) -> WorkloadAccepted:
        new, pool = translate(request, principal, await self._known_pools())
        submission = _Submission(new, asyncio.get_running_loop().create_future())
        self._queue.append(submission)
        if not self._writing:
            self._writing = True
            writer = asyncio.create_task(self._write_queue())
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        await submission.written
        if pool.simulated and request.pool is None:
            message = (
                f"No pool of real nodes offers {new.template.runtime} tasks yet, so this runs on simulated nodes "
                f"(pool {pool.name!r}): nothing is really started."
            )
        else:
            message = f"Accepted into pool {pool.name!r}."
        return WorkloadAccepted(
            id=new.id,
            name=new.name,
            status=WorkloadStatus.PENDING,
            pool=pool.name,
            simulated=pool.simulated,
            message=message,
        )

    async def scale(self, principal: Principal, workload_id: UUID, replicas: int) -> None:
        async def work(connection: Connection) -> Applied:
            workload = (await lock_workloads(connection, [workload_id]))[workload_id]
            if workload.kind != Kind.DEPLOYMENT:
                raise Conflict(f"{workload.name!r} is a {workload.kind}; only deployments can be scaled")
            if workload.ended_at is not None or workload.stopping:
                state = "removed" if workload.removed_at is not None else workload.status.lower()
                raise Conflict(f"deployment {workload.name!r} is {state} and cannot be scaled", code="already-ended")
            if workload.replicas == replicas:
                return Applied()
            return await workloads.scale(connection, workload_id, replicas, actor=str(principal.user_id), now=now())

        narrate(await self._database.write(work))

    async def remove(self, principal: Principal, workload_id: UUID) -> None:
        """Stop what runs and hide the workload from lists; its history stays."""

        async def work(connection: Connection) -> Applied:
            return await workloads.stop(
                connection,
                workload_id,
                actor=str(principal.user_id),
                now=now(),
                remove=True,
                reason=Reason("removed", f"Removed by {shown(principal.username)}", "user", "never"),
            )

        narrate(await self._database.write(work))

    async def _write_queue(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue[:_MOST_AT_ONCE], self._queue[_MOST_AT_ONCE:]
                try:
                    await self._write(batch)
                except Exception as error:
                    if len(batch) == 1:
                        _settle(batch[0], error)
                        continue
                    # One bad row never blocks the rest.
                    for submission in batch:
                        try:
                            await self._write([submission])
                        except Exception as own_error:
                            _settle(submission, own_error)
        finally:
            self._writing = False

    async def _write(self, batch: list[_Submission]) -> None:
        async def work(connection: Connection) -> dict[UUID, Conflict]:
            refused: dict[UUID, Conflict] = {}
            taken = await workloads.names_in_use(connection, [s.new for s in batch])
            # Where the answer to an earlier try's commit was lost, its rows are there already.
            written = set(taken.values())
            accepted: list[NewWorkload] = []
            for new in (s.new for s in batch):
                key = (new.principal.user_id, new.name)
                holder = taken.setdefault(key, new.id)
                if holder != new.id:
                    refused[new.id] = name_taken(new)
                elif new.id not in written:
                    accepted.append(new)
            if accepted:
                await workloads.submit(connection, accepted, now())
            return refused

        refused = await self._database.write(work)
        for submission in batch:
            _settle(submission, refused.get(submission.new.id))

    async def _known_pools(self) -> list[pools.Pool]:
        """Pools change rarely: what was read within the last second is good enough to choose one."""
        time = asyncio.get_running_loop().time()
        if not self._pools or time - self._pools_read_at > 1.0:
            async with self._database.read() as connection:
                self._pools = await pools.all_pools(connection)
            self._pools_read_at = time
        return self._pools


def _settle(submission: _Submission, error: Exception | None) -> None:
    # The client may have gone away meanwhile; what was written stays written.
    if submission.written.done():
        return
    if error is None:
        submission.written.set_result(None)
    else:
        submission.written.set_exception(name_taken(submission.new) if is_taken(error) else error)


def name_taken(new: NewWorkload) -> Conflict:
    return Conflict(
        f"you have a workload {new.name!r} already; remove it or choose another name",
        code="name-taken",
        details={"name": new.name},
    )
