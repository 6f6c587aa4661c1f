"""The work, the same for every scheduler, and its submission by clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

NODES = 1_000
CORES = 64
MEMORY_GIB = 256
TASKS = 1_000
"""Of each kind of work: one by one, and as one array."""
CONNECTIONS = 8
"""Clients, each of which submits its next task when the last one is accepted."""
CPU = "100m"
MEMORY_MIB = 128
MAX_SECONDS = 180.0
"""The limit of each kind of work."""


async def submit_singly(submit: Callable[[str], Awaitable[object]], names: Iterable[str]) -> dict[str, float]:
    """Submit a task of each name, and return the time when each request was sent."""
    sent: dict[str, float] = {}
    left = iter(names)

    async def client() -> None:
        for name in left:
            sent[name] = time.time()
            await submit(name)

    async with asyncio.timeout(MAX_SECONDS), asyncio.TaskGroup() as clients:
        for _ in range(CONNECTIONS):
            clients.create_task(client())
    return sent


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until the condition is true. Raise TimeoutError if it takes too long."""
    deadline = time.monotonic() + MAX_SECONDS
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} took more than {MAX_SECONDS:g} seconds")
        await asyncio.sleep(0.1)


def single_names() -> list[str]:
    return [f"single-{number}" for number in range(TASKS)]
