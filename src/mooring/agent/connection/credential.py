"""What an agent keeps of its node: the credential that its join token was exchanged for, and the highest term seen."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import msgspec

from mooring.agent import records
from mooring.agent.supervisor import record
from mooring.wire.agent import JoinAnswer

_CREDENTIAL = "credential.json"
_TERM = "term.json"


class _Term(msgspec.Struct, frozen=True):
    node_id: UUID
    term: int


def load_credential(root: Path) -> JoinAnswer | None:
    return records.read(root / _CREDENTIAL, JoinAnswer)


def store_credential(root: Path, answer: JoinAnswer) -> None:
    """Readable by the agent's own user only."""
    record.write(str(root / _CREDENTIAL), msgspec.to_builtins(answer), durable=True)


def load_term(root: Path, node_id: UUID) -> int:
    """The highest term whose orders this node has followed; a node that joined anew begins again."""
    kept = records.read(root / _TERM, _Term)
    return kept.term if kept is not None and kept.node_id == node_id else 0


def store_term(root: Path, node_id: UUID, term: int) -> None:
    record.write(str(root / _TERM), {"node_id": str(node_id), "term": term}, durable=True)
