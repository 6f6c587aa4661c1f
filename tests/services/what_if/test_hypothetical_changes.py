"""Hypothetical questions about a real store, answered by the production scheduler in a process of its own."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.model.errors import InvalidInput, NotAllowed, NotFound, TooManyAttempts
from mooring.model.lifecycle import TaskStatus
from mooring.model.resources.slots import parse_amounts
from mooring.model.tenancy.quotas import Scope
from mooring.model.tenancy.tenants import Principal, Role
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.services.administration.pools import PoolAdmin
from mooring.services.queries.queries import Queries
from mooring.services.what_if.what_if import WhatIf
from mooring.simulation.what_if.process import Bounds
from mooring.store.core.engine import Connection
from mooring.store.tenancy import quotas
from mooring.store.tenancy.quotas import QuotaChange
from mooring.wire.cluster.pools import PoolChange
from mooring.wire.cluster.what_if import WhatIfAnswer, WhatIfRequest, WorkloadEffect
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

BOUNDS = Bounds(cpu_seconds=60, memory_bytes=4 << 30, niceness=0)
HOUR = 3600


async def ask(
    harness: Harness, *, principal: Principal | None = None, cancel: tuple[UUID, ...] = (), **request: Any
) -> WhatIfAnswer:
    what_if = WhatIf(Queries(harness.database), BOUNDS)
    asked = WhatIfRequest.model_validate({"everyone": principal is None, **request})
    return await what_if.ask(principal or harness.principal, asked, cancel, ())


async def submit(harness: Harness, name: str, *, cpu: int, seconds: int = HOUR) -> UUID:
    return await harness.submit(name, cpu=cpu, memory=0, schedule=ScheduleOptions(time_limit_seconds=seconds))


def effects(answer: WhatIfAnswer) -> dict[str, WorkloadEffect]:
    return {each.name: each for each in answer.workloads}


async def full_node(harness: Harness) -> UUID:
    """A node of 4 cores on which a workload runs for up to an hour, and another one that waits for it."""
    await harness.node("n1", cpu=4, labels={"rack": "r7"})
    running = await submit(harness, "running", cpu=4)
    await harness.run(running)
    await submit(harness, "waiting", cpu=4)
    return running


@on_sqlite
async def test_added_nodes_start_pending_work_now_instead_of_after_the_running_work(harness: Harness):
    await full_node(harness)
    answer = await ask(harness, add_nodes=[{"like": "n1", "count": 2}])
    waiting = effects(answer)["waiting"]
    assert waiting.start is not None
    assert waiting.changed_start is not None
    assert timedelta(minutes=55) < waiting.start - answer.at <= timedelta(minutes=61)
    assert waiting.changed_start - answer.at <= timedelta(seconds=1)
    assert (answer.earlier, answer.later, answer.unchanged, answer.nodes) == (1, 0, 0, 1)
    assert answer.without.workloads == answer.changed.workloads == 1


@on_sqlite
async def test_equal_nodes_can_be_added_in_several_parts(harness: Harness):
    await full_node(harness)
    await submit(harness, "another", cpu=4)
    answer = await ask(harness, add_nodes=[{"like": "n1"}, {"like": "n1"}])
    assert answer.earlier == 2


@on_sqlite
async def test_cancelled_work_releases_its_capacity(harness: Harness):
    running = await full_node(harness)
    answer = await ask(harness, cancel=(running,))
    waiting = effects(answer)["waiting"]
    assert waiting.changed_start is not None
    assert waiting.changed_start - answer.at <= timedelta(seconds=2)


@on_sqlite
async def test_failed_nodes_stop_their_work_which_starts_again_elsewhere(harness: Harness):
    await harness.node("n1", cpu=4, labels={"rack": "r7"})
    await harness.run(await submit(harness, "running", cpu=4))
    await harness.node("n2", cpu=4)
    answer = await ask(harness, fail_nodes={"selector": "rack=r7"})
    running = effects(answer)["running"]
    assert (running.running, running.stopped, answer.stopped) == (True, True, 1)
    assert running.start is None
    assert running.changed_start is not None
    assert running.changed_start - answer.at <= timedelta(seconds=1)


@on_sqlite
async def test_removed_nodes_finish_their_work_and_accept_none(harness: Harness):
    await full_node(harness)
    answer = await ask(harness, remove_nodes={"names": ["n1"]})
    assert answer.stopped == 0
    assert effects(answer)["waiting"].changed_start is None
    assert (answer.later, answer.changed.started, answer.changed.p95_seconds) == (1, 0, None)


@on_sqlite
async def test_higher_limits_let_held_work_start(harness: Harness):
    await harness.node("n1", cpu=8)

    async def limit(connection: Connection) -> None:
        found = await quotas.find(connection, Scope.PROJECT, str(harness.principal.project_id))
        await quotas.set_quota(connection, found, QuotaChange(limits=parse_amounts({"cpu": 4})), now())

    await harness.database.write(limit)
    await harness.run(await submit(harness, "running", cpu=4))
    await submit(harness, "held", cpu=4)
    tenant = str(harness.principal.project_id)
    answer = await ask(harness, limits=[{"scope": "project", "tenant": tenant, "limits": {"cpu": 8}}])
    held = effects(answer)["held"]
    assert held.start is not None
    assert held.changed_start is not None
    assert held.start - held.changed_start > timedelta(minutes=50)


@on_sqlite
async def test_policy_of_a_pool_can_be_changed_in_the_question_alone(harness: Harness):
    await harness.set_options(head_of_line="strict", sequencer="fifo")
    await harness.node("n1", cpu=4)
    await harness.run(await submit(harness, "running", cpu=2))
    await submit(harness, "large", cpu=4)
    await submit(harness, "small", cpu=1, seconds=600)
    answer = await ask(harness, pools={"default": {"head_of_line": "backfill"}})
    small = effects(answer)["small"]
    assert small.start is not None
    assert small.changed_start is not None
    assert small.start - small.changed_start > timedelta(minutes=50)
    assert effects(answer)["large"].start == effects(answer)["large"].changed_start


@on_sqlite
async def test_search_finds_the_smallest_number_of_nodes(harness: Harness):
    await full_node(harness)
    for number in range(5):
        await submit(harness, f"more-{number}", cpu=4)
    answer = await ask(harness, search={"like": "n1", "p95_wait_seconds": 600})
    assert answer.search is not None
    assert answer.search.nodes == 6
    assert [each.nodes for each in answer.search.tries] == sorted(
        {0, 1, 2, 4, 5, 6, 8} & {t.nodes for t in answer.search.tries}
    )
    assert answer.changed.p95_seconds is not None
    assert answer.changed.p95_seconds <= 600
    few = await ask(harness, search={"like": "n1", "p95_wait_seconds": 600, "most": 3})
    assert few.search is not None
    assert few.search.nodes is None


@on_sqlite
async def test_tasks_of_a_deployment_start_one_by_one(harness: Harness):
    await harness.node("n1", cpu=4)
    workload = await harness.submit("web", replicas=6, cpu=1, memory=0)
    await harness.place()
    for task in await harness.tasks(workload):
        if task.node_id is not None:
            await harness.move(task, TaskStatus.RUNNING)
    assert (await harness.statuses(workload)).count(TaskStatus.PENDING) == 2
    answer = await ask(harness, add_nodes=[{"like": "n1"}])
    web = effects(answer)["web"]
    assert (web.running, web.start) == (True, None)
    assert web.changed_start is not None


@on_sqlite
async def test_tenants_see_their_own_work_only_and_ask_nothing_about_others(harness: Harness):
    await full_node(harness)
    other = Principal(UUID(int=7), "eve", Role.USER, UUID(int=8), harness.principal.domain_id, "key")
    answer = await ask(harness, principal=other, add_nodes=[{"like": "n1"}])
    assert (answer.workloads, answer.without.workloads, answer.earlier) == ([], 0, 0)
    for question in (
        {"fail_nodes": {"names": ["n1"]}},
        {"remove_nodes": {"names": ["n1"]}},
        {"pools": {"default": {"head_of_line": "skip"}}},
    ):
        with pytest.raises(NotAllowed):
            await ask(harness, principal=other, **question)
    limits = [{"scope": "project", "tenant": str(harness.principal.project_id), "limits": {"cpu": 8}}]
    with pytest.raises(NotFound):
        await ask(harness, principal=other, limits=limits)


@on_sqlite
async def test_unknown_nodes_and_pools_are_refused(harness: Harness):
    await harness.node("n1")
    for question in (
        {"add_nodes": [{"like": "n9"}]},
        {"search": {"like": "n9", "p95_wait_seconds": 1}},
        {"fail_nodes": {"names": ["n9"]}},
        {"pools": {"none": {"head_of_line": "skip"}}},
    ):
        with pytest.raises(NotFound):
            await ask(harness, **question)
    with pytest.raises(InvalidInput, match="rack=r9"):
        await ask(harness, fail_nodes={"selector": "rack=r9"})


@on_sqlite
async def test_policy_that_a_pool_cannot_have_is_refused_as_for_a_pool(harness: Harness):
    await harness.node("n1")
    changes: list[dict[str, Any]] = [
        {"profile": "none"},
        {"sequencer": "none"},
        {"validators": {"none": []}},
        {"default_time_seconds": 60, "max_time_seconds": 50},
    ]
    for change in changes:
        with pytest.raises(InvalidInput) as as_change:
            await PoolAdmin(harness.database).change("default", PoolChange.model_validate(change))
        with pytest.raises(InvalidInput) as as_question:
            await ask(harness, pools={"default": change})
        assert (as_question.value.code, as_question.value.message) == (as_change.value.code, as_change.value.message)


@on_sqlite
async def test_question_that_exceeds_its_memory_gets_a_clear_error(harness: Harness):
    await full_node(harness)
    what_if = WhatIf(Queries(harness.database), BOUNDS._replace(memory_bytes=64 << 20))
    with pytest.raises(InvalidInput) as failure:
        await what_if.ask(harness.principal, WhatIfRequest(), (), ())
    assert failure.value.code == "what-if-too-large"
    assert "64 MiB" in failure.value.message


@on_sqlite
async def test_question_that_exceeds_its_cpu_time_gets_a_clear_error(harness: Harness):
    await full_node(harness)
    schedule = ScheduleOptions(time_limit_seconds=HOUR)
    await harness.submit("many", replicas=1000, cpu=4, memory=0, schedule=schedule)
    what_if = WhatIf(Queries(harness.database), BOUNDS._replace(cpu_seconds=1))
    request = WhatIfRequest.model_validate(
        {"search": {"like": "n1", "p95_wait_seconds": 0, "most": 1000}, "seconds": 7776000}
    )
    with pytest.raises(InvalidInput) as failure:
        await what_if.ask(harness.principal, request, (), ())
    assert failure.value.code == "what-if-too-large"
    assert "1 s of CPU time" in failure.value.message


@on_sqlite
async def test_user_has_one_unanswered_question_at_a_time(harness: Harness):
    await full_node(harness)
    what_if = WhatIf(Queries(harness.database), BOUNDS)
    asked = [what_if.ask(harness.principal, WhatIfRequest(), (), ()) for _ in range(2)]
    first, second = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(first, WhatIfAnswer)
    assert isinstance(second, TooManyAttempts)


@on_sqlite
async def test_questions_change_nothing(harness: Harness):
    running = await full_node(harness)
    before = [(task.status, task.node_name) for task in await harness.tasks(running)]
    await ask(harness, fail_nodes={"names": ["n1"]}, cancel=(running,))
    assert [(task.status, task.node_name) for task in await harness.tasks(running)] == before
    assert await harness.findings() == []
