"""Stored answers to repeated requests."""

from datetime import timedelta
from uuid import UUID

from mooring.clock import now
from mooring.controllers.upkeep.retention import Retention, RetentionLoop
from mooring.store.workloads import idempotency
from mooring.store.workloads.idempotency import Answered, Key
from tests.store.harness import Harness


async def known(harness: Harness, *keys: Key) -> dict[Key, Answered]:
    async with harness.database.read() as connection:
        return await idempotency.answered(connection, keys)


async def test_an_answer_is_found_by_its_user_and_key_until_it_is_forgotten(harness: Harness):
    user = harness.principal.user_id
    old, new = Key(user, "old"), Key(user, "new")
    answer = Answered("hash", {"accepted": 1, "workloads": [{"id": None}]})
    for key, age in ((old, timedelta(days=4)), (new, timedelta(days=2))):
        given = [(key, answer)]
        at = now() - age
        await harness.database.write(lambda c: idempotency.remember(c, given, at))  # noqa: B023
    assert await known(harness, old, new, Key(UUID(int=1), "old"), Key(user, "other")) == {old: answer, new: answer}
    retention = Retention(submissions=timedelta(days=3))
    loop = RetentionLoop(harness.fenced, retention)
    assert [await loop.once(), await loop.once()] == [True, False]
    assert await known(harness, old, new) == {new: answer}
