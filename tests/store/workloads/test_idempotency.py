"""Answers that are kept for whoever asks again."""

from datetime import timedelta
from uuid import UUID

from mooring.clock import now
from mooring.controllers.retention import Retention, RetentionLoop
from mooring.store import submissions
from mooring.store.submissions import Answered, Key
from tests.store.harbour import Harbour


async def known(harbour: Harbour, *keys: Key) -> dict[Key, Answered]:
    async with harbour.database.read() as connection:
        return await submissions.answered(connection, keys)


async def test_an_answer_is_found_by_its_user_and_key_until_it_is_forgotten(harbour: Harbour):
    user = harbour.principal.user_id
    old, new = Key(user, "old"), Key(user, "new")
    answer = Answered("hash", {"accepted": 1, "workloads": [{"id": None}]})
    for key, age in ((old, timedelta(days=4)), (new, timedelta(days=2))):
        given = [(key, answer)]
        at = now() - age
        await harbour.database.write(lambda c: submissions.remember(c, given, at))  # noqa: B023
    assert await known(harbour, old, new, Key(UUID(int=1), "old"), Key(user, "other")) == {old: answer, new: answer}
    retention = Retention(submissions=timedelta(days=3))
    loop = RetentionLoop(harbour.database, harbour.office, retention)
    assert [await loop.once(), await loop.once()] == [True, False]
    assert await known(harbour, old, new) == {new: answer}
