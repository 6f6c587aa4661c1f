"""The choice among several tasks: the first that answers, wherever its node is connected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from mooring.api.services import Services
from mooring.api.streams.channel_relay import Channel
from mooring.api.streams.exec_authorisation import open_channel
from mooring.api.streams.server_proxy import UNREACHABLE, NodeOnOtherServer
from mooring.model.errors import Conflict, MooringError, NotFound, Unavailable
from mooring.model.tenancy.tenants import Principal, Role
from mooring.store.views.task_access import TaskLocation
from mooring.wire.agents.agent_protocol import Dial, Purpose

NOBODY = UUID(int=0)
SOMEBODY = Principal(
    user_id=NOBODY, username="ada", role=Role.USER, domain_id=NOBODY, project_id=NOBODY, access_key="key"
)
SILENT = Unavailable("nothing answers on port 80 of the task", code="port-not-answering")
ENDED = Conflict("container 'main' does not run", code="not-running")
GONE = NotFound("this node has no task")
AWAY = Unavailable("not connected to this server", code=UNREACHABLE)


class Nodes:
    """Ways into tasks by their number, each with what stands in the way."""

    def __init__(self, problems: Mapping[int, MooringError]) -> None:
        self._problems = problems

    def check(self, node_id: UUID) -> None:
        if self._problems.get(node_id.int) is AWAY:
            raise AWAY

    @asynccontextmanager
    async def open(
        self, task_id: UUID, node_id: UUID, container: str | None, purpose: Purpose
    ) -> AsyncIterator[Channel]:
        async def opened() -> None:
            if (problem := self._problems.get(task_id.int)) is not None:
                raise problem

        yield cast(Channel, SimpleNamespace(opened=opened, task=task_id.int))


async def entered_task(tasks: int, problems: Mapping[int, MooringError]) -> int:
    """The number of the task that was open_channel, of so many that are tried in their order."""

    async def write(*_: Any, **__: Any) -> None:
        return None

    services = SimpleNamespace(
        task_access=Nodes(problems),
        database=SimpleNamespace(write=write),
        now=lambda: datetime.now(UTC),
    )
    ready = [_entrance(number) for number in range(tasks)]
    async with open_channel(cast(Services, services), SOMEBODY, ready, None, Dial(port=80)) as channel:
        return int(cast(Any, channel).task)


def _entrance(number: int) -> TaskLocation:
    id = UUID(int=number)
    return TaskLocation(id, number, "RUNNING", id, f"https://{number}", NOBODY, "web", False, NOBODY, NOBODY, NOBODY)


@pytest.mark.parametrize("problem", [SILENT, ENDED, GONE, AWAY])
async def test_a_channel_opens_to_the_next_task_if_one_does_not_answer(problem: MooringError):
    assert await entered_task(3, {0: problem, 1: problem}) == 2


async def test_the_server_that_is_asked_is_that_of_a_task_that_is_not_here():
    for problems in ({0: AWAY, 1: SILENT, 2: ENDED}, {0: ENDED, 1: SILENT, 2: AWAY}, {0: SILENT, 1: AWAY, 2: ENDED}):
        with pytest.raises(NodeOnOtherServer) as found:
            await entered_task(3, problems)
        away = next(number for number, problem in problems.items() if problem is AWAY)
        assert found.value.server_url == f"https://{away}"


async def test_if_no_task_can_be_entered_the_reason_of_one_is_given():
    with pytest.raises(Conflict):
        await entered_task(2, {0: SILENT, 1: ENDED})
