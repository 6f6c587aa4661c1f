"""The audit as people ask for it: prove that ledger, counters and JSON agree, or repair the counters."""

from __future__ import annotations

from mooring.clock import now
from mooring.store import ledger
from mooring.store.engine import Connection, Database
from mooring.wire.api import AuditFinding, AuditReport


class Auditor:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def audit(self) -> AuditReport:
        async with self._database.read() as connection:
            found = await ledger.audit(connection)
        return AuditReport(
            clean=not found.findings,
            checked=found.checked,
            findings=[
                AuditFinding(rule=f.rule, subject=f.subject, expected=f.expected, found=f.found) for f in found.findings
            ],
        )

    async def repair(self) -> AuditReport:
        async def work(connection: Connection) -> int:
            return await ledger.repair_counters(connection, now())

        repaired = await self._database.write(work)
        return (await self.audit()).model_copy(update={"repaired": repaired})
