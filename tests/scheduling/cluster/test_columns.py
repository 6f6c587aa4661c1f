from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.resources.slots import fits
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster.journal import Journal
from mooring.scheduling.cluster.trial import Trial
from mooring.scheduling.cluster_state import Cluster
from tests.scheduling.builders import id_of, node

amounts = st.integers(0, 2**61)


def row_of(cluster: Cluster, name: str) -> int:
    row = cluster.row_of(id_of(name))
    assert row is not None
    return row


def row_array(cluster: Cluster, *names: str) -> Rows:
    return np.array([row_of(cluster, name) for name in names], dtype=np.intp)


def changed(cluster: Cluster, revision: int) -> list[str]:
    rows = cluster.changes.since(revision)
    assert rows is not None
    return sorted(cluster.node(row).name for row in rows)


@given(amounts, amounts, amounts, amounts, st.integers(0, 2**63 - 1))
def test_columns_apply_the_fit_rule(allocatable, held, reserved, used, request):
    counted = replace(
        node("a").node,
        allocatable={"licences": allocatable},
        held={"licences": held},
        reserved={"licences": reserved},
        used={"licences": used},
    )
    cluster = Cluster([counted])
    demand = cluster.demand((("licences", request),))
    assert bool(cluster.fits(demand, cluster.rows)[0, 0]) == fits(allocatable, held, reserved, used, request)


def test_columns_keep_their_values_when_nodes_and_slots_are_added():
    cluster = Cluster(node(f"n{number}").slot(f"slot-{number}", number).node for number in range(200))
    assert len(cluster) == len(cluster.rows) == 200
    for number in range(200):
        demand = cluster.demand(((f"slot-{number}", 0),))
        free = cluster.free(demand, cluster.rows)[0]
        assert free[cluster.rows == row_of(cluster, f"n{number}")] == number
        assert free.sum() == number


def test_a_reused_row_keeps_nothing_of_its_former_node():
    cluster = Cluster([node("a").cpu(8).slot("gpu", 1).used(cpu=8).tasks(3, at_most=3).load(90, 90).node])
    row = row_of(cluster, "a")
    cluster.remove(id_of("a"))
    assert len(cluster) == 0
    assert cluster.row_of(id_of("a")) is None
    assert cluster.allocatable.sum() == cluster.taken.sum() == cluster.tasks.sum() == cluster.ready.sum() == 0
    cluster.upsert(node("b").cpu(4).node)
    assert row_of(cluster, "b") == row
    assert cluster.free(cluster.demand((("cpu", 0), ("gpu", 0))), cluster.rows).tolist() == [[4000], [0]]
    assert cluster.tasks[row] == cluster.cpu_load[row] == 0


def test_an_unknown_node_is_ignored_when_removed_or_measured():
    cluster = Cluster()
    cluster.remove(id_of("gone"))
    cluster.set_load(id_of("gone"), 1, 1)
    assert cluster.changes.revision == 0


def test_a_row_without_a_node_has_none():
    with pytest.raises(KeyError):
        Cluster().node(0)


def test_upsert_overwrites_assumptions():
    cluster = Cluster([node("a").cpu(8).node])
    demand = cluster.demand((("cpu", 3000),))
    cluster.assume(cluster.rows, demand)
    assert cluster.free(demand, cluster.rows).tolist() == [[5000]]
    cluster.upsert(node("a").cpu(8).used(cpu=1).tasks(1).node)
    assert cluster.free(demand, cluster.rows).tolist() == [[7000]]
    assert cluster.tasks[cluster.rows].tolist() == [1]


def test_more_requests_than_the_cache_of_demands_holds():
    cluster = Cluster([node("a").cpu(2500).node])
    demands = [cluster.demand((("cpu", amount),)) for amount in range(5000)]
    assert all(cluster.demand((("cpu", amount),)).amounts == demands[amount].amounts for amount in (0, 1, 4999))


def test_precedence_follows_names_not_rows():
    cluster = Cluster(node(name).node for name in ("c", "a", "b"))
    cluster.remove(id_of("a"))
    cluster.upsert(node("d").node)
    order = sorted(cluster.rows, key=lambda row: -cluster.precedence[row])
    assert [cluster.node(row).name for row in order] == ["b", "c", "d"]
    cluster.upsert(replace(node("d").node, name="a"))
    assert cluster.node(int(np.argmax(cluster.precedence))).name == "a"


def test_the_journal_lists_the_rows_that_changed():
    cluster = Cluster([node("a").cpu(8).node, node("b").cpu(8).node])
    revision, static = cluster.changes.revision, cluster.static_changes.revision

    cluster.upsert(node("a").cpu(8).node)
    assert changed(cluster, revision) == []
    cluster.upsert(node("a").cpu(8).used(cpu=1).node)
    assert changed(cluster, revision) == ["a"]
    cluster.set_load(id_of("b"), 5, 5)
    assert changed(cluster, revision) == ["a", "b"]
    assert cluster.static_changes.revision == static

    cluster.upsert(node("b").cpu(8).load(5, 5).generation(2).node)
    assert cluster.static_changes.since(static) is not None
    assert cluster.static_changes.revision == static + 1


def test_a_reader_too_far_behind_gets_no_list_of_rows():
    journal = Journal()
    journal.note(range(100_000))
    assert journal.since(0) is None
    assert journal.since(journal.revision) is not None
    latest = journal.since(journal.revision - 1)
    assert latest is not None
    assert latest.tolist() == [99_999]


def test_a_reverted_trial_changes_nothing():
    cluster = Cluster(node(name).cpu(8).memory("8Gi").node for name in "abc")
    taken, tasks = cluster.taken.copy(), cluster.tasks.copy()
    trial = Trial(cluster)
    trial.assume(row_array(cluster, "a", "b"), cluster.demand((("cpu", 1000),)))
    trial.assume(row_array(cluster, "a"), cluster.demand((("memory", 5),)))
    assert cluster.tasks[row_of(cluster, "a")] == 2
    trial.revert()
    assert np.array_equal(cluster.taken, taken)
    assert np.array_equal(cluster.tasks, tasks)
