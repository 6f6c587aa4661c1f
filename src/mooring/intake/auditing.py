"""The audit as people ask for it: prove that ledger, counters and JSON agree, or set right what does not."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.clock import now
from mooring.model.tenants import Principal
from mooring.store import actions, ledger, repair
from mooring.store.actions import Actor
from mooring.store.engine import Connection, Database
from mooring.store.ledger import Finding
from mooring.wire.api import AuditFinding, AuditReport


class Auditor:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def audit(self) -> AuditReport:
        async with self._database.snapshot() as connection:
            found = await ledger.audit(connection)
        return AuditReport(clean=not found.findings, checked=found.checked, findings=_shown(found.findings))

    async def repair(self, principal: Principal) -> AuditReport:
        """What was wrong and is right now, and what is still wrong: the ledger alone cannot cure everything."""

        async def work(connection: Connection) -> list[Finding]:
            repaired = await repair.repair(connection, now())
            if repaired:
                told = {f"{wrong.rule}: {wrong.subject}": wrong for wrong in repaired}
                await actions.record(
                    connection,
                    Actor.of(principal),
                    "repair",
                    "audit",
                    "books",
                    now=now(),
                    before={name: wrong.found for name, wrong in told.items()},
                    after={name: wrong.expected for name, wrong in told.items()},
                )
            return repaired

        repaired = await self._database.write(work)
        report = await self.audit()
        return report.model_copy(update={"repaired": len(repaired), "repairs": _shown(repaired)})


def _shown(findings: Iterable[Finding]) -> list[AuditFinding]:
    return [AuditFinding(rule=f.rule, subject=f.subject, expected=f.expected, found=f.found) for f in findings]
