"""The audit on a timer."""

from sqlalchemy import update
from structlog.testing import capture_logs

from mooring.controllers.upkeep.audit import AuditLoop
from mooring.store.tables import node_resources
from mooring.telemetry import metrics
from tests.store.databases import on_sqlite
from tests.store.harness import Harness


@on_sqlite
async def test_differences_are_counted_and_named_in_the_log(harness: Harness):
    await harness.node("n1")
    loop = AuditLoop(harness.fenced)
    await harness.database.write(
        lambda c: c.execute(update(node_resources).where(node_resources.c.slot_name == "cpu").values(used=5))
    )
    with capture_logs() as lines:
        assert await loop.once() is False
    assert metrics.audit_findings._value.get() == 1
    [line] = lines
    assert line["log_level"] == "error"
    assert line["event"] == (
        "Audit: ledger = counters: node n1, cpu: expected held 0 reserved 0 used 0 leaving 0,"
        " found held 0 reserved 0 used 5 leaving 0"
    )

    await harness.database.write(lambda c: c.execute(update(node_resources).values(used=0)))
    with capture_logs() as lines:
        await loop.once()
    assert lines == []
    assert metrics.audit_findings._value.get() == 0
