"""Group commit of submissions: those that arrive while a transaction runs are written by the next one, together.

`GroupCommit.write` returns when a submission is durable. The transaction itself is `_write_group`, at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any, Generic, TypeVar
from uuid import UUID

from mooring.clock import now
from mooring.model.errors import Conflict, MooringError
from mooring.scheduling.admission import Validator
from mooring.security.encryption import SecretBox
from mooring.services.bookings.booking_limits import check_limits
from mooring.services.idempotency import recalled
from mooring.services.submission import secrets
from mooring.services.submission.admission import Gate, Rules, open_gate
from mooring.services.submission.batch import name_taken
from mooring.services.submission.dependencies import dependents_of_refused
from mooring.services.submission.hooks import Hooks
from mooring.services.submission.pending_tasks import PendingTasks, Tally
from mooring.services.uploads import session_files
from mooring.store.core.engine import Connection, Database, is_unique_violation
from mooring.store.reservations import timeslots
from mooring.store.uploads import uploads
from mooring.store.workloads import mounts, new_workloads
from mooring.store.workloads.idempotency import Answered, Key
from mooring.store.workloads.new_workloads import Names, NewWorkload
from mooring.wire.fields import Answer

_MAX_GROUP_WORKLOADS = 1000
_GATHER_SECONDS = 0.003
_SETTLED_AT_ONCE = 4
_MAX_ATTEMPTS = 3
"""Transactions of a group that may fail because another server takes the same name or key at the same moment."""

A = TypeVar("A", bound=Answer)


@dataclass(frozen=True, slots=True)
class Submission(Generic[A]):
    """The workloads of one request, and the answer to it."""

    new: Sequence[NewWorkload]
    refused_by_hooks: Mapping[UUID, MooringError]
    answer: Callable[[Mapping[UUID, MooringError]], A]
    """Makes the answer from the workloads that are refused; raises where none is accepted."""
    recall: Callable[[Any], A]
    """Reads the stored answer to the same request."""
    key: Key | None = None
    """The idempotency key."""
    request_hash: str = ""


@dataclass(frozen=True, slots=True)
class _Queued:
    submission: Submission[Any]
    done: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Written:
    outcomes: list[Answer | MooringError]
    """One per submission of the group, in its order."""
    accepted: list[NewWorkload]


class GroupCommit:
    """The queue of submissions in one server, and its one writer."""

    def __init__(
        self,
        database: Database,
        hooks: Hooks,
        validators: Sequence[Validator],
        pending_tasks: PendingTasks,
        secret_box: SecretBox | None,
        rules: Rules,
    ) -> None:
        self._database = database
        self._rules = rules
        self._hooks = hooks
        self._validators = validators
        self._pending_tasks = pending_tasks
        self._secret_box = secret_box
        self._queue: list[_Queued] = []
        self._writing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_size = 1
        """Submissions of the last group."""
        self._gathered = asyncio.Event()

    async def write(self, submission: Submission[A]) -> A:
        """Return the answer when the submission is committed; raise the error that refuses it."""
        done: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._queue.append(_Queued(submission, done))
        if len(self._queue) >= self._last_size:
            self._gathered.set()
        if not self._writing:
            self._writing = True
            self._start(self._write_queue())
        return await done

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_queue(self) -> None:
        try:
            while self._queue:
                await self._gather()
                await self._write_isolating_errors(self._next_group())
        finally:
            self._writing = False

    async def _gather(self) -> None:
        """Wait a moment for as many submissions as the last group had: clients that submit one after the other, each in
        its turn, would otherwise share a transaction only with those that happened to arrive while it ran.
        """
        if len(self._queue) < self._last_size:
            self._gathered.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._gathered.wait(), _GATHER_SECONDS)

    def _next_group(self) -> list[_Queued]:
        """Take the submissions of the next transaction: at least one, and up to `_MAX_GROUP_WORKLOADS` workloads."""
        ends = accumulate(max(1, len(queued.submission.new)) for queued in self._queue)
        size = max(1, sum(end <= _MAX_GROUP_WORKLOADS for end in ends))
        group, self._queue = self._queue[:size], self._queue[size:]
        self._last_size = size
        return group

    async def _write_isolating_errors(self, group: Sequence[_Queued]) -> None:
        """Write a group; if it fails, write each submission alone, so that one bad row does not block the rest."""
        try:
            await self._write(group)
        except Exception as error:
            if len(group) == 1:
                _settle(group[0], error)
                return
            for queued in group:
                await self._write_isolating_errors([queued])

    async def _write(self, group: Sequence[_Queued]) -> None:
        submissions = [queued.submission for queued in group]
        work = partial(_write_group, submissions, self._validators, self._rules, self._secret_box, self._pending_tasks)
        for attempts_left in reversed(range(_MAX_ATTEMPTS)):
            try:
                written = await self._database.write(work)
                break
            except Exception as error:
                if not is_unique_violation(error) or attempts_left == 0:
                    raise
        self._pending_tasks.accepted(written.accepted)
        self._hooks.written([new.id for new in written.accepted])
        self._start(_settle_all(group, written.outcomes))


async def _settle_all(group: Sequence[_Queued], outcomes: Sequence[Answer | MooringError]) -> None:
    """Pass each outcome on, a few per iteration of the event loop, so that other requests need not wait for all."""
    for number, (queued, outcome) in enumerate(zip(group, outcomes, strict=True), start=1):
        _settle(queued, outcome)
        if number % _SETTLED_AT_ONCE == 0:
            await asyncio.sleep(0)


def _settle(queued: _Queued, outcome: Answer | Exception) -> None:
    # The client may have disconnected; a committed submission stays committed.
    if queued.done.done():
        return
    if isinstance(outcome, Exception):
        taken = Conflict("another server is taking the same names or idempotency keys; try again")
        queued.done.set_exception(taken if is_unique_violation(outcome) else outcome)
    else:
        queued.done.set_result(outcome)


async def _write_group(
    group: Sequence[Submission[Any]],
    validators: Sequence[Validator],
    rules: Rules,
    secret_box: SecretBox | None,
    pending_tasks: PendingTasks,
    connection: Connection,
) -> _Written:
    """The transaction: check submissions in order of arrival, then write the accepted workloads and the answers."""
    at = now()
    keys = [each.key for each in group if each.key is not None]
    answered, holders = await new_workloads.read_known(connection, keys, [new for each in group for new in each.new])
    fresh = [new for submission in group if submission.key not in answered for new in submission.new]
    checks = await _Checks.read(connection, fresh, holders, validators, rules, secret_box, pending_tasks, at)
    accepted: list[NewWorkload] = []
    outcomes: list[Answer | MooringError] = []
    remembered: list[tuple[Key, Answered]] = []
    for submission in group:
        key = submission.key
        if key is not None and key in answered:
            outcomes.append(_replayed(submission, answered[key]))
            continue
        refused = await checks.refusals(submission)
        accepted += [new for new in submission.new if new.id not in refused and not checks.is_written(new)]
        outcome = _answer(submission, refused)
        outcomes.append(outcome)
        if key is not None and not isinstance(outcome, MooringError):
            answered[key] = Answered(submission.request_hash, outcome.model_dump(mode="json"))
            remembered.append((key, answered[key]))
    await new_workloads.submit(connection, accepted, at, remembered, last=True)
    return _Written(outcomes, accepted)


@dataclass(frozen=True, slots=True)
class _Checks:
    """The checks that need the database. Each accepted workload counts for the next one."""

    connection: Connection
    at: datetime
    holders: Names
    """The workload that has a name."""
    written: Set[UUID]
    """Workloads that are stored already: a first attempt committed, and its confirmation was lost."""
    secret_problems: Mapping[UUID, MooringError]
    volumes: Set[UUID]
    """The mounted volumes that exist; locked."""
    uploads: Mapping[UUID, UUID]
    """Uploads that can be used, and their projects."""
    gate: Gate
    tally: Tally

    @classmethod
    async def read(
        cls,
        connection: Connection,
        fresh: Sequence[NewWorkload],
        holders: Names,
        validators: Sequence[Validator],
        rules: Rules,
        secret_box: SecretBox | None,
        pending_tasks: PendingTasks,
        at: datetime,
    ) -> _Checks:
        gate = await open_gate(connection, fresh, validators, at, rules)
        carried = await rules.policies_of(connection, {new.principal.access_key for new in fresh})
        tally = await pending_tasks.open(connection, fresh, carried)
        templates = ((new.id, new.principal.project_id, new.template) for new in fresh)
        secret_problems = await secrets.refusals(connection, templates, secret_box)
        mounted = {mount.volume_id for new in fresh for mount in new.mounts}
        volumes = await mounts.lock_mountable(connection, mounted)
        named = {new.template.upload for new in fresh if new.template.upload is not None}
        usable = await uploads.take(connection, named, at)
        return cls(connection, at, holders, set(holders.values()), secret_problems, volumes, usable, gate, tally)

    def is_written(self, new: NewWorkload) -> bool:
        return new.id in self.written

    async def refusals(self, submission: Submission[Any]) -> dict[UUID, MooringError]:
        """The workloads of a submission that are refused, with those of the same batch that depend on them."""
        refused = dict(submission.refused_by_hooks)
        for new in submission.new:
            if new.id not in refused and (error := await self._refusal(new)) is not None:
                refused[new.id] = error
        return refused | dependents_of_refused(submission.new, refused)

    async def _refusal(self, new: NewWorkload) -> MooringError | None:
        if self.holders.setdefault((new.principal.user_id, new.name), new.id) != new.id:
            return name_taken(new)
        if self.is_written(new):
            return None
        return (
            self.secret_problems.get(new.id)
            or self._removed_volume(new)
            or session_files.refused(new, self.uploads)
            or await self.gate.refuses(new)
            or await self.tally.refuses(self.connection, new.principal, new.replicas)
            or await self._book(new)
        )

    def _removed_volume(self, new: NewWorkload) -> MooringError | None:
        removed = next((mount.name for mount in new.mounts if mount.volume_id not in self.volumes), None)
        return None if removed is None else Conflict(f"volume {removed!r} has just been removed", code="volume-removed")

    async def _book(self, new: NewWorkload) -> MooringError | None:
        """Write the timeslot of a lab, so that it counts for the next; or return the limit that it exceeds."""
        if new.timeslot is None:
            return None
        try:
            await check_limits(self.connection, [new.timeslot], self.at)
        except MooringError as refusal:
            return refusal
        await timeslots.insert(self.connection, [new.timeslot], self.at, actor=str(new.principal.user_id))
        return None


def _answer(submission: Submission[Any], refused: Mapping[UUID, MooringError]) -> Answer | MooringError:
    try:
        answer: Answer = submission.answer(refused)
    except MooringError as refusal:
        return refusal
    return answer


def _replayed(submission: Submission[Any], before: Answered) -> Answer | MooringError:
    try:
        answer: Answer = submission.recall(recalled(before, submission.request_hash))
    except Conflict as reused:
        return reused
    return answer
