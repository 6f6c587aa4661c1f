"""Bookings are confirmed with their place or refused with what would fit; together they never exceed a node."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.scheduling import Cluster
from mooring.scheduling.calendar.bookings import Booked, book
from mooring.scheduling.calendar.capacity_queries import Alternatives
from tests.scheduling.builders import id_of, node
from tests.selection import examples


def cluster_of(**cores: int) -> Cluster:
    return Cluster([node(name).cpu(count).node for name, count in cores.items()])


def ask(cluster: Cluster, key: str, count: int, start: int, end: int) -> dict[str, int] | Alternatives:
    """Book so many tasks of one core; by the names of nodes how many each takes."""
    answer = book(cluster, key, cluster.rows, cluster.demand((("cpu", 1000),)), count, start, end)
    if isinstance(answer, Booked):
        return {cluster.node(row).name: tasks for row, tasks in answer.placements}
    return answer


def test_the_tightest_node_that_takes_all_tasks_is_booked():
    cluster = cluster_of(large=8, small=4, tiny=2)
    assert ask(cluster, "first", 3, 0, 10) == {"small": 3}
    assert ask(cluster, "second", 3, 5, 15) == {"large": 3}
    assert ask(cluster, "third", 3, 10, 20) == {"small": 3}


def test_tasks_that_no_node_takes_alone_are_shared_by_few_nodes():
    assert ask(cluster_of(a=4, b=2, c=8), "lab", 11, 0, 10) == {"c": 8, "a": 3}


def test_a_refused_booking_promises_nothing_and_says_what_would_fit():
    cluster = cluster_of(n=8)
    ask(cluster, "first", 2, 100, 200)
    assert ask(cluster, "second", 8, 150, 160) == Alternatives(200, 6)
    assert ask(cluster, "third", 6, 150, 160) == {"n": 6}


def test_no_booking_rests_on_a_guess():
    cluster = Cluster([node("n").cpu(4).used(cpu=3).node])
    core = cluster.demand((("cpu", 1000),))
    cluster.set_expected_ends(id_of("n"), {}, {id_of("task"): (50, {"cpu": 3000})})
    assert cluster.timeline.task_capacity(cluster.rows, core, 60, 70).tolist() == [4]
    assert ask(cluster, "lab", 2, 60, 70) == Alternatives(None, 1)
    cluster.set_expected_ends(id_of("n"), {id_of("task"): (80, {"cpu": 3000})}, {id_of("task"): (50, {"cpu": 3000})})
    assert ask(cluster, "lab", 2, 60, 70) == Alternatives(80, 1)
    assert cluster.timeline.task_capacity(cluster.rows, core, 60, 70).tolist() == [4]
    assert ask(cluster, "lab", 2, 80, 90) == {"n": 2}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 20), st.integers(1, 10), st.integers(0, 3)), min_size=5, max_size=25
    )
)
def test_at_no_time_is_more_promised_than_a_node_has(asked: list[tuple[int, int, int, int]]):
    """Each asks for tasks in a window, after as many earlier ones were cancelled."""
    cluster = cluster_of(a=4, b=2)
    confirmed: dict[str, tuple[dict[str, int], int, int]] = {}
    for number, (count, start, length, cancelled) in enumerate(asked):
        for key in list(confirmed)[:cancelled]:
            for name in confirmed.pop(key)[0]:
                cluster.timeline.remove((key, cluster.row_of(id_of(name))))
        answer = ask(cluster, str(number), count, start, start + length)
        if not isinstance(answer, Alternatives):
            confirmed[str(number)] = (answer, start, start + length)
        elif answer.start is not None:
            assert not isinstance(ask(cluster, "later", count, answer.start, answer.start + length), Alternatives)
            for row in cluster.rows.tolist():
                cluster.timeline.remove(("later", row))
        for name, cores in (("a", 4), ("b", 2)):
            for second in range(30):
                busy = sum(on.get(name, 0) for on, first, last in confirmed.values() if first <= second < last)
                assert busy <= cores
