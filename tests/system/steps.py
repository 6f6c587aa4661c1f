"""The control plane killed at each of its commits, right before it and right after: who comes next finishes the work.

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
from mooring.controllers import lifecycle
from mooring.controllers.holds import HoldsLoop
from mooring.controllers.lifecycle import LifecycleLoop
from mooring.controllers.limits import LimitsLoop
from mooring.controllers.scheduling import SchedulingLoop
from mooring.controllers.simulation import SimulationLoop
from mooring.intake.pools import PoolAdmin
from mooring.mirror.mirror import Mirror
from mooring.model.arrays import Array
from mooring.model.decisions import Decision
from mooring.model.dependencies import Condition
from mooring.model.lifecycle import TaskStatus
from mooring.model.quotas import Scope
from mooring.model.terms import Terms
from mooring.model.workloads import LONG_AGO, Kind
from mooring.scheduling import compilation
from mooring.store import quotas
from mooring.store.bind import Bound
from mooring.store.changes import Change
from mooring.store.engine import Connection, Database
from mooring.store.quotas import QuotaChange
from mooring.store.tables import (
    attempts,
    holds,
    node_resources,
    tasks,
    tenant_resources,
    workload_records,
    workloads,
)
from mooring.wire.pools import PoolChange
from tests.properties import proofs
from tests.servers import copy_database
from tests.store.harbour import Harbour, decision_on

R = TypeVar("R")
MOST_ROUNDS = 40


class Death(NamedTuple):
    """When a process ends: at one of its commits, when all is written and nothing is committed yet, or right after."""

    commit: int
    committed: bool = False


class MortalDatabase(Database):
    """Counts the commits of its process, and ends the process at one of them."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.commits = 0
        self.death: Death | None = None

    async def write(self, work: Callable[[Connection], Awaitable[R]], *, wakes: bool = True) -> R:
        async def mortal(connection: Connection) -> R:
            result = await work(connection)
            self._live(Death(self.commits + 1))
            return result

        result = await super().write(mortal, wakes=wakes)
        self.commits += 1
        self._live(Death(self.commits, committed=True))
        return result

    def _live(self, moment: Death) -> None:
        if moment == self.death:
            os.kill(os.getpid(), signal.SIGKILL)


