"""Placement constraints hold from the request to the node, and for replacements."""

from __future__ import annotations

from sqlalchemy import select

from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.constraints import Constraints, Taint
from mooring.services.submission.placement_constraints import constraints_of
from mooring.store.tables import port_allocations
from mooring.wire.workloads.placement import PlacementRequest
from tests.store.harness import Harness


def wishes(placement: dict[str, object], **labels: str) -> Constraints:
    return constraints_of(
        PlacementRequest.model_validate(placement), name="w", labels=labels, project="default", images=[]
    )


async def nodes_of(harness: Harness, *workloads: object) -> list[str | None]:
    return [task.node_name for workload in workloads for task in await harness.tasks(workload)]  # type: ignore[arg-type]


async def test_anti_affinity_separates_tasks_and_the_surplus_task_waits_for_capacity(harness: Harness):
    await harness.node("a")
    await harness.node("b")
    apart = wishes({"anti_affinity": [{"topology_key": "node", "labels": {"app": "db"}}]}, app="db")
    first, second, third = [await harness.submit(f"w{i}", constraints=apart) for i in range(3)]
    await harness.place()
    assert sorted(filter(None, await nodes_of(harness, first, second, third))) == ["a", "b"]
    assert await harness.statuses(third) == ["PENDING"]

    # It may be placed only where none of them is left.
    await harness.stop(first)
    (ended,) = await harness.tasks(first)
    await harness.place()
    assert await harness.statuses(third) == ["PENDING"]
    await harness.move(ended, TaskStatus.CANCELLED)
    await harness.place()
    assert await nodes_of(harness, third) == [ended.node_name]
    assert await harness.findings() == []


async def test_a_tainted_node_takes_only_tasks_that_tolerate_it(harness: Harness):
    await harness.node("special", taints=(Taint("dedicated", "db"),))
    plain = await harness.submit("plain")
    tolerant = await harness.submit(
        "tolerant", constraints=wishes({"tolerations": [{"key": "dedicated", "value": "db"}]})
    )
    await harness.place()
    assert await nodes_of(harness, plain, tolerant) == [None, "special"]
    assert "taint" in (await harness.workload(plain)).reason["message"]


async def test_selectors_and_spread_hold_over_node_labels(harness: Harness):
    for zone in ("x", "y"):
        for number in (1, 2):
            await harness.node(f"{zone}{number}", labels={"zone": zone, "disk": "ssd" if number == 1 else "hdd"})
    fast = await harness.submit("fast", replicas=2, constraints=wishes({"node_selector": {"disk": "ssd"}}), spread=True)
    even = await harness.submit("even", replicas=4, constraints=wishes({"spread": [{"topology_key": "zone"}]}))
    await harness.place()
    assert sorted(filter(None, await nodes_of(harness, fast))) == ["x1", "y1"]
    zones = [(name or "?")[0] for name in await nodes_of(harness, even)]
    assert (zones.count("x"), zones.count("y")) == (2, 2)


async def test_a_node_port_belongs_to_one_task_and_is_released_at_its_end(harness: Harness):
    node_id = await harness.node("a")
    constraints = wishes({"ports": 2, "host_ports": [{"port": 8080}]})
    first = await harness.submit("first", constraints=constraints)
    second = await harness.submit("second", constraints=constraints)
    await harness.place()
    (holder,) = await harness.tasks(first)
    assert holder.ports == [["TCP", 8080], ["TCP", 2000], ["TCP", 2001]]
    assert await harness.statuses(second) == ["PENDING"], "8080 is taken"
    rows = await harness.rows(select(port_allocations.c.port).where(port_allocations.c.node_id == node_id))
    assert sorted(row.port for row in rows) == [2000, 2001, 8080]

    await harness.stop(first)
    await harness.move(holder, TaskStatus.CANCELLED)
    await harness.place()
    assert await harness.statuses(second) == ["SCHEDULED"]
    (taker,) = await harness.tasks(second)
    assert {port for _, port in taker.ports} == {8080, 2000, 2001}


async def test_a_replacement_goes_where_its_workload_has_not_failed_yet(harness: Harness):
    await harness.node("a")
    await harness.node("b", cpu=64, memory="256Gi")
    workload = await harness.submit("w")
    await harness.place()
    (failing,) = await harness.tasks(workload)
    assert failing.node_name == "b", "the emptier one"
    await harness.move(failing, TaskStatus.FAILED)
    await harness.replace_ended()
    (replacement,) = await harness.tasks(workload)
    assert replacement.attempt == 2
    decisions = await harness.propose(at=replacement.not_before)
    assert [placement.node_name for placement in decisions[0].placements] == ["a"]
