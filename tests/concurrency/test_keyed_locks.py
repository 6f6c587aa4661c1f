"""Locks by key: one task reads an entry that many miss, and unused keys take no memory."""

import asyncio

import pytest

from mooring.concurrency.keyed_locks import KeyedLocks


async def test_only_one_task_holds_the_lock_of_a_key():
    locks: KeyedLocks[str] = KeyedLocks()
    inside: list[str] = []

    async def enter(key: str) -> None:
        async with locks.hold(key):
            assert key not in inside
            inside.append(key)
            await asyncio.sleep(0)
            inside.remove(key)

    await asyncio.gather(*(enter(key) for key in "aabbaa"))
    assert not locks._locks


async def test_other_keys_do_not_wait():
    locks: KeyedLocks[str] = KeyedLocks()
    async with locks.hold("a"), locks.hold("b"):
        pass


async def test_task_that_fails_or_is_cancelled_lets_the_next_one_in():
    locks: KeyedLocks[str] = KeyedLocks()
    with pytest.raises(ValueError, match="no"):
        async with locks.hold("a"):
            raise ValueError("no")

    async def enter() -> None:
        async with locks.hold("a"):
            pass

    async with locks.hold("a"):
        waiting = asyncio.create_task(enter())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await enter()
    assert not locks._locks
