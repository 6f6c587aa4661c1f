"""The control plane killed at each of its commits, right before and right after: the next leader finishes the work.

A program of its own, since it forks: `python -m tests.system.steps <kind> <database> [thorough]`, with the file or
the URL of a database that has all tables. It prints how often each scenario was killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

import asyncpg
import structlog
from sqlalchemy import select, update
from sqlalchemy.engine import make_url

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.nodes.simulation import SimulationLoop
from mooring.controllers.scheduling.holds import HoldsLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.controllers.workloads import lifecycle
from mooring.controllers.workloads.expiry import ExpiryLoop
from mooring.controllers.workloads.lifecycle import LifecycleLoop
from mooring.mirror.mirror import Mirror
from mooring.model.decisions import Decision
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.arrays import Array
from mooring.model.workloads.dependencies import Condition
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import LONG_AGO, Kind
from mooring.scheduling.compiled import compilation
from mooring.services.administration.pools import PoolAdmin
from mooring.store.commit.bind import BindResult
from mooring.store.commit.status_changes import Change
from mooring.store.core.engine import Connection, Database
from mooring.store.tables import (
    attempts,
    holds,
    node_resources,
    tasks,
    tenant_resources,
    workload_records,
    workloads,
)
from mooring.store.tenancy import quotas
from mooring.store.tenancy.quotas import QuotaChange
from mooring.wire.cluster.pools import PoolChange
from tests.properties import proofs
from tests.servers import copy_database
from tests.store.harness import Harness, decision_on

R = TypeVar("R")
MAX_ROUNDS = 40


class Death(NamedTuple):
    """The moment of a kill: at a commit, with everything written and nothing committed yet, or right after it."""

    commit: int
    committed: bool = False


class MortalDatabase(Database):
    """Counts the commits of its process and kills the process at one of them."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.commits = 0
        self.death: Death | None = None

    async def write(self, work: Callable[[Connection], Awaitable[R]], *, notify: bool = True) -> R:
        async def mortal(connection: Connection) -> R:
            result = await work(connection)
            self._live(Death(self.commits + 1))
            return result

        result = await super().write(mortal, notify=notify)
        self.commits += 1
        self._live(Death(self.commits, committed=True))
        return result

    def _live(self, moment: Death) -> None:
        if moment == self.death:
            os.kill(os.getpid(), signal.SIGKILL)


