"""The audit for operators: check that all records agree, list the changes of a repair, or make them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from mooring.clock import now
from mooring.model.tenancy.tenants import Principal
from mooring.store.audit import ledger_rules, repair
from mooring.store.audit.corrections import Correction, as_json
from mooring.store.audit.ledger_rules import Finding
from mooring.store.audit.repair import Repair
from mooring.store.core.engine import Connection, Database
from mooring.store.tenancy.admin_actions import Actor
from mooring.wire.cluster.audit import AuditChange, AuditFinding, AuditReport


class Auditor:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def audit(self) -> AuditReport:
        async with self._database.snapshot() as connection:
            found = await ledger_rules.audit(connection)
        return AuditReport(clean=not found.findings, checked=found.checked, findings=_shown(found.findings))

    async def repair(self, principal: Principal, *, dry_run: bool = False) -> AuditReport:
        """Return the corrections, made or (`dry_run`) only listed, and the remaining findings."""
        if dry_run:
            planned = await self._plan(principal)
            report = await self.audit()
            return report.model_copy(update={"changes": _changes(planned.corrections)})

        async def work(connection: Connection) -> Repair:
            return await repair.repair(connection, now(), Actor.of(principal))

        done = await self._database.write(work)
        report = await self.audit()
        return report.model_copy(
            update={
                "repaired": len(done.corrections),
                "repairs": _shown(map(ledger_rules.finding_of, done.corrections)),
                "changes": _changes(done.corrections),
            }
        )

    async def _plan(self, principal: Principal) -> Repair:
        """Run a repair and roll it back: the list is exactly what a repair of the same state changes."""

        async def work(connection: Connection) -> Repair:
            raise _RolledBack(await repair.repair(connection, now(), Actor.of(principal)))

        try:
            return await self._database.write(work, notify=False)
        except _RolledBack as planned:
            return planned.repair


class _RolledBack(Exception):
    def __init__(self, repair: Repair) -> None:
        super().__init__("dry run")
        self.repair = repair


def _shown(findings: Iterable[Finding]) -> list[AuditFinding]:
    return [
        AuditFinding(rule=f.rule, subject=f.subject, expected=f.expected, found=f.found, ambiguous=f.ambiguous)
        for f in findings
    ]


def _changes(corrections: Iterable[Correction]) -> list[AuditChange]:
    return [
        AuditChange(
            table=each.table.name,
            row=each.row,
            column=cell.column,
            before=_cell(cell.before),
            after=_cell(cell.after),
            why=cell.why,
        )
        for each in corrections
        for cell in each.cells
    ]


def _cell(value: object) -> str | None:
    return None if value is None else json.dumps(as_json(value))
