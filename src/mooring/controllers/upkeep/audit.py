"""The periodic audit of the ledger; findings go to the metrics and the log."""

from __future__ import annotations

import structlog

from mooring.coordination.fenced_database import FencedDatabase
from mooring.store.audit import ledger_rules
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
_MAX_LINES = 100


class AuditLoop:
    def __init__(self, database: FencedDatabase) -> None:
        self._database = database

    async def once(self) -> bool:
        async with self._database.snapshot() as connection:
            findings = (await ledger_rules.audit(connection)).findings
        metrics.audit_findings.set(len(findings))
        for wrong in findings[:_MAX_LINES]:
            _log.error(f"Audit: {wrong.rule}: {wrong.subject}: expected {wrong.expected}, found {wrong.found}")
        if len(findings) > _MAX_LINES:
            _log.error(f"Audit: {len(findings) - _MAX_LINES} more differences; `mooring audit` shows all")
        return False
