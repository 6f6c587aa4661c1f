"""Administration of nodes, and the audit."""

import asyncio

import pytest
from sqlalchemy import select, update

from mooring.clock import now
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.model.nodes.suspicion import FAILING
from mooring.model.workloads.constraints import Effect, Taint
from mooring.model.workloads.workload import Kind
from mooring.services.administration.audit import Auditor
from mooring.services.administration.nodes import NodeAdmin, simulated_request
from mooring.store.core.engine import Connection
from mooring.store.nodes import suspicion
from mooring.store.nodes.taints import timed_taints
from mooring.store.tables import node_resources, nodes
from mooring.wire.cluster.nodes import DrainRequest, TaintsChange
from tests.store.databases import on_postgresql, on_sqlite
from tests.store.harness import Harness, someone_waits_for_a_lock


@on_sqlite
async def test_simulated_nodes_come_only_where_they_are_allowed(harness: Harness):
    admin = NodeAdmin(harness.database, simulation_allowed=False)
    with pytest.raises(Conflict, match="--demo") as refused:
        await admin.add_simulated(harness.principal, simulated_request(1, "eu-west"))
    assert refused.value.code == "simulation-refused"
    node_id = await NodeAdmin(harness.database, simulation_allowed=True).add_simulated(
        harness.principal, simulated_request(1, "eu-west")
    )
    node = await harness.node_row(node_id)
    assert (node.name, node.simulated, node.status, node.region) == ("sim-01", True, "READY", "eu-west")
    with pytest.raises(InvalidInput):
        simulated_request(0, "eu-west")


async def test_a_node_removed_by_force_takes_its_tasks_with_it(harness: Harness):
    admin = NodeAdmin(harness.database, simulation_allowed=True)
    await harness.node("n1")
    service, job = await harness.submit("web"), await harness.submit("job", kind=Kind.SESSION)
    await harness.place()
    with pytest.raises(Conflict, match="by force"):
        await admin.remove(harness.principal, "n1", force=False)
    await admin.remove(harness.principal, "n1", force=True)
    assert (await harness.statuses(service), await harness.statuses(job)) == (["LOST"], ["LOST"])
    await harness.replace_ended()
    for workload_id in (service, job):
        assert [(t.attempt, t.status) for t in await harness.tasks(workload_id)] == [(2, "PENDING")]
    assert await harness.findings() == []
    with pytest.raises(NotFound, match="'n1'"):
        await admin.remove(harness.principal, "n1", force=True)


@on_postgresql
async def test_removing_by_force_waits_for_a_bind_before_it_touches_the_counters(
    harness: Harness, retried: list[Exception]
):
    node_id = await harness.node("n1")
    await harness.run(await harness.submit("web"))
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def bind(connection: Connection) -> None:
        of_node = nodes.c.id == node_id
        await connection.execute(select(nodes.c.id).where(of_node).with_for_update(read=True))
        looked.set()
        await go_on.wait()
        counters = node_resources.c
        await connection.execute(update(node_resources).where(counters.node_id == node_id).values(held=counters.held))

    binding = asyncio.create_task(harness.database.write(bind))
    await looked.wait()
    admin = NodeAdmin(harness.database, simulation_allowed=True)
    removing = asyncio.create_task(admin.remove(harness.principal, "n1", force=True))
    while not await someone_waits_for_a_lock(harness.database):
        assert not removing.done()
    go_on.set()
    await binding
    await removing
    assert retried == []
    assert await harness.findings() == []


@on_sqlite
async def test_an_unknown_node_cannot_be_drained(harness: Harness):
    admin = NodeAdmin(harness.database, simulation_allowed=True)
    with pytest.raises(NotFound):
        await admin.drain(harness.principal, "nowhere", DrainRequest())
    node_id = await harness.node("n1")
    await admin.drain(harness.principal, "n1", DrainRequest())
    assert (await harness.node_row(node_id)).status == "DRAINING"
    await admin.resume(harness.principal, "n1")
    assert (await harness.node_row(node_id)).status == "READY"


@on_sqlite
async def test_an_admin_taints_nodes_but_leaves_mooring_its_own(harness: Harness):
    admin, who = NodeAdmin(harness.database, simulation_allowed=True), harness.principal
    node_id = await harness.node("n1")
    added = {"add": [{"key": "spot", "effect": "NoExecute"}, {"key": "spot"}, {"key": "lab", "value": "a"}]}
    await admin.change_taints(who, "n1", TaintsChange.model_validate(added))
    at = now()
    await harness.database.write(
        lambda c: suspicion.avoid(c, {node_id: "bad"}, actor="suspicion", now=at, term=harness.leadership.term)
    )
    since = {each.taint: each.since for each in timed_taints(await harness.node_row(node_id))}
    changed = {"add": [{"key": "lab", "value": "b"}], "remove": [{"key": "spot", "effect": "NoSchedule"}]}
    await admin.change_taints(who, "n1", TaintsChange.model_validate(changed))
    row = await harness.node_row(node_id)
    found = {each.taint: each for each in timed_taints(row)}
    spot = Taint("spot", effect=Effect.NO_EXECUTE)
    assert set(found) == {spot, FAILING, Taint("lab", "b")}
    assert (found[spot].since, found[FAILING].reason) == (since[spot], "bad")
    for wrong in ({"remove": [{"key": FAILING.key}]}, {"add": [{"key": "mooring/other"}]}):
        with pytest.raises(InvalidInput, match="reserved for Mooring"):
            await admin.change_taints(who, "n1", TaintsChange.model_validate(wrong))
    assert await harness.node_row(node_id) == row
    # What changes nothing is no change.
    await admin.change_taints(who, "n1", TaintsChange.model_validate(changed))
    assert (await harness.node_row(node_id)).generation == row.generation


@on_sqlite
async def test_the_audit_reports_and_repairs(harness: Harness):
    auditor = Auditor(harness.database)
    await harness.node("n1")
    assert (await auditor.audit()).clean
    await harness.database.write(lambda c: c.execute(update(node_resources).values(used=5)))
    report = await auditor.audit()
    assert not report.clean
    assert {finding.rule for finding in report.findings} == {"ledger = counters"}
    repaired = await auditor.repair(harness.principal)
    assert (repaired.clean, repaired.repaired) == (True, 2)
