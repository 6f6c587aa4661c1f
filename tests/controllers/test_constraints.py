"""What tasks demand of their place holds from the request to the node, over ends and new starts."""

from __future__ import annotations

from sqlalchemy import select

from mooring.intake.placing import constraints_of
from mooring.model.constraints import Constraints, Taint
from mooring.model.lifecycle import TaskStatus
from mooring.store.tables import port_allocations
from mooring.wire.placement import PlacementRequest
from tests.store.harbour import Harbour


def wishes(placement: dict[str, object], **labels: str) -> Constraints:
    return constraints_of(
        PlacementRequest.model_validate(placement), name="w", labels=labels, project="default", images=[]
    )


async def nodes_of(harbour: Harbour, *workloads: object) -> list[str | None]:
    return [task.node_name for workload in workloads for task in await harbour.tasks(workload)]  # type: ignore[arg-type]


async def test_tasks_that_want_to_be_apart_are_and_the_one_too_many_waits_until_there_is_room(harbour: Harbour):
    await harbour.node("a")
    await harbour.node("b")
    apart = wishes({"anti_affinity": [{"topology_key": "node", "labels": {"app": "db"}}]}, app="db")
    first, second, third = [await harbour.submit(f"w{i}", constraints=apart) for i in range(3)]
    await harbour.place()
    assert sorted(filter(None, await nodes_of(harbour, first, second, third))) == ["a", "b"]
    assert await harbour.statuses(third) == ["PENDING"]

    # It may come where nobody of them is left, and only there.
    await harbour.stop(first)
    (ended,) = await harbour.tasks(first)
    await harbour.place()
    assert await harbour.statuses(third) == ["PENDING"]
    await harbour.move(ended, TaskStatus.CANCELLED)
    await harbour.place()
    assert await nodes_of(harbour, third) == [ended.node_name]
    assert await harbour.findings() == []


async def test_a_tainted_node_takes_only_tasks_that_tolerate_it(harbour: Harbour):
    await harbour.node("special", taints=(Taint("dedicated", "db"),))
    plain = await harbour.submit("plain")
    tolerant = await harbour.submit(
        "tolerant", constraints=wishes({"tolerations": [{"key": "dedicated", "value": "db"}]})
    )
    await harbour.place()
    assert await nodes_of(harbour, plain, tolerant) == [None, "special"]
    assert "taint" in (await harbour.workload(plain)).reason["message"]


async def test_a_selector_and_spread_are_kept_over_labels_of_nodes(harbour: Harbour):
    for zone in ("x", "y"):
        for number in (1, 2):
            await harbour.node(f"{zone}{number}", labels={"zone": zone, "disk": "ssd" if number == 1 else "hdd"})
    fast = await harbour.submit("fast", replicas=2, constraints=wishes({"node_selector": {"disk": "ssd"}}), spread=True)
    even = await harbour.submit("even", replicas=4, constraints=wishes({"spread": [{"topology_key": "zone"}]}))
    await harbour.place()
    assert sorted(filter(None, await nodes_of(harbour, fast))) == ["x1", "y1"]
    zones = [(name or "?")[0] for name in await nodes_of(harbour, even)]
    assert (zones.count("x"), zones.count("y")) == (2, 2)


async def test_ports_of_a_node_are_given_to_one_task_at_a_time_and_come_back(harbour: Harbour):
    node_id = await harbour.node("a")
    constraints = wishes({"ports": 2, "host_ports": [{"port": 8080}]})
    first = await harbour.submit("first", constraints=constraints)
    second = await harbour.submit("second", constraints=constraints)
    await harbour.place()
    (holder,) = await harbour.tasks(first)
    assert holder.ports == [["TCP", 8080], ["TCP", 2000], ["TCP", 2001]]
    assert await harbour.statuses(second) == ["PENDING"], "8080 is taken"
    rows = await harbour.rows(select(port_allocations.c.port).where(port_allocations.c.node_id == node_id))
    assert sorted(row.port for row in rows) == [2000, 2001, 8080]

    await harbour.stop(first)
    await harbour.move(holder, TaskStatus.CANCELLED)
    await harbour.place()
    assert await harbour.statuses(second) == ["SCHEDULED"]
    (taker,) = await harbour.tasks(second)
    assert {port for _, port in taker.ports} == {8080, 2000, 2001}


async def test_a_replacement_goes_where_its_workload_has_not_failed_yet(harbour: Harbour):
    await harbour.node("a")
    await harbour.node("b", cpu=64, memory="256Gi")
    workload = await harbour.submit("w")
    await harbour.place()
    (failing,) = await harbour.tasks(workload)
    assert failing.node_name == "b", "the emptier one"
    await harbour.move(failing, TaskStatus.FAILED)
    await harbour.replace_ended()
    (successor,) = await harbour.tasks(workload)
    assert successor.attempt == 2
    decisions = await harbour.propose(at=successor.not_before)
    assert [placement.node_name for placement in decisions[0].placements] == ["a"]