class Plane:
    """The loops of a leader, turn by turn."""

    def __init__(self, harbour: Harbour, binder: Binder | None = None) -> None:
        database, office = harbour.database, harbour.office
        self.scheduling = SchedulingLoop(Mirror(database), binder or Binder(database), office)
        simulation, holds_loop = SimulationLoop(database, office), HoldsLoop(database, office)
        again, limits = LifecycleLoop(database, office), LimitsLoop(database, office)
        self._turns = (self.scheduling.once, simulation.once, holds_loop.once, again.once, limits.once)

    async def turn(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        for once in self._turns:
            await meanwhile()
            await once()


class Scenario(Protocol):
    """What is there before, what people do meanwhile (again, where they got no answer), and how it ends."""

    async def prepare(self, harbour: Harbour) -> None: ...

    async def act(self, harbour: Harbour) -> None: ...

    async def check(self, harbour: Harbour) -> None: ...

    def binder(self, harbour: Harbour) -> Binder | None: ...


class GangInTwoPhases:
    """A gang over several nodes is made ready and starts, wholly."""

    async def prepare(self, harbour: Harbour) -> None:
        await _change_pool(harbour, binding="two_phase")
        for name in ("a", "b", "c"):
            await harbour.node(name, cpu=4, simulated=True)
        await harbour.submit("gang", kind=Kind.SESSION, replicas=3, cpu=3, gang=True)
        await harbour.submit("service", kind=Kind.DEPLOYMENT, replicas=2, cpu=1)

    async def act(self, harbour: Harbour) -> None:
        pass

    async def check(self, harbour: Harbour) -> None:
        assert await _attempts(harbour, "gang") == [("RUNNING", 1)] * 3
        assert await _attempts(harbour, "service") == [("RUNNING", 1)] * 2

    def binder(self, harbour: Harbour) -> None:
        return None


class GangLeaves:
    """A gang makes room for another and comes back when that one is stopped."""

    async def prepare(self, harbour: Harbour) -> None:
        await _change_pool(harbour, preemption={"mode": "requeue"})
        for name in ("a", "b"):
            await harbour.node(name, cpu=4, simulated=True)
        low = await harbour.submit("low", kind=Kind.SESSION, replicas=2, cpu=4, gang=True)
        await harbour.run(low)
        await harbour.submit("urgent", kind=Kind.SESSION, replicas=2, cpu=3, gang=True, priority=90)

    async def act(self, harbour: Harbour) -> None:
        urgent = await _only(harbour, "urgent")
        if await harbour.statuses(urgent) == ["RUNNING", "RUNNING"]:
            assert (await _attempts(harbour, "low"))[0][0] in ("TERMINATING", "CANCELLED", "PENDING")
            await harbour.stop(urgent)

    async def check(self, harbour: Harbour) -> None:
        assert await _attempts(harbour, "urgent") == [("CANCELLED", 1)] * 2
        assert await _attempts(harbour, "low") == [("RUNNING", 2)] * 2

    def binder(self, harbour: Harbour) -> None:
        return None


class Overtaken:
    """Somebody takes a chosen place just before the batch commits: the one that conflicts is placed elsewhere."""

    async def prepare(self, harbour: Harbour) -> None:
        for name in ("a", "b"):
            await harbour.node(name, cpu=8, simulated=True)
        for number in range(3):
            await harbour.submit(f"w{number}", kind=Kind.SESSION, replicas=2, cpu=2, gang=True)

    async def act(self, harbour: Harbour) -> None:
        pass

    async def check(self, harbour: Harbour) -> None:
        for name in ("w0", "w1", "w2", "rival"):
            assert {status for status, _ in await _attempts(harbour, name)} == {"RUNNING"}
        assert isinstance(harbour.database, MortalDatabase)
        if harbour.database.death is not None:
            # Whoever is to be killed is the first: nobody has begun with it before.
            conflicts = select(attempts).where(attempts.c.code == "conflict")
            assert await harbour.rows(conflicts)

    def binder(self, harbour: Harbour) -> Binder:
        return _OvertakenBinder(harbour)


class _OvertakenBinder(Binder):
    def __init__(self, harbour: Harbour) -> None:
        super().__init__(harbour.database)
        self._harbour = harbour

    async def bind(self, decisions: Sequence[Decision], term: int, **more: Any) -> Bound:
        chosen = [placement for decision in decisions for placement in decision.placements]
        if chosen and not await _ids_of(self._harbour, "rival"):
            rival = await self._harbour.submit("rival", kind=Kind.SESSION, cpu=4, priority=90)
            wish = await decision_on(self._harbour, rival, [chosen[0].node_id])
            await self._harbour.bind([wish])
        return await super().bind(decisions, term, **more)


class CancelledWhileHeld:
    """A gang is stopped while its place is kept: nothing of it stays, and who waited for the room gets it."""

    async def prepare(self, harbour: Harbour) -> None:
        await _change_pool(harbour, binding="two_phase")
        for name in ("a", "b"):
            await harbour.node(name, cpu=4, simulated=True)
        await harbour.submit("gang", kind=Kind.SESSION, replicas=2, cpu=4, gang=True, priority=90)
        await harbour.submit("next", kind=Kind.SESSION, replicas=2, cpu=3, gang=True)

    async def act(self, harbour: Harbour) -> None:
        gang = await _only(harbour, "gang")
        if await harbour.statuses(gang) == ["RESERVED", "RESERVED"]:
            await harbour.stop(gang)

    async def check(self, harbour: Harbour) -> None:
        assert await _attempts(harbour, "gang") == [("CANCELLED", 1)] * 2
        assert await _attempts(harbour, "next") == [("RUNNING", 1)] * 2

    def binder(self, harbour: Harbour) -> None:
        return None


class JobsWithTerms:
    """Jobs that are tried again, run in part, wait for each other and for their time: in the end nothing counts."""

    async def prepare(self, harbour: Harbour) -> None:
        await harbour.node("a", cpu=8, simulated=True)

        async def limit(connection: Connection) -> None:
            project = await quotas.find(connection, Scope.PROJECT, "default")
            await quotas.set_quota(connection, project, QuotaChange(limits={"cpu": 3000}), now())

        await harbour.database.write(limit)
        submit = partial(harbour.submit, kind=Kind.SESSION)
        first = await submit("first", cpu=2, terms=Terms(max_retries=1))
        await submit("array", replicas=3, terms=Terms(array=Array(0, 1, 3, parallel=2)))
        await submit("endless", terms=Terms(time_limit_seconds=3600))
        await submit("after", cpu=3, terms=Terms(dependencies=((first, Condition.AFTER_OK),)))
        await submit("in vain", terms=Terms(dependencies=((first, Condition.AFTER_FAIL),)))

    async def act(self, harbour: Harbour) -> None:
        """What runs ends, the first job badly at first; an hour passes for the endless one."""
        named = select(workloads.c.name, tasks).join(tasks, tasks.c.workload_id == workloads.c.id)
        running = await harbour.rows(named.where(tasks.c.status == TaskStatus.RUNNING))
        assert sum(task.requested_slots["cpu"] for task in running) <= 3000
        late = [task.id for task in running if task.name == "endless" and task.deadline_at > LONG_AGO]
        ends = [
            Change(task.id, TaskStatus.FAILED if (task.name, task.attempt) == ("first", 1) else TaskStatus.SUCCEEDED)
            for task in running
            if task.name != "endless"
        ]
        if late:
            passed = update(tasks).where(tasks.c.id.in_(late)).values(deadline_at=LONG_AGO)
            await harbour.database.write(lambda c: c.execute(passed))
        if ends:
            await harbour.apply(*ends)

    async def check(self, harbour: Harbour) -> None:
        assert await _attempts(harbour, "first") == [("SUCCEEDED", 2)]
        assert await _attempts(harbour, "array") == [("SUCCEEDED", 1)] * 3
        assert await _attempts(harbour, "endless") == [("FAILED", 1)]
        assert await _attempts(harbour, "after") == [("SUCCEEDED", 1)]
        assert await _attempts(harbour, "in vain") == [("CANCELLED", 1)]
        for counters in (node_resources, tenant_resources):
            assert {(row.reserved, row.used) for row in await harbour.rows(select(counters))} == {(0, 0)}
        recorded = await harbour.rows(select(workload_records.c.name, workload_records.c.attempts))
        assert {row.name: row.attempts for row in recorded} == {
            "first": 2, "array": 3, "endless": 1, "after": 1, "in vain": 1,
        }  # fmt: skip

    def binder(self, harbour: Harbour) -> None:
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
    await scenario.prepare(await Harbour.open(database))
    await database.close()


async def lead(url: str, scenario: Scenario, death: Death | None = None) -> None:
    """Take office and work until there is nothing left to do, or until death."""
    database = MortalDatabase(url)
    harbour = await Harbour.open(database)
    database.commits, database.death = 0, death
    plane = Plane(harbour, scenario.binder(harbour))
    for _ in range(MOST_ROUNDS):
        before = database.commits
        await plane.turn(partial(scenario.act, harbour))
        if database.commits == before:
            break
    else:
        raise AssertionError("it does not come to rest")
    plane.scheduling.close()
    await scenario.check(harbour)
    assert await harbour.findings() == []
    assert await harbour.rows(select(holds)) == []
    assert await proofs.excesses(harbour) == {}
    await proofs.check_edges(harbour)
    await database.close()


def kill_at_every_step(copies: Copies, scenario: Scenario, *, thorough: bool) -> int:
    """How often it was killed, until a leader came through.

    What is killed after a commit leaves the same rows as what is killed before the next: that is for the thorough.
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
    """How a process that does this ends: its exit code, or minus the signal that ended it."""
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
    """Databases made from others, gone when they are not needed any more."""

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


async def _change_pool(harbour: Harbour, **asked: object) -> None:
    await PoolAdmin(harbour.database).change("default", PoolChange.model_validate(asked))


async def _ids_of(harbour: Harbour, name: str) -> list[UUID]:
    return [row.id for row in await harbour.rows(select(workloads.c.id).where(workloads.c.name == name))]


async def _only(harbour: Harbour, name: str) -> UUID:
    [workload_id] = await _ids_of(harbour, name)
    return workload_id


async def _attempts(harbour: Harbour, name: str) -> list[tuple[str, int]]:
    """The current tasks of a workload that is there once: the status of each, and its number of attempts."""
    return [(task.status, task.attempt) for task in await harbour.tasks(await _only(harbour, name))]


def _do_nothing(*, urgent: bool = False) -> None:
    pass


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    # Children would each begin to compile; the NumPy face decides the same.
    compilation.start = _do_nothing
    # Who is tried again need not be waited for.
    lifecycle._FIRST_BACKOFF_SECONDS = 0
    kind, database, *thorough = sys.argv[1:]
    copies: Copies = SqliteCopies(database) if kind == "sqlite" else PostgresCopies(database)
    # The longest is left to SQLite, where it is quick, and to the thorough.
    chosen = SCENARIOS if thorough or kind == "sqlite" else SCENARIOS[:-1]
    for scenario in chosen:
        sys.stdout.write(f"{type(scenario).__name__} {kill_at_every_step(copies, scenario, thorough=bool(thorough))}\n")


if __name__ == "__main__":
    main()
