"""State of a node on disk: the credential that the join token was exchanged for, and the highest term seen."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import msgspec

from mooring.agent.runtimes import records
from mooring.agent.runtimes.process.supervisor import record
from mooring.wire.agents.agent_protocol import JoinAnswer

_CREDENTIAL = "credential.json"
_TERM = "term.json"


class _Term(msgspec.Struct, frozen=True):
    node_id: UUID
    term: int


def load_credential(root: Path) -> JoinAnswer | None:
    return records.read(root / _CREDENTIAL, JoinAnswer)


def store_credential(root: Path, answer: JoinAnswer) -> None:
    """Store the credential, readable only by the agent's user."""
    record.write(str(root / _CREDENTIAL), msgspec.to_builtins(answer), durable=True)


def load_term(root: Path, node_id: UUID) -> int:
    """Return the highest term whose orders this node has followed; 0 after a new join."""
    stored = records.read(root / _TERM, _Term)
    return stored.term if stored is not None and stored.node_id == node_id else 0


def store_term(root: Path, node_id: UUID, term: int) -> None:
    record.write(str(root / _TERM), {"node_id": str(node_id), "term": term}, durable=True)
