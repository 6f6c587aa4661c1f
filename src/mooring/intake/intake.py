"""Submissions, scaling and removal. Submissions that arrive together are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any, Generic, TypeVar
from uuid import UUID

from mooring.clock import now
from mooring.intake import secrets
from mooring.intake.admission import Gate, open_gate
from mooring.intake.batch import hash_of, name_taken, read_batch, translate_batch
from mooring.intake.booking_limits import check_limits
from mooring.intake.circumstances import Surroundings, of_project, policy_for
from mooring.intake.comparison import differences
from mooring.intake.dependencies import left_behind, resolved
from mooring.intake.hooks import Hooks
from mooring.intake.labs import as_lab
from mooring.intake.recording import record
from mooring.intake.repetition import recalled
from mooring.intake.rules import longest_time, too_long
from mooring.intake.terms import extended
from mooring.intake.translation import translate
from mooring.mirror.validators import installed_validators
from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.names import shown
from mooring.model.reasons import Reason
from mooring.model.tenants import Principal
from mooring.model.workloads import Kind
from mooring.scheduling.admission import Validator
from mooring.sealing import Sealing
from mooring.store import mounts, pools, rollouts, submissions, time_limits, timeslots, workloads
from mooring.store.changes import Applied
from mooring.store.engine import Connection, Database, is_taken
from mooring.store.loading import lock_workloads
from mooring.store.narration import narrate
from mooring.store.submissions import Answered, Key
from mooring.store.views import workloads as views
from mooring.store.views.workloads import WorkloadRow
from mooring.store.workloads import NewWorkload
from mooring.wire.api import BatchAccepted, Difference, WorkloadAccepted, WorkloadRequest
from mooring.wire.fields import Answer
from mooring.wire.sessions import ExtendRequest
from mooring.wire.timeslots import LabAccepted, LabRequest

_MOST_AT_ONCE = 1000
_TRIES = 3
"""How often another server may take the same name or key at the same moment."""

A = TypeVar("A", bound=Answer)


@dataclass(slots=True)
class _Submission(Generic[A]):
    """The workloads of one request, and who waits for what became of them."""

    new: Sequence[NewWorkload]
    answer: Callable[[Mapping[UUID, MooringError]], A]
    """The answer when some of them are refused; raises where nothing at all was accepted."""
    recall: Callable[[Any], A]
    """The answer that was given to the same request before."""
    refused: Mapping[UUID, MooringError]
    """What hooks would not have."""
    key: Key | None
    request_hash: str
    done: asyncio.Future[A]


@dataclass(frozen=True, slots=True)
class _Written:
    outcomes: list[Answer | MooringError]
    """What each submission is to be told."""
    accepted: list[UUID]


class Intake:
    """The one way in. `submit` returns when the workload is durable."""

    def __init__(
        self,
        database: Database,
        hooks: Hooks | None = None,
        validators: Sequence[Validator] = (),
        sealing: Sealing | None = None,
    ) -> None:
        """Without `hooks` and `validators` those that are installed are asked; with `sealing` secrets are tried."""
        self._database = database
        self._hooks = Hooks.discovered() if hooks is None else hooks
        self._validators = validators or installed_validators()
        self._sealing = sealing
        self._queue: list[_Submission[Any]] = []
        self._writing = False
        self._surroundings = Surroundings(database)
        self._writers: set[asyncio.Task[None]] = set()

    async def submit(
        self, principal: Principal, request: WorkloadRequest, *, key: str | None = None
    ) -> WorkloadAccepted:
        """With a key the same request again gets the same answer and changes nothing."""
        circumstances = of_project(await self._surroundings.of(principal, [request]), request.project)
        new, pool = translate(request, circumstances)
        new = resolved(new, request.dependencies, circumstances.known)

        def answer(refused: Mapping[UUID, MooringError]) -> WorkloadAccepted:
            if new.id in refused:
                raise refused[new.id]
            return WorkloadAccepted(
                id=new.id,
                name=new.name,
                status=WorkloadStatus.PENDING,
                pool=pool.name,
                simulated=pool.simulated,
                message=_message(request, new, pool),
            )

        digest = hash_of(request.model_dump(mode="json", exclude_unset=True)) if key else ""
        return await self._submit([new], answer, WorkloadAccepted.model_validate, principal, key, digest)

    async def submit_batch(
        self, principal: Principal, requests: Sequence[object], *, key: str | None = None
    ) -> BatchAccepted:
        """Workloads as they were sent, each accepted or refused by itself, all in one transaction."""
        read = read_batch(requests)
        meant = [request for request in read if isinstance(request, WorkloadRequest)]
        batch = translate_batch(read, await self._surroundings.of(principal, meant))
        digest = hash_of({"batch": requests}) if key else ""
        return await self._submit(batch.new, batch.answer, BatchAccepted.model_validate, principal, key, digest)

    async def submit_lab(self, principal: Principal, request: LabRequest, *, key: str | None = None) -> LabAccepted:
        """A workload and its timeslot, written together or not at all."""
        circumstances = of_project(await self._surroundings.of(principal, [request.workload]), request.workload.project)
        new, pool = translate(request.workload, circumstances)
        lab = as_lab(request, new, pool, now())
        assert lab.timeslot is not None
        accepted = LabAccepted(
            timeslot=lab.timeslot.id,
            workload=lab.id,
            name=lab.name,
            pool=pool.name,
            message=f"A lab in pool {pool.name!r} asked for; the answer comes soon.",
        )

        def answer(refused: Mapping[UUID, MooringError]) -> LabAccepted:
            if lab.id in refused:
                raise refused[lab.id]
            return accepted

        digest = hash_of(request.model_dump(mode="json", exclude_unset=True)) if key else ""
        return await self._submit([lab], answer, LabAccepted.model_validate, principal, key, digest)

    async def _submit(
        self,
        new: Sequence[NewWorkload],
        answer: Callable[[Mapping[UUID, MooringError]], A],
        recall: Callable[[Any], A],
        principal: Principal,
        key: str | None,
        request_hash: str,
    ) -> A:
        named = Key(principal.user_id, key) if key else None
        refused = await self._hooks.refused(new)
        done: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._queue.append(_Submission(new, answer, recall, refused, named, request_hash, done))
        if not self._writing:
            self._writing = True
            writer = asyncio.create_task(self._write_queue())
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        return await done

    async def compare(self, principal: Principal, present: WorkloadRow, request: WorkloadRequest) -> list[Difference]:
        """Where a workload differs from what would be written for a request; refused as its submission would be."""
        found = await self._surroundings.of(principal, [request], mere_question=True)
        wanted, _ = translate(request, of_project(found, request.project))
        return differences(present, request, wanted)

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
            await record(
                connection, principal, workload, "scale", {"replicas": workload.replicas}, {"replicas": replicas}
            )
            return await rollouts.scale(connection, workload_id, replicas, actor=str(principal.user_id), now=now())

        narrate(await self._database.write(work))

    async def extend(self, principal: Principal, workload_id: UUID, asked: ExtendRequest) -> None:
        """Change a session's time limit: up to what its pool and its policy allow; for an admin to any."""
        if (asked.time is None) == (asked.by is None):
            raise InvalidInput("say either how long it may take in all (time) or how much longer (by)")

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
            longest = longest_time(pool.policy, await policy_for(connection, workload.access_key))
            if not principal.is_admin and (refused := too_long(limit, longest)) is not None:
                raise refused
            if limit != row.time_limit_seconds:
                before, after = {"time": row.time_limit_seconds}, {"time": limit}
                await record(connection, principal, workload, "extend", before, after)
                await time_limits.change(connection, workload, limit, actor=str(principal.user_id), now=now())

        await self._database.write(work)

    async def remove(self, principal: Principal, workload_id: UUID, *, keep: bool = False, force: bool = False) -> None:
        """Stop what runs and, unless it is to `keep` its place, take the workload off lists; its history stays.

        `force`: nobody waits for nodes that do not answer. What may be left there counts on them until they do.
        """

        what, code = ("Cancelled", "cancelled") if keep else ("Removed", "removed")
        reason = Reason(code, f"{what} by {shown(principal.username)}", "user", "never")

        async def work(connection: Connection) -> Applied:
            workload = (await lock_workloads(connection, [workload_id]))[workload_id]
            before, after = {"status": workload.status.value}, {"force": force}
            await record(connection, principal, workload, "cancel" if keep else "remove", before, after)
            return await workloads.stop(
                connection,
                workload_id,
                actor=str(principal.user_id),
                now=now(),
                remove=not keep,
                reason=reason,
                force=force,
            )

        narrate(await self._database.write(work))

    async def _write_queue(self) -> None:
        try:
            while self._queue:
                group = self._next_group()
                try:
                    await self._write(group)
                except Exception as error:
                    if len(group) == 1:
                        _settle(group[0], error)
                        continue
                    # One bad row never blocks the rest.
                    for submission in group:
                        try:
                            await self._write([submission])
                        except Exception as own_error:
                            _settle(submission, own_error)
        finally:
            self._writing = False

    def _next_group(self) -> list[_Submission[Any]]:
        """The next submissions that are written together: as many workloads as one transaction should have."""
        ends = accumulate(max(1, len(submission.new)) for submission in self._queue)
        size = max(1, sum(end <= _MOST_AT_ONCE for end in ends))
        group, self._queue = self._queue[:size], self._queue[size:]
        return group

    async def _write(self, group: Sequence[_Submission[Any]]) -> None:
        for left in reversed(range(_TRIES)):
            try:
                written = await self._database.write(partial(_written, group, self._validators, self._sealing))
                break
            except Exception as error:
                if not is_taken(error) or left == 0:
                    raise
        for submission, outcome in zip(group, written.outcomes, strict=True):
            _settle(submission, outcome)
        self._hooks.written(written.accepted)


