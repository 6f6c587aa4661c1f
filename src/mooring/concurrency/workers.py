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
    context = contextvars.copy_context()
    call = partial(context.run, partial(function, *arguments, **named))
    return await asyncio.get_running_loop().run_in_executor(_executor, call)
