"""Commands on the signing keys of a deployment: rotate, list and revoke them while servers run."""

from __future__ import annotations

import asyncio

from mooring.api.auth import signing
from mooring.clock import now
from mooring.model.errors import Conflict
from mooring.settings import Settings
from mooring.store.core.engine import Database
from mooring.store.tenancy import (
    admin_actions,
    signing_keys,
)


def rotate_keys(settings: Settings) -> None:
    """Sign with a new key from the next start on; tokens of the old keys stay valid until they expire."""

    async def rotate() -> None:
        database = Database(settings.database_url)
        try:
            await signing.check_shared(database, signing.load(settings.data), signs=False)
            rotated = signing.rotate(settings.data)
            await signing.check_shared(database, rotated)
            await database.write(
                lambda c: admin_actions.record(
                    c, admin_actions.SERVER, "rotate", "signing-key", rotated.newest.id, now=now()
                )
            )
        finally:
            await database.close()

    if settings.signing_key is not None:
        raise Conflict("the signing key comes from the settings; change it there", code="key-from-settings")
    asyncio.run(rotate())


async def list_keys(settings: Settings) -> list[signing_keys.KnownKey]:
    """Return the signing keys that servers of this database have used, the newest first."""
    database = Database(settings.database_url)
    try:
        async with database.read() as connection:
            return await signing_keys.every(connection)
    finally:
        await database.close()


async def revoke_key(settings: Settings, key_id: str, *, force: bool) -> None:
    """End every token that a signing key has signed or will sign, on all servers of the database at once."""
    signing_now = (
        signing.from_text(settings.signing_key.get_secret_value())
        if settings.signing_key is not None
        else signing.present(settings.data)
    )
    if signing_now is not None and signing_now.newest.id == key_id and not force:
        raise Conflict(
            f"{key_id} is the key that servers sign with: run `mooring keys rotate` and restart them first. Or revoke"
            " it now with --force: every login ends, and nobody can log in until the servers restart with a new key",
            code="signing-key-in-use",
        )
    database = Database(settings.database_url)
    try:
        await database.write(lambda c: signing_keys.revoke(c, key_id, now()))
    finally:
        await database.close()