async def _written(
    group: Sequence[_Submission[Any]],
    validators: Sequence[Validator],
    sealing: Sealing | None,
    connection: Connection,
) -> _Written:
    """Write what is new of a group, with the answers that can be asked for again."""
    at = now()
    known = await submissions.answered(connection, [s.key for s in group if s.key is not None])
    fresh = [new for submission in group if submission.key not in known for new in submission.new]
    taken = await workloads.names_in_use(connection, fresh) if fresh else {}
    # Where the answer to an earlier try's commit was lost, its rows are there already.
    there = set(taken.values())
    gate = await open_gate(connection, fresh, validators, at)
    untold = await secrets.refusals(connection, ((w.id, w.principal.project_id, w.template) for w in fresh), sealing)
    living = await mounts.lock_living(connection, {mount.volume_id for new in fresh for mount in new.mounts})
    accepted: list[NewWorkload] = []
    given: list[tuple[Key, Answered]] = []
    outcomes: list[Answer | MooringError] = []
    for submission in group:
        if submission.key is not None and submission.key in known:
            outcomes.append(_repeated(submission, known[submission.key]))
            continue
        refused = dict(submission.refused)
        for new in submission.new:
            if new.id in refused:
                continue
            holder = taken.setdefault((new.principal.user_id, new.name), new.id)
            if holder != new.id:
                refused[new.id] = name_taken(new)
            elif new.id in there:
                continue
            elif (
                error := untold.get(new.id) or await _refuses(new, gate, living) or await _book(connection, new, at)
            ) is not None:
                refused[new.id] = error
        refused |= left_behind(submission.new, refused)
        accepted += [new for new in submission.new if new.id not in refused and new.id not in there]
        try:
            answer = submission.answer(refused)
        except MooringError as refusal:
            outcomes.append(refusal)
            continue
        outcomes.append(answer)
        if submission.key is not None:
            known[submission.key] = Answered(submission.request_hash, answer.model_dump(mode="json"))
            given.append((submission.key, known[submission.key]))
    if accepted:
        await workloads.submit(connection, accepted, at)
    await submissions.remember(connection, given, at)
    return _Written(outcomes, [new.id for new in accepted])


