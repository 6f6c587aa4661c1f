"""Recognition of transactions that change the configuration: tenants, credentials, policies, access to pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from mooring.model.events import Topic

CHANGED: Topic = ("configuration", "changed")
"""The topic of a commit that wrote a table of policies, templates or access to pools, with or without events."""
TENANTS: Topic = ("configuration", "tenants")
"""The topic of a commit that wrote a table of tenants and their credentials. Users change their own at any rate."""
TOPICS = frozenset({CHANGED, TENANTS})
_TOPIC_OF: Mapping[str, Topic] = {
    **dict.fromkeys(("node_templates", "policies", "pool_access"), CHANGED),
    **dict.fromkeys(("domains", "keypairs", "logins", "memberships", "projects", "signing_keys", "users"), TENANTS),
}


def watch(engine: Engine) -> None:
    """Add its topic to those of every transaction that writes the configuration.

    By the statements themselves: a writer cannot forget to announce a revocation.
    """
    event.listen(engine, "before_execute", _note)


def _note(connection: Connection, statement: Any, *_parameters: Any) -> None:
    if getattr(statement, "is_dml", False) and (topic := _TOPIC_OF.get(statement.table.name)) is not None:
        connection.info.setdefault("topics", set()).add(topic)
