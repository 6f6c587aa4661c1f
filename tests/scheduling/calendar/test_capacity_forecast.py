"""The capacity forecast: running, booked, planned and free amounts by time step."""

from mooring.scheduling import Cluster
from mooring.scheduling.calendar.capacity_forecast import (
    BOOKED,
    PLANNED,
    RUNNING,
    Window,
    capacity_forecast,
)
from tests.scheduling.builders import node


def test_each_step_has_the_most_at_one_moment_and_the_least_that_is_free():
    cluster = Cluster([node("a").cpu(8).used(cpu=3).node, node("b").cpu(8).node])
    timeline, (first, second) = cluster.timeline, cluster.rows.tolist()
    timeline.advance(1000)
    timeline.expect("job", first, 1150, {"cpu": 2000})
    timeline.add("lab", second, 1210, 1220, {"cpu": 4000})
    timeline.add("open", second, 1390, None, {"cpu": 1000})
    seen = capacity_forecast(cluster, cluster.rows, 400, 4, [Window(1100, 1300, {"cpu": 5000})])
    assert seen.slots[0] == "cpu"
    assert seen.capacity[0] == 16000
    assert seen.used[RUNNING, 0].tolist() == [3000, 3000, 1000, 1000]
    # However short it is within its step.
    assert seen.used[BOOKED, 0].tolist() == [0, 0, 4000, 1000]
    assert seen.used[PLANNED, 0].tolist() == [0, 5000, 5000, 0]
    assert seen.free[0].tolist() == [13000, 8000, 6000, 14000]


def test_nodes_that_take_no_work_have_nothing_free():
    cluster = Cluster([node("a").cpu(8).unschedulable().node])
    seen = capacity_forecast(cluster, cluster.rows, 100, 2)
    assert (seen.capacity[0], seen.free[0].tolist()) == (0, [0, 0])


def test_tasks_on_unschedulable_nodes_do_not_reduce_the_free_capacity_of_others():
    cluster = Cluster([node("a").cpu(8).used(cpu=6).unschedulable().node, node("b").cpu(8).used(cpu=1).node])
    away = cluster.rows.tolist()[0]
    cluster.timeline.advance(1000)
    cluster.timeline.expect("job", away, 1050, {"cpu": 6000})
    cluster.timeline.add("lab", away, 1010, 1200, {"cpu": 2000})
    seen = capacity_forecast(cluster, cluster.rows, 100, 2)
    assert (seen.used[RUNNING, 0].tolist(), seen.used[BOOKED, 0].tolist()) == ([7000, 1000], [2000, 2000])
    assert (seen.capacity[0], seen.free[0].tolist()) == (8000, [7000, 7000])
