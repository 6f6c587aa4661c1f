"""Channels into tasks: authorisation, choice of the task, and a record of each."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import msgspec

from mooring.api.auth.request_access import as_id
from mooring.api.lookup.workloads import find_workload
from mooring.api.services import Services
from mooring.api.streams.channel_relay import Channel
from mooring.api.streams.server_proxy import UNREACHABLE, NodeOnOtherServer
from mooring.model.errors import Conflict, MooringError, NotFound, Unavailable
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.access import Action, not_there, require_visible
from mooring.model.tenancy.tenants import Principal
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.views import task_access
from mooring.store.views.task_access import TaskLocation
from mooring.wire.agents.agent_protocol import Dial, Exec, FetchFiles, Purpose, StoreFiles

_SHOWN_COMMAND = 4000
"""Characters of a command that its record holds."""


async def find_task(services: Services, principal: Principal, ref: str, *, ended: bool = False) -> list[TaskLocation]:
    """Return the task of this id; `ended`: also one that no longer runs."""
    what = f"task {ref[:63]!r}"
    task_id = as_id(ref)
    if task_id is None:
        raise not_there(what)
    async with services.database.read() as connection:
        found = await task_access.of_task(connection, task_id)
    if found is None:
        raise not_there(what)
    require_task_access(principal, [found], what)
    if found.simulated:
        raise Conflict(f"task {found.name} is simulated, so there is no process to access", code="simulated")
    if found.status != TaskStatus.RUNNING and not ended:
        raise Conflict(f"task {found.name} is not running: it is {found.status}", code="not-running")
    return [found]


async def find_ready_tasks(services: Services, principal: Principal, ref: str) -> list[TaskLocation]:
    """Return the ready tasks of a workload in random order, which spreads the load over them."""
    row = await find_workload(services, principal, ref, action=Action.ENTER_WORK)
    async with services.database.read() as connection:
        found = await task_access.ready(connection, row.id)
    if not found or row.simulated:
        raise Unavailable(f"no task of {row.name!r} is ready; the workload is {row.status}", code="no-ready-task")
    return random.sample(found, len(found))


def require_task_access(principal: Principal, tasks: Sequence[TaskLocation], what: str = "task") -> None:
    """Raise NotFound or NotAllowed if the principal may not access one of these tasks."""
    for task in tasks:
        require_visible(principal, Action.ENTER_WORK, task.target, what)


@asynccontextmanager
async def open_channel(
    services: Services, principal: Principal, tasks: Sequence[TaskLocation], container: str | None, purpose: Purpose
) -> AsyncIterator[Channel]:
    """Open a channel to the first of these tasks that answers."""
    async with AsyncExitStack() as stack:
        yield await _first_that_answers(services, principal, tasks, container, purpose, stack)


@contextmanager
def counted_channel(services: Services, principal: Principal) -> Iterator[None]:
    """Count an open channel of a user for the block; raise TooManyAttempts at the limit."""
    close = services.rates.open_channel(principal)
    try:
        yield
    finally:
        close()


async def _first_that_answers(
    services: Services,
    principal: Principal,
    tasks: Sequence[TaskLocation],
    container: str | None,
    purpose: Purpose,
    stack: AsyncExitStack,
) -> Channel:
    problem: MooringError | None = None
    for task in tasks:
        if task.node_id is None:
            raise NotFound(f"the files of task {task.name} were removed with its node", code="node-gone")
        try:
            services.task_access.check(task.node_id)
            await _record(services, principal, task, container, purpose)
            opening = services.task_access.open(task.id, task.node_id, container, purpose)
            channel = await stack.enter_async_context(opening)
            await channel.opened()
        except (Unavailable, Conflict, NotFound) as error:
            # One that another server may reach is worth more than one that does not answer.
            if not isinstance(problem, NodeOnOtherServer):
                problem = NodeOnOtherServer(error.message, task.server_url) if error.code == UNREACHABLE else error
        else:
            return channel
    assert problem is not None
    raise problem


async def _record(
    services: Services, principal: Principal, task: TaskLocation, container: str | None, purpose: Purpose
) -> None:
    """Record the user, the task and the purpose before a channel is open; never the data that goes through it."""
    after = {
        "task": str(task.id),
        "workload": str(task.workload_id),
        "container": container,
        **_purpose_fields(purpose),
    }
    await services.database.write(
        lambda connection: admin_actions.record(
            connection,
            Actor.of(principal),
            type(purpose).__struct_config__.tag,  # type: ignore[arg-type]
            "task",
            task.name,
            now=services.now(),
            after=after,
        ),
        notify=False,
    )


def _purpose_fields(purpose: Purpose) -> dict[str, Any]:
    match purpose:
        case Exec():
            return {"command": msgspec.json.encode(purpose.command).decode()[:_SHOWN_COMMAND]}
        case Dial():
            return {"port": purpose.port}
        case FetchFiles() | StoreFiles():
            return {"path": purpose.path}
        case _:
            return {}
