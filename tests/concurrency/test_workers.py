"""Functions in worker threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mooring.concurrency.workers import uninterrupted


async def test_a_cancellation_waits_for_the_function_however_often_it_comes():
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait()
        ended.set()
        raise ValueError("nobody waits for this any more")

    running = asyncio.create_task(uninterrupted(work))
    await asyncio.to_thread(began.wait)
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    too_early = running.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()
    assert not too_early


async def test_results_and_errors_are_those_of_the_function():
    assert await uninterrupted(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await uninterrupted(divmod, 7, 0)
