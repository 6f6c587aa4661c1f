"""Concurrent work that ends together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_until_first_ends(main: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Run all until `main` is done or any has failed, then cancel the others."""
    first, *rest = [asyncio.create_task(each) for each in (main, *others)]
    waited = {first, *rest}
    try:
        while not first.done():
            done, waited = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in (first, *rest):
            task.cancel()
        await asyncio.gather(first, *rest, return_exceptions=True)
