"""What an admin does with nodes, and the audit as people ask for it."""

import asyncio

import pytest
from sqlalchemy import select, update

from mooring.clock import now
from mooring.intake.auditing import Auditor
from mooring.intake.nodes import NodeAdmin, simulated_request
from mooring.model.constraints import Effect, Taint
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.model.suspicion import FAILING
from mooring.model.workloads import Kind
from mooring.store import suspicion
from mooring.store.engine import Connection
from mooring.store.tables import node_resources, nodes
from mooring.store.taints import standing
from mooring.wire.api import DrainRequest, TaintsChange
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harbour import Harbour, someone_waits_for_a_lock


@on_sqlite
async def test_simulated_nodes_come_only_where_they_are_allowed(harbour: Harbour):
    admin = NodeAdmin(harbour.database, simulation_allowed=False)
    with pytest.raises(Conflict, match="--demo") as refused:
        await admin.add_simulated(harbour.principal, simulated_request(1, "eu-west"))
    assert refused.value.code == "simulation-refused"
    node_id = await NodeAdmin(harbour.database, simulation_allowed=True).add_simulated(
        harbour.principal, simulated_request(1, "eu-west")
    )
    node = await harbour.node_row(node_id)
    assert (node.name, node.simulated, node.status, node.region) == ("sim-01", True, "READY", "eu-west")
    with pytest.raises(InvalidInput):
        simulated_request(0, "eu-west")


async def test_a_node_removed_by_force_takes_its_tasks_with_it(harbour: Harbour):
    admin = NodeAdmin(harbour.database, simulation_allowed=True)
    await harbour.node("n1")
    service, job = await harbour.submit("web"), await harbour.submit("job", kind=Kind.SESSION)
    await harbour.place()
    with pytest.raises(Conflict, match="by force"):
        await admin.remove(harbour.principal, "n1", force=False)
    await admin.remove(harbour.principal, "n1", force=True)
    assert (await harbour.statuses(service), await harbour.statuses(job)) == (["LOST"], ["LOST"])
    await harbour.replace_ended()
    for workload_id in (service, job):
        assert [(t.attempt, t.status) for t in await harbour.tasks(workload_id)] == [(2, "PENDING")]
    assert await harbour.findings() == []
    with pytest.raises(NotFound, match="'n1'"):
        await admin.remove(harbour.principal, "n1", force=True)


@on_postgresql
async def test_removing_by_force_waits_for_a_bind_before_it_touches_the_counters(
    harbour: Harbour, retried: list[Exception]
):
    node_id = await harbour.node("n1")
    await harbour.run(await harbour.submit("web"))
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def bind(connection: Connection) -> None:
        of_node = nodes.c.id == node_id
        await connection.execute(select(nodes.c.id).where(of_node).with_for_update(read=True))
        looked.set()
        await go_on.wait()
        counters = node_resources.c
        await connection.execute(update(node_resources).where(counters.node_id == node_id).values(held=counters.held))

    binding = asyncio.create_task(harbour.database.write(bind))
    await looked.wait()
    admin = NodeAdmin(harbour.database, simulation_allowed=True)
    removing = asyncio.create_task(admin.remove(harbour.principal, "n1", force=True))
    while not await someone_waits_for_a_lock(harbour.database):
        assert not removing.done()
    go_on.set()
    await binding
    await removing
    assert retried == []
    assert await harbour.findings() == []


@on_sqlite
async def test_an_unknown_node_cannot_be_drained(harbour: Harbour):
    admin = NodeAdmin(harbour.database, simulation_allowed=True)
    with pytest.raises(NotFound):
        await admin.drain(harbour.principal, "nowhere", DrainRequest())
    node_id = await harbour.node("n1")
    await admin.drain(harbour.principal, "n1", DrainRequest())
    assert (await harbour.node_row(node_id)).status == "DRAINING"
    await admin.resume(harbour.principal, "n1")
    assert (await harbour.node_row(node_id)).status == "READY"


@on_sqlite
async def test_an_admin_taints_nodes_but_leaves_mooring_its_own(harbour: Harbour):
    admin, who = NodeAdmin(harbour.database, simulation_allowed=True), harbour.principal
    node_id = await harbour.node("n1")
    added = {"add": [{"key": "spot", "effect": "NoExecute"}, {"key": "spot"}, {"key": "lab", "value": "a"}]}
    await admin.change_taints(who, "n1", TaintsChange.model_validate(added))
    at = now()
    await harbour.database.write(
        lambda c: suspicion.avoid(c, {node_id: "bad"}, actor="suspicion", now=at, term=harbour.office.term)
    )
    since = {each.taint: each.since for each in standing(await harbour.node_row(node_id))}
    changed = {"add": [{"key": "lab", "value": "b"}], "remove": [{"key": "spot", "effect": "NoSchedule"}]}
    await admin.change_taints(who, "n1", TaintsChange.model_validate(changed))
    row = await harbour.node_row(node_id)
    found = {each.taint: each for each in standing(row)}
    spot = Taint("spot", effect=Effect.NO_EXECUTE)
    assert set(found) == {spot, FAILING, Taint("lab", "b")}
    assert (found[spot].since, found[FAILING].reason) == (since[spot], "bad")
    for wrong in ({"remove": [{"key": FAILING.key}]}, {"add": [{"key": "mooring/other"}]}):
        with pytest.raises(InvalidInput, match="Mooring's own"):
            await admin.change_taints(who, "n1", TaintsChange.model_validate(wrong))
    assert await harbour.node_row(node_id) == row
    # What changes nothing is no change.
    await admin.change_taints(who, "n1", TaintsChange.model_validate(changed))
    assert (await harbour.node_row(node_id)).generation == row.generation


@on_sqlite
async def test_the_audit_reports_and_repairs(harbour: Harbour):
    auditor = Auditor(harbour.database)
    await harbour.node("n1")
    assert (await auditor.audit()).clean
    await harbour.database.write(lambda c: c.execute(update(node_resources).values(used=5)))
    report = await auditor.audit()
    assert not report.clean
    assert {finding.rule for finding in report.findings} == {"ledger = counters"}
    repaired = await auditor.repair(harbour.principal)
    assert (repaired.clean, repaired.repaired) == (True, 2)
