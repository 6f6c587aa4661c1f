"""The audit on a timer: whether the books still agree, for whoever watches the metrics and the log."""

from __future__ import annotations

import structlog

from mooring import metrics
from mooring.store import ledger
from mooring.store.engine import Database

_log = structlog.get_logger(__name__)
_MOST_LINES = 100


class AuditLoop:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def once(self) -> bool:
        async with self._database.snapshot() as connection:
            findings = (await ledger.audit(connection)).findings
        metrics.audit_findings.set(len(findings))
        for wrong in findings[:_MOST_LINES]:
            _log.error(f"Audit: {wrong.rule}: {wrong.subject}: expected {wrong.expected}, found {wrong.found}")
        if len(findings) > _MOST_LINES:
            _log.error(f"Audit: {len(findings) - _MOST_LINES} more differences; `mooring audit` shows all")
        return False
