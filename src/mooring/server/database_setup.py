"""The database at the start of a server: its schema, the rows that every database has, and simulated nodes."""

from __future__ import annotations

from itertools import cycle

import structlog

from mooring.clock import now
from mooring.model.errors import Conflict
from mooring.model.nodes.node import REGIONS
from mooring.model.tenancy.tenants import Principal
from mooring.security.encryption import SecretBox
from mooring.server import maintenance
from mooring.services.administration.nodes import SIMULATED_POOL, NodeAdmin, simulated_request
from mooring.store.core import schema
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import (
    nodes,
    pools,
    slot_types,
)
from mooring.store.tenancy import (
    login_codes,
    sealed_rows,
    tenants,
    users,
)

_log = structlog.get_logger(__name__)
DEFAULT_POOL = "default"


async def prepare_schema(database: Database) -> None:
    """Create the schema at the first start, upgrade a SQLite file; only an admin upgrades a shared database."""
    found = await maintenance.state(database)
    maintenance.refuse_unknown(found)
    if database.dialect == "postgresql" and found.found is not None and not found.current:
        raise Conflict(
            f"the database has the schema {found.found} and this version needs {found.wanted}: "
            "make a backup, then run `mooring db upgrade`",
            code="schema-outdated",
        )
    if not found.current:
        await schema.upgrade(database.engine)
    if lost := await maintenance.accept_lost_transactions(database):
        _log.error(
            f"The log of the database was damaged: {lost} committed transaction{'s' if lost != 1 else ''} missing. Run"
            " `mooring audit`, look at `mooring nodes`, and restore a backup if it is newer; work that agents run and"
            " the database has forgotten is quarantined, not ended",
            lost_transactions=lost,
        )


async def seed(connection: Connection) -> None:
    """Insert the rows that every database has from its first start on."""
    await slot_types.ensure_built_in(connection)
    await pools.ensure(connection, DEFAULT_POOL, runtimes=["container", "process"], simulated=False, now=now())


async def first_admin(database: Database) -> Principal:
    async with database.read() as connection:
        user = await users.find(connection, tenants.FIRST_ADMIN)
        account = await tenants.account(connection, user.id)
    assert account is not None
    return account.principal


async def login_code(database: Database, admin: Principal) -> str:
    """Return a one-time code that logs this admin in, for the person at the terminal of the server."""

    async def work(connection: Connection) -> str:
        epoch, at = await login_codes.token_epoch(connection, admin.user_id), now()
        return await login_codes.add(connection, admin.user_id, login_id=None, token_epoch=epoch, auth_time=at, now=at)

    return await database.write(work, notify=False)


async def add_simulated_nodes(database: Database, node_admin: NodeAdmin, admin: Principal, number: int) -> None:
    """Add simulated nodes, spread over the regions, up to this number; those of an earlier start count."""
    async with database.read() as connection:
        there = {node.name for node in await nodes.load(connection) if node.pool == SIMULATED_POOL}
    regions = cycle(REGIONS)
    for index in range(1, number + 1):
        request = simulated_request(index, next(regions))
        if request.name not in there:
            await node_admin.add_simulated(admin, request)


async def warn_of_missing_keys(database: Database, secret_box: SecretBox) -> None:
    async with database.read() as connection:
        used = await sealed_rows.by_key(connection)
    for key_id in used.keys() - set(secret_box.key_ids):
        _log.warning(
            f"The sealing key {key_id} is missing: {used[key_id]} secrets or registry logins cannot be decrypted"
        )
