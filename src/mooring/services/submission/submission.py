"""Submission of workloads, alone, in batches and with a lab's timeslot; scaling, extension and removal.

A submission goes: load its context, translate the request (`translation`), ask the hooks, write (`group_commit`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from mooring.clock import now
from mooring.concurrency.workers import off_loop
from mooring.mirror.validators import installed_validators
from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.names import shown
from mooring.model.reasons import Reason
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.arrays import Array, select_tasks
from mooring.model.workloads.workload import Kind
from mooring.scheduling.admission import Validator
from mooring.security.encryption import SecretBox
from mooring.services.admin_recording import record
from mooring.services.bookings.labs import as_lab
from mooring.services.deployments.comparison import compare_workload
from mooring.services.deployments.scaling import check_scale_up
from mooring.services.submission.admission import Rules
from mooring.services.submission.batch import hash_of, read_batch, translate_batch
from mooring.services.submission.context_loader import ContextLoader, policy_for
from mooring.services.submission.dependencies import resolved
from mooring.services.submission.group_commit import GroupCommit, Submission
from mooring.services.submission.hooks import Hooks
from mooring.services.submission.pending_tasks import PendingTasks
from mooring.services.submission.rules import max_run_seconds, too_long
from mooring.services.submission.schedule_options import extended
from mooring.services.submission.submission_context import of_project
from mooring.services.submission.translation import translate
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.commit.status_changes import Applied
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import pools
from mooring.store.views import workloads as views
from mooring.store.views.workloads import WorkloadRow
from mooring.store.workloads import rollouts, stopping, time_limits
from mooring.store.workloads.idempotency import Key
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.wire.fields import Answer
from mooring.wire.workloads.batches import BatchAccepted
from mooring.wire.workloads.sessions import ExtendRequest
from mooring.wire.workloads.timeslots import LabAccepted, LabRequest
from mooring.wire.workloads.workloads import Difference, WorkloadAccepted, WorkloadRequest

A = TypeVar("A", bound=Answer)


class SubmissionService:
    """Accepts work from every API. `submit` returns when the workload is durable."""

    def __init__(
        self,
        database: Database,
        hooks: Hooks | None = None,
        validators: Sequence[Validator] = (),
        secret_box: SecretBox | None = None,
        configuration: ConfigurationVersion | None = None,
    ) -> None:
        """The installed hooks and validators are used unless others are given; with `secret_box`, secrets are decrypted
        to check that a task can have them. `configuration`: its version, without which less is cached."""
        self._database = database
        self._hooks = Hooks.discovered() if hooks is None else hooks
        self._context_loader = ContextLoader(database, configuration)
        self._pending_tasks = PendingTasks()
        self._group_commit = GroupCommit(
            database,
            self._hooks,
            validators or installed_validators(),
            self._pending_tasks,
            secret_box,
            Rules(configuration),
        )

    async def submit(
        self,
        principal: Principal,
        request: WorkloadRequest,
        *,
        key: str | None = None,
        before_commit: Callable[[], Awaitable[None]] | None = None,
    ) -> WorkloadAccepted:
        """Submit one workload. A request repeated with the same key gets the same answer and changes nothing.

        `before_commit` is called when nothing is left to do but to wait for the commit.
        """
        context = of_project(await self._context_loader.load(principal, [request]), request.project)
        new, pool = translate(request, context)
        new = resolved(new, request.dependencies, context.known)
        accepted = WorkloadAccepted(
            id=new.id,
            name=new.name,
            status=WorkloadStatus.PENDING,
            pool=pool.name,
            simulated=pool.simulated,
            message=f"Accepted into pool {pool.name!r}.{simulation_note(request, pool.simulated)}",
        )
        digest = hash_of(request.model_dump(mode="json", exclude_unset=True)) if key else ""
        answer = _accepted_unless_refused(accepted)
        if before_commit is not None:
            await before_commit()
        return await self._write([new], answer, WorkloadAccepted.model_validate, principal, key, digest)

    async def submit_batch(
        self, principal: Principal, requests: Sequence[object], *, key: str | None = None
    ) -> BatchAccepted:
        """Submit many workloads in one transaction; each is accepted or refused by itself."""
        read = await off_loop(read_batch, requests)
        valid = [request for request in read if isinstance(request, WorkloadRequest)]
        batch = await off_loop(translate_batch, read, await self._context_loader.load(principal, valid))
        digest = await off_loop(hash_of, {"batch": requests}) if key else ""
        return await self._write(batch.new, batch.answer, BatchAccepted.model_validate, principal, key, digest)

    async def submit_lab(self, principal: Principal, request: LabRequest, *, key: str | None = None) -> LabAccepted:
        """Submit a workload and its timeslot, written together or not at all."""
        found = await self._context_loader.load(principal, [request.workload])
        new, pool = translate(request.workload, of_project(found, request.workload.project))
        lab = as_lab(request, new, pool, now())
        assert lab.timeslot is not None
        accepted = LabAccepted(
            timeslot=lab.timeslot.id,
            workload=lab.id,
            name=lab.name,
            pool=pool.name,
            message=f"Requested a lab in pool {pool.name!r}; it is confirmed or declined shortly."
            f"{simulation_note(request.workload, pool.simulated)}",
        )
        digest = hash_of(request.model_dump(mode="json", exclude_unset=True)) if key else ""
        answer = _accepted_unless_refused(accepted)
        return await self._write([lab], answer, LabAccepted.model_validate, principal, key, digest)

    async def _write(
        self,
        new: Sequence[NewWorkload],
        answer: Callable[[Mapping[UUID, MooringError]], A],
        recall: Callable[[Any], A],
        principal: Principal,
        key: str | None,
        request_hash: str,
    ) -> A:
        refused = await self._hooks.refused(new)
        idempotency_key = Key(principal.user_id, key) if key else None
        return await self._group_commit.write(Submission(new, refused, answer, recall, idempotency_key, request_hash))

    async def compare(self, principal: Principal, present: WorkloadRow, request: WorkloadRequest) -> list[Difference]:
        """Return the fields in which a workload differs from a request; raise as `submit` would for the request."""
        found = await self._context_loader.load(principal, [request], read_only=True)
        wanted, _ = translate(request, of_project(found, request.project))
        return compare_workload(present, request, wanted)

    async def scale(self, principal: Principal, workload_id: UUID, replicas: int) -> None:
        """Change the number of replicas of a deployment."""

        async def work(connection: Connection) -> Applied:
            workload = (await lock_workloads(connection, [workload_id]))[workload_id]
            if workload.kind != Kind.DEPLOYMENT:
                raise Conflict(f"{workload.name!r} is a {workload.kind}; only deployments can be scaled")
            if workload.ended_at is not None or workload.stopping:
                state = "removed" if workload.removed_at is not None else workload.status.lower()
                raise Conflict(f"deployment {workload.name!r} is {state} and cannot be scaled", code="already-ended")
            if workload.replicas == replicas:
                return Applied()
            before = workload.replicas
            await check_scale_up(connection, self._pending_tasks, workload, before=before, replicas=replicas)
            await record(connection, principal, workload, "scale", {"replicas": before}, {"replicas": replicas})
            return await rollouts.scale(connection, workload_id, replicas, actor=str(principal.user_id), now=now())

        log_applied(await self._database.write(work))

    async def extend(self, principal: Principal, workload_id: UUID, asked: ExtendRequest) -> None:
        """Change a session's time limit, up to the maximum of its pool and policy; an admin may exceed it."""
        if (asked.time is None) == (asked.by is None):
            raise InvalidInput("give either the new time limit (time) or the extension (by)")

        async def work(connection: Connection) -> None:
            workload = (await lock_workloads(connection, [workload_id]))[workload_id]
            if workload.kind != Kind.SESSION:
                raise Conflict(f"{workload.name!r} is a {workload.kind}, which has no time limit", code="no-time-limit")
            if workload.ended_at is not None or workload.stopping:
                raise Conflict(f"{workload.name!r} is {workload.status.lower()}", code="already-ended")
            row = await views.by_id(connection, workload_id)
            assert row is not None
            limit = extended(row.name, row.time_limit_seconds, asked)
            pool = await pools.by_name(connection, row.pool)
            assert pool is not None
            longest = max_run_seconds(pool.policy, await policy_for(connection, workload.access_key))
            if not principal.is_admin and (refused := too_long(limit, longest)) is not None:
                raise refused
            if limit != row.time_limit_seconds:
                before, after = {"time": row.time_limit_seconds}, {"time": limit}
                await record(connection, principal, workload, "extend", before, after)
                await time_limits.change(connection, workload, limit, actor=str(principal.user_id), now=now())

        await self._database.write(work)

    async def remove(self, principal: Principal, workload_id: UUID, *, keep: bool = False, force: bool = False) -> None:
        """Stop the tasks and, unless `keep`, take the workload off lists; its history stays.

        `force`: do not wait for nodes that do not answer. Their tasks occupy them until they do.
        """
        what, code = ("Cancelled", "cancelled") if keep else ("Removed", "removed")
        reason = Reason(code, f"{what} by {shown(principal.username)}", "user", "never")

        async def work(connection: Connection) -> Applied:
            workload = (await lock_workloads(connection, [workload_id]))[workload_id]
            before, after = {"status": workload.status.value}, {"force": force}
            await record(connection, principal, workload, "cancel" if keep else "remove", before, after)
            return await stopping.stop(
                connection,
                workload_id,
                actor=str(principal.user_id),
                now=now(),
                remove=not keep,
                reason=reason,
                force=force,
            )

        log_applied(await self._database.write(work))

    async def cancel_tasks(self, principal: Principal, workload_id: UUID, indexes: str, *, force: bool = False) -> None:
        """Cancel the tasks of an array that a list of its indexes (`3,5-9`) selects; `force` as for `remove`."""
        reason = Reason("cancelled", f"Cancelled by {shown(principal.username)}", "user", "never")

        async def work(connection: Connection) -> Applied:
            workload = (await lock_workloads(connection, [workload_id]))[workload_id]
            row = await views.by_id(connection, workload_id)
            assert row is not None
            if row.array is None:
                raise Conflict(f"{row.name!r} is not an array, so it has no indexes", code="not-an-array")
            selected = select_tasks(Array(**row.array, count=row.replicas), indexes, row.name)
            before, after = {"status": workload.status.value}, {"index": indexes, "force": force}
            await record(connection, principal, workload, "cancel", before, after)
            return await stopping.cancel_tasks(
                connection,
                workload_id,
                selected,
                actor=str(principal.user_id),
                now=now(),
                reason=reason,
                force=force,
            )

        log_applied(await self._database.write(work))


def simulation_note(request: WorkloadRequest, simulated: bool) -> str:
    """Return the sentence for work that is simulated although it names neither a pool nor a booking."""
    if not simulated or request.pool is not None or request.booking is not None:
        return ""
    return " It runs on simulated nodes, since the cluster has no others: nothing is executed."


def _accepted_unless_refused(accepted: A) -> Callable[[Mapping[UUID, MooringError]], A]:
    """The answer to a request of one workload: raise the error that refuses it, if any."""

    def answer(refused: Mapping[UUID, MooringError]) -> A:
        for error in refused.values():
            raise error
        return accepted

    return answer
