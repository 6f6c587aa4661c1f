"""The audit of the ledger, and its repair."""

from __future__ import annotations

from mooring.wire.fields import Answer


class AuditFinding(Answer):
    rule: str
    subject: str
    expected: str
    found: str
    ambiguous: bool = False
    """The evidence does not decide it, so a repair does not change it."""


class AuditChange(Answer):
    """One cell that a repair changes, or would change."""

    table: str
    row: str
    """The primary key."""
    column: str
    before: str | None
    """As JSON; null if the row is inserted or the cell is empty."""
    after: str | None
    why: str


class AuditReport(Answer):
    clean: bool
    checked: dict[str, int]
    findings: list[AuditFinding]
    repaired: int = 0
    repairs: list[AuditFinding] = []
    """The findings of an audit, and the changes of a repair."""
    changes: list[AuditChange] = []
    """Every cell that the repair changed, or that it would change (dry run)."""
