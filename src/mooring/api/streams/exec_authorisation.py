"""Getting into tasks: who may, into which of them, how many at once; and a record of everybody who did."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from mooring.api.access import as_id, find_workload
from mooring.api.passing_on import UNREACHABLE, NodeElsewhere
from mooring.api.services import Services
from mooring.api.task_channels import Channel
from mooring.model.access import Action, not_there, require_seen
from mooring.model.errors import Conflict, MooringError, NotFound, Unavailable
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenants import Principal
from mooring.store import actions
from mooring.store.actions import Actor
from mooring.store.views import entrances
from mooring.store.views.entrances import Entrance
from mooring.wire.agent import Dial, Exec, FetchFiles, Purpose, StoreFiles

_SHOWN_COMMAND = 4000
"""How much of a command the record of it keeps."""


async def one_task(services: Services, principal: Principal, ref: str, *, ended: bool = False) -> list[Entrance]:
    """The task of this id; `ended`: also one that does not run any more."""
    what = f"task {ref[:63]!r}"
    task_id = as_id(ref)
    if task_id is None:
        raise not_there(what)
    async with services.database.read() as connection:
        found = await entrances.of_task(connection, task_id)
    if found is None:
        raise not_there(what)
    require_seen(principal, Action.ENTER_WORK, found.target, what)
    if found.simulated:
        raise Conflict(f"task {found.name} is simulated: nothing runs that one could get into", code="simulated")
    if found.status != TaskStatus.RUNNING and not ended:
        raise Conflict(f"task {found.name} does not run: it is {found.status}", code="not-running")
    return [found]


async def ready_tasks(services: Services, principal: Principal, ref: str) -> list[Entrance]:
    """The tasks of a workload that visitors are sent to, in any order: the load is spread over them."""
    row = await find_workload(services, principal, ref, action=Action.ENTER_WORK)
    async with services.database.read() as connection:
        found = await entrances.ready(connection, row.id)
    if not found or row.simulated:
        raise Unavailable(f"no task of {row.name!r} is ready; the workload is {row.status}", code="no-ready-task")
    return random.sample(found, len(found))


@asynccontextmanager
async def entered(
    services: Services, principal: Principal, tasks: Sequence[Entrance], container: str | None, purpose: Purpose
) -> AsyncIterator[Channel]:
    """A way into the first of these tasks that answers."""
    close = services.rates.open_channel(principal)
    try:
        async with AsyncExitStack() as stack:
            yield await _first_that_answers(services, principal, tasks, container, purpose, stack)
    finally:
        close()


async def _first_that_answers(
    services: Services,
    principal: Principal,
    tasks: Sequence[Entrance],
    container: str | None,
    purpose: Purpose,
    stack: AsyncExitStack,
) -> Channel:
    problem: MooringError | None = None
    for task in tasks:
        if task.node_id is None:
            raise NotFound(f"what task {task.name} left is gone with its node", code="node-gone")
        try:
            services.ways_in.check(task.node_id)
            await _record(services, principal, task, container, purpose)
            opening = services.ways_in.open(task.id, task.node_id, container, purpose)
            channel = await stack.enter_async_context(opening)
            await channel.opened()
        except (Unavailable, Conflict, NotFound) as error:
            # One that another server may reach is worth more than one that does not answer.
            if not isinstance(problem, NodeElsewhere):
                problem = NodeElsewhere(error.message, task.server_url) if error.code == UNREACHABLE else error
        else:
            return channel
    assert problem is not None
    raise problem


async def _record(
    services: Services, principal: Principal, task: Entrance, container: str | None, purpose: Purpose
) -> None:
    """Who opened what, before it is open; never what went through."""
    after = {"task": str(task.id), "workload": str(task.workload_id), "container": container, **_told(purpose)}
    await services.database.write(
        lambda connection: actions.record(
            connection,
            Actor.of(principal),
            type(purpose).__struct_config__.tag,  # type: ignore[arg-type]
            "task",
            task.name,
            now=services.now(),
            after=after,
        ),
        wakes=False,
    )


def _told(purpose: Purpose) -> dict[str, Any]:
    match purpose:
        case Exec():
            return {"command": msgspec.json.encode(purpose.command).decode()[:_SHOWN_COMMAND]}
        case Dial():
            return {"port": purpose.port}
        case FetchFiles() | StoreFiles():
            return {"path": purpose.path}
        case _:
            return {}
