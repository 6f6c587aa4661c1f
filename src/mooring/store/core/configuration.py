"""Recognition of transactions that change the configuration: tenants, credentials, policies, access to pools."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from mooring.model.events import Topic

CHANGED: Topic = ("configuration", "changed")
"""The topic of a commit that wrote one of these tables, with or without events."""
_TABLES = frozenset(
    {
        "domains",
        "keypairs",
        "logins",
        "memberships",
        "node_templates",
        "policies",
        "pool_access",
        "projects",
        "signing_keys",
        "users",
    }
)


def watch(engine: Engine) -> None:
    """Add CHANGED to the topics of every transaction that writes the configuration.

    By the statements themselves: a writer cannot forget to announce a revocation.
    """
    event.listen(engine, "before_execute", _note)


def _note(connection: Connection, statement: Any, *_parameters: Any) -> None:
    if getattr(statement, "is_dml", False) and statement.table.name in _TABLES:
        connection.info.setdefault("topics", set()).add(CHANGED)