class Plane:
    """The loops of a leader, one iteration at a time."""

    def __init__(self, harness: Harness, binder: Binder | None = None) -> None:
        database, fenced = harness.database, harness.fenced
        self.scheduling = SchedulingLoop(Mirror(database), binder or Binder(database), harness.leadership)
        simulation, holds_loop = SimulationLoop(fenced), HoldsLoop(fenced)
        again, limits = LifecycleLoop(fenced), ExpiryLoop(fenced)
        self._iterations = (self.scheduling.once, simulation.once, holds_loop.once, again.once, limits.once)

    async def iterate(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        for once in self._iterations:
            await meanwhile()
            await once()


class Scenario(Protocol):
    """The initial state, the users' actions (repeated if they got no response), and the expected end."""

    async def prepare(self, harness: Harness) -> None: ...

    async def act(self, harness: Harness) -> None: ...

    async def check(self, harness: Harness) -> None: ...

    def binder(self, harness: Harness) -> Binder | None: ...


class GangInTwoPhases:
    """A gang over several nodes becomes ready and starts as a whole."""

    async def prepare(self, harness: Harness) -> None:
        await _change_pool(harness, binding="two_phase")
        for name in ("a", "b", "c"):
            await harness.node(name, cpu=4, simulated=True)
        await harness.submit("gang", kind=Kind.SESSION, replicas=3, cpu=3, gang=True)
        await harness.submit("service", kind=Kind.DEPLOYMENT, replicas=2, cpu=1)

    async def act(self, harness: Harness) -> None:
        pass

    async def check(self, harness: Harness) -> None:
        assert await _attempts(harness, "gang") == [("RUNNING", 1)] * 3
        assert await _attempts(harness, "service") == [("RUNNING", 1)] * 2

    def binder(self, harness: Harness) -> None:
        return None


class GangLeaves:
    """A gang is preempted by another and restarts when that one is stopped."""

    async def prepare(self, harness: Harness) -> None:
        await _change_pool(harness, preemption={"mode": "requeue"})
        for name in ("a", "b"):
            await harness.node(name, cpu=4, simulated=True)
        low = await harness.submit("low", kind=Kind.SESSION, replicas=2, cpu=4, gang=True)
        await harness.run(low)
        await harness.submit("urgent", kind=Kind.SESSION, replicas=2, cpu=3, gang=True, priority=90)

    async def act(self, harness: Harness) -> None:
        urgent = await _only(harness, "urgent")
        if await harness.statuses(urgent) == ["RUNNING", "RUNNING"]:
            assert (await _attempts(harness, "low"))[0][0] in ("TERMINATING", "CANCELLED", "PENDING")
            await harness.stop(urgent)

    async def check(self, harness: Harness) -> None:
        assert await _attempts(harness, "urgent") == [("CANCELLED", 1)] * 2
        assert await _attempts(harness, "low") == [("RUNNING", 2)] * 2

    def binder(self, harness: Harness) -> None:
        return None


class Overtaken:
    """Capacity is taken just before the batch commits: the conflicting workload is placed elsewhere."""

    async def prepare(self, harness: Harness) -> None:
        for name in ("a", "b"):
            await harness.node(name, cpu=8, simulated=True)
        for number in range(3):
            await harness.submit(f"w{number}", kind=Kind.SESSION, replicas=2, cpu=2, gang=True)

    async def act(self, harness: Harness) -> None:
        pass

    async def check(self, harness: Harness) -> None:
        for name in ("w0", "w1", "w2", "rival"):
            assert {status for status, _ in await _attempts(harness, name)} == {"RUNNING"}
        assert isinstance(harness.database, MortalDatabase)
        if harness.database.death is not None:
            # Only in the process that is to be killed, which is the first.
            conflicts = select(attempts).where(attempts.c.code == "conflict")
            assert await harness.rows(conflicts)

    def binder(self, harness: Harness) -> Binder:
        return _OvertakenBinder(harness)


class _OvertakenBinder(Binder):
    def __init__(self, harness: Harness) -> None:
        super().__init__(harness.database)
        self._harness = harness

    async def bind(self, decisions: Sequence[Decision], term: int, **more: Any) -> BindResult:
        chosen = [placement for decision in decisions for placement in decision.placements]
        if chosen and not await _ids_of(self._harness, "rival"):
            rival = await self._harness.submit("rival", kind=Kind.SESSION, cpu=4, priority=90)
            wish = await decision_on(self._harness, rival, [chosen[0].node_id])
            await self._harness.bind([wish])
        return await super().bind(decisions, term, **more)


class CancelledWhileHeld:
    """A gang is cancelled while it has a hold: the hold is released, and the next workload gets the capacity."""

    async def prepare(self, harness: Harness) -> None:
        await _change_pool(harness, binding="two_phase")
        for name in ("a", "b"):
            await harness.node(name, cpu=4, simulated=True)
        await harness.submit("gang", kind=Kind.SESSION, replicas=2, cpu=4, gang=True, priority=90)
        await harness.submit("next", kind=Kind.SESSION, replicas=2, cpu=3, gang=True)

    async def act(self, harness: Harness) -> None:
        gang = await _only(harness, "gang")
        if await harness.statuses(gang) == ["RESERVED", "RESERVED"]:
            await harness.stop(gang)

    async def check(self, harness: Harness) -> None:
        assert await _attempts(harness, "gang") == [("CANCELLED", 1)] * 2
        assert await _attempts(harness, "next") == [("RUNNING", 1)] * 2

    def binder(self, harness: Harness) -> None:
        return None


class JobsWithTerms:
    """Jobs with retries, partial starts, dependencies and start times: in the end no capacity is charged."""

    async def prepare(self, harness: Harness) -> None:
        await harness.node("a", cpu=8, simulated=True)

        async def limit(connection: Connection) -> None:
            project = await quotas.find(connection, Scope.PROJECT, "default")
            await quotas.set_quota(connection, project, QuotaChange(limits={"cpu": 3000}), now())

        await harness.database.write(limit)
        submit = partial(harness.submit, kind=Kind.SESSION)
        first = await submit("first", cpu=2, schedule=ScheduleOptions(max_retries=1))
        await submit("array", replicas=3, schedule=ScheduleOptions(array=Array(0, 1, 3, parallel=2)))
        await submit("endless", schedule=ScheduleOptions(time_limit_seconds=3600))
        await submit("after", cpu=3, schedule=ScheduleOptions(dependencies=((first, Condition.AFTER_OK),)))
        await submit("never runs", schedule=ScheduleOptions(dependencies=((first, Condition.AFTER_FAIL),)))

    async def act(self, harness: Harness) -> None:
        """End the running jobs: the first fails at first, and an hour passes for the endless one."""
        named = select(workloads.c.name, tasks).join(tasks, tasks.c.workload_id == workloads.c.id)
        running = await harness.rows(named.where(tasks.c.status == TaskStatus.RUNNING))
        assert sum(task.requested_slots["cpu"] for task in running) <= 3000
        late = [task.id for task in running if task.name == "endless" and task.deadline_at > LONG_AGO]
        ends = [
            Change(task.id, TaskStatus.FAILED if (task.name, task.attempt) == ("first", 1) else TaskStatus.SUCCEEDED)
            for task in running
            if task.name != "endless"
        ]
        if late:
            passed = update(tasks).where(tasks.c.id.in_(late)).values(deadline_at=LONG_AGO)
            await harness.database.write(lambda c: c.execute(passed))
        if ends:
            await harness.apply(*ends)

    async def check(self, harness: Harness) -> None:
        assert await _attempts(harness, "first") == [("SUCCEEDED", 2)]
        assert await _attempts(harness, "array") == [("SUCCEEDED", 1)] * 3
        assert await _attempts(harness, "endless") == [("FAILED", 1)]
        assert await _attempts(harness, "after") == [("SUCCEEDED", 1)]
        assert await _attempts(harness, "never runs") == [("CANCELLED", 1)]
        for counters in (node_resources, tenant_resources):
            assert {(row.reserved, row.used) for row in await harness.rows(select(counters))} == {(0, 0)}
        recorded = await harness.rows(select(workload_records.c.name, workload_records.c.attempts))
        assert {row.name: row.attempts for row in recorded} == {
            "first": 2, "array": 3, "endless": 1, "after": 1, "never runs": 1,
        }  # fmt: skip

    def binder(self, harness: Harness) -> None:
        return None


SCENARIOS: tuple[Scenario, ...] = (
    GangInTwoPhases(),
    GangLeaves(),
    Overtaken(),
    CancelledWhileHeld(),
    JobsWithTerms(),
)


async def prepare(url: str, scenario: Scenario) -> None:
    database = Database(url)
    await scenario.prepare(await Harness.open(database))
    await database.close()


async def lead(url: str, scenario: Scenario, death: Death | None = None) -> None:
    """Begin a term and work until there is nothing left to do, or until the kill."""
    database = MortalDatabase(url)
    harness = await Harness.open(database)
    database.commits, database.death = 0, death
    plane = Plane(harness, scenario.binder(harness))
    for _ in range(MAX_ROUNDS):
        before = database.commits
        await plane.iterate(partial(scenario.act, harness))
        if database.commits == before:
            break
    else:
        raise AssertionError("it does not come to rest")
    plane.scheduling.close()
    await scenario.check(harness)
    assert await harness.findings() == []
    assert await harness.rows(select(holds)) == []
    assert await proofs.excesses(harness) == {}
    await proofs.check_edges(harness)
    await database.close()


def kill_at_every_step(copies: Copies, scenario: Scenario, *, thorough: bool) -> int:
    """Return the number of kills until a leader finished.

    A kill after a commit leaves the same rows as one before the next commit, so only a thorough run does both.
    """
    with copies.of(copies.empty) as prepared:
        assert in_child(prepare(prepared, scenario)) == 0
        for deaths in count():
            death = Death(deaths // 2 + 1, bool(deaths % 2)) if thorough else Death(deaths + 1)
            with copies.of(prepared) as url:
                ended = in_child(lead(url, scenario, death))
                if ended != -signal.SIGKILL:
                    assert ended == 0
                    return deaths
                if in_child(lead(url, scenario)) != 0:
                    raise AssertionError(f"{type(scenario).__name__} does not get over {death}")
    raise AssertionError("unreachable")


def in_child(work: Coroutine[Any, Any, None]) -> int:
    """Run this in a child process and return its exit code, or the negated signal that killed it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(work)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    work.close()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Copies(Protocol):
    """Databases copied from others and removed after use."""

    empty: str

    def of(self, url: str) -> AbstractContextManager[str]: ...


class SqliteCopies:
    def __init__(self, file: str) -> None:
        self.empty = f"sqlite+aiosqlite:///{file}"

    @contextmanager
    def of(self, url: str) -> Iterator[str]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "mooring.db"
            shutil.copy(make_url(url).database or "", file)
            yield f"sqlite+aiosqlite:///{file}"


class PostgresCopies:
    def __init__(self, url: str) -> None:
        self.empty = url
        self._numbers = count()

    @contextmanager
    def of(self, url: str) -> Iterator[str]:
        template = make_url(url).database or ""
        name = f"{make_url(self.empty).database}_{next(self._numbers)}"
        asyncio.run(self._do(lambda connection: copy_database(connection, template, name)))
        try:
            yield make_url(url).set(database=name).render_as_string()
        finally:
            asyncio.run(self._do(lambda connection: connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')))

    async def _do(self, what: Callable[[Any], Awaitable[object]]) -> None:
        at = make_url(self.empty)
        connection = await asyncpg.connect(host=at.host, port=at.port, user=at.username, database="postgres", ssl=False)
        try:
            await what(connection)
        finally:
            await connection.close()


async def _change_pool(harness: Harness, **asked: object) -> None:
    await PoolAdmin(harness.database).change("default", PoolChange.model_validate(asked))


async def _ids_of(harness: Harness, name: str) -> list[UUID]:
    return [row.id for row in await harness.rows(select(workloads.c.id).where(workloads.c.name == name))]


async def _only(harness: Harness, name: str) -> UUID:
    [workload_id] = await _ids_of(harness, name)
    return workload_id


async def _attempts(harness: Harness, name: str) -> list[tuple[str, int]]:
    """Return status and attempt of each current task of a workload with a unique name."""
    return [(task.status, task.attempt) for task in await harness.tasks(await _only(harness, name))]


def _do_nothing(*, urgent: bool = False) -> None:
    pass


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    # Every child would start to compile. The NumPy implementation makes the same decisions.
    compilation.start = _do_nothing
    # Retry without waiting.
    lifecycle._FIRST_BACKOFF_SECONDS = 0
    kind, database, *thorough = sys.argv[1:]
    copies: Copies = SqliteCopies(database) if kind == "sqlite" else PostgresCopies(database)
    # The longest runs on SQLite, where it is quick, and on PostgreSQL only in a thorough run.
    chosen = SCENARIOS if thorough or kind == "sqlite" else SCENARIOS[:-1]
    for scenario in chosen:
        sys.stdout.write(f"{type(scenario).__name__} {kill_at_every_step(copies, scenario, thorough=bool(thorough))}\n")


if __name__ == "__main__":
    main()