async def _refuses(new: NewWorkload, gate: Gate, living: Set[UUID]) -> MooringError | None:
    leaving = next((mount.name for mount in new.mounts if mount.volume_id not in living), None)
    if leaving is not None:
        return Conflict(f"volume {leaving!r} has just been removed", code="volume-removed")
    return await gate.refuses(new)


async def _book(connection: Connection, new: NewWorkload, at: datetime) -> MooringError | None:
    """Write the timeslot that a workload comes with, so that it counts for the next; or why limits do not allow it."""
    if new.timeslot is None:
        return None
    try:
        await check_limits(connection, [new.timeslot], at)
    except MooringError as refusal:
        return refusal
    await timeslots.insert(connection, [new.timeslot], at, actor=str(new.principal.user_id))
    return None


def _repeated(submission: _Submission[Any], before: Answered) -> Answer | MooringError:
    try:
        answer: Answer = submission.recall(recalled(before, submission.request_hash))
    except Conflict as reused:
        return reused
    return answer


def _settle(submission: _Submission[Any], outcome: Answer | Exception) -> None:
    # The client may have gone away meanwhile; what was written stays written.
    if submission.done.done():
        return
    if isinstance(outcome, Exception):
        taken = Conflict("another server takes the same names or keys at this moment; try again")
        submission.done.set_exception(taken if is_taken(outcome) else outcome)
    else:
        submission.done.set_result(outcome)


def _message(request: WorkloadRequest, new: NewWorkload, pool: pools.Pool) -> str:
    if pool.simulated and request.pool is None:
        return (
            f"No pool of real nodes offers {new.template.runtime} tasks yet, so this runs on simulated nodes "
            f"(pool {pool.name!r}): nothing is really started."
        )
    return f"Accepted into pool {pool.name!r}."
