"""A drain is tried before it is begun: the tasks that leave, and the nodes that would take them."""

import pytest

from mooring.model.errors import NotFound
from mooring.model.workloads.workload import Kind
from mooring.services.queries.queries import Queries
from tests.store.harness import Harness


async def test_a_preview_names_the_nodes_that_would_take_the_replicas(harness: Harness):
    await harness.node("old", cpu=5)
    web = await harness.submit("web", replicas=2, cpu=2)
    job = await harness.submit("job", kind=Kind.SESSION, cpu="0.5", memory=0)
    await harness.place()
    for workload in (web, job):
        await harness.run(workload)
    # One replica fits here, and the other one nowhere.
    await harness.node("new", cpu=3)
    preview = await Queries(harness.database).drain_preview("old", timeout=False)
    shown = sorted((task.workload, task.effect, task.target or "") for task in preview.tasks)
    assert shown == [("job", "finishes", ""), ("web", "moves", ""), ("web", "moves", "new")]
    assert (preview.moves, preview.waiting) == (2, 1)


async def test_a_preview_with_a_timeout_shows_the_end_of_sessions(harness: Harness):
    await harness.node("old", cpu=4)
    batch = await harness.submit("batch", kind=Kind.SESSION, cpu=1, memory=0)
    notebook = await harness.submit("notebook", kind=Kind.SESSION, type="interactive", cpu=1, memory=0)
    await harness.place()
    for workload in (batch, notebook):
        await harness.run(workload)
    await harness.node("new", cpu=4)
    preview = await Queries(harness.database).drain_preview("old", timeout=True)
    assert [(task.workload, task.effect, task.target) for task in preview.tasks] == [
        ("batch", "requeued", "new"),
        ("notebook", "ends", None),
    ]


async def test_a_preview_of_an_empty_node_is_empty_and_there_is_none_of_an_unknown_one(harness: Harness):
    await harness.node("old", cpu=4)
    queries = Queries(harness.database)
    preview = await queries.drain_preview("old", timeout=False)
    assert (preview.tasks, preview.moves, preview.waiting) == ([], 0, 0)
    with pytest.raises(NotFound, match="node 'none'"):
        await queries.drain_preview("none", timeout=False)
