"""Orders, observations and waiting, for the agent's tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from mooring.agent.runtimes.contract import Observed
from mooring.wire.agents.desired_tasks import ContainerSpec, DesiredTask, Owner

DEADLINE_SECONDS = 60.0


def owner(project_number: int = 7, os_user: str | None = None) -> Owner:
    return Owner(user_id=uuid4(), project_id=uuid4(), project_number=project_number, os_user=os_user)


def container(*command: str, name: str = "main", **changes: Any) -> ContainerSpec:
    return ContainerSpec(name=name, command=list(command), **changes)


def order(*command: str, **changes: Any) -> DesiredTask:
    """A task to run; any field can be given by name."""
    fields: dict[str, Any] = {
        "task_id": uuid4(),
        "workload_id": uuid4(),
        "workload_name": "hello",
        "index": 0,
        "attempt": 1,
        "action": "run",
        "owner": owner(),
        "containers": [container(*command)],
        "restart": "never",
        "max_restarts": 0,
        "grace_seconds": 5,
    }
    return DesiredTask(**{**fields, **changes})


def seen(status: Any = "RUNNING", **changes: Any) -> Observed:
    return Observed(status=status, **changes)


def one(task: DesiredTask, observation: Observed) -> dict[UUID, Observed]:
    return {task.task_id: observation}


async def eventually(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Wait until the condition holds and give its value; fail when it does not in good time."""
    limit = time.monotonic() + DEADLINE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < limit, f"{what} did not come true within {DEADLINE_SECONDS:.0f} s"
        await asyncio.sleep(0.01)
    return value
