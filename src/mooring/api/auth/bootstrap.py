"""The first start of a database: create the first admin."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from mooring.api.auth.passwords import Passwords, new_password
from mooring.model.errors import InvalidInput
from mooring.store.core.engine import Database
from mooring.store.tenancy import tenants

_MIN_LENGTH, _MAX_LENGTH = 8, 256


async def first_start(
    database: Database,
    passwords: Passwords,
    password: str | None,
    now: datetime,
    *,
    keep: Callable[[str | None], None] = lambda password: None,
) -> str | None:
    """Make the default tenants and the admin if they are missing: the admin's password, or None if it was there.

    `password` is the one that the settings give; a random one is made without it. `keep` gets it before it counts, so
    that a crash in between loses no password. Of servers that start at once one makes the admin, and only that one
    gets the password; the others' `keep` gets None.
    """
    async with database.read() as connection:
        if await tenants.has_admin(connection):
            return None
    if password is not None and not _MIN_LENGTH <= len(password) <= _MAX_LENGTH:
        raise InvalidInput(
            f"the admin's password must have {_MIN_LENGTH} to {_MAX_LENGTH} characters", code="invalid-setting"
        )
    chosen = password or new_password()
    password_hash = await passwords.hash(chosen)
    keep(chosen)
    created = await database.write(lambda c: tenants.bootstrap(c, password_hash=password_hash, now=now))
    if not created:
        keep(None)
        return None
    return chosen
