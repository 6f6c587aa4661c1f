"""Worker threads for the expensive parts of requests, whose size a user chooses.

They are few and apart from the loop's own executor: the scheduler's commits and the password hashes there never queue
behind a tenant's batches. Python runs one thread at a time, so more of them would do no more work; what matters is that
the event loop gets its turn between them.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="request")


async def off_loop(function: Callable[P, R], /, *arguments: P.args, **named: P.kwargs) -> R:
    """Run the function in a worker thread, in the caller's context, and return its result."""
    call = _in_context(function, *arguments, **named)
    return await asyncio.get_running_loop().run_in_executor(_executor, call)


async def uninterrupted(function: Callable[P, R], /, *arguments: P.args, **named: P.kwargs) -> R:
    """Run the function in a thread of the loop's executor; a cancellation is raised only after the function has ended.

    For functions that use what the caller releases when it is cancelled: a descriptor, whose number another file gets
    next, or the lock of a transaction.
    """
    call = _in_context(function, *arguments, **named)
    running = asyncio.get_running_loop().run_in_executor(None, call)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
    if cancelled is not None:
        if not running.cancelled():
            running.exception()  # retrieved: the caller gets the cancellation instead
        raise cancelled
    return running.result()


def _in_context(function: Callable[P, R], /, *arguments: P.args, **named: P.kwargs) -> Callable[[], R]:
    return partial(contextvars.copy_context().run, partial(function, *arguments, **named))
