"""Promised capacity of nodes over time: bookings, expected ends, and earliest starts."""

from __future__ import annotations

import random
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.resources.slots import Amounts, total
from mooring.model.workloads.workload import NO_CONSTRAINTS, Workload
from mooring.scheduling import Cluster
from mooring.scheduling.calendar import capacity_queries, promises, step_functions
from mooring.scheduling.calendar.capacity_queries import Alternatives
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.calendar.timeline import Timeline
from mooring.scheduling.cluster.arrays import Demand, Rows
from mooring.scheduling.cluster.footprints import Footprint
from tests.scheduling.builders import id_of, node
from tests.scheduling.calendar.timeline_reference import (
    SECONDS,
    SLOTS,
    Reference,
    Stored,
)
from tests.selection import examples

ROWS = 6
TIMES = st.integers(0, SECONDS - 20)
AMOUNTS = st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 5), max_size=2)
SEEN = st.integers(1, 18)
KEYS = st.integers(1, 8).map(lambda number: UUID(int=number))


def one_node(cores: int = 8) -> tuple[Timeline, Demand, Rows]:
    """A node, and the demand for one core of it."""
    cluster = Cluster([node("n").cpu(cores).node])
    return cluster.timeline, cluster.demand((("cpu", 1000),)), cluster.rows


@settings(max_examples=examples(250), deadline=None)
@given(data=st.data())
def test_the_timeline_agrees_with_one_that_looks_at_every_second(data: st.DataObject):
    agree(data)


@pytest.mark.parametrize("few_rows", [0, ROWS])
@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_arrays_and_plain_lists_agree_with_one_that_looks_at_every_second(few_rows: int, data: st.DataObject):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promises, "_FEW_ROWS", few_rows)
        agree(data)


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_binary_searches_in_rows_agree_with_one_that_looks_at_every_second(data: st.DataObject):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promises, "_FEW_ROWS", 0)
        patch.setattr(step_functions, "_NARROW", 0)
        agree(data)


@settings(max_examples=examples(250), deadline=None)
@given(data=st.data())
def test_rows_that_are_changed_in_place_agree_with_one_that_looks_at_every_second(data: st.DataObject):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_functions, "_MANY", 2)
        patch.setattr(step_functions, "_REACH", 2)
        patch.setattr(promises, "_STEPS_PER_CHANGE", 0)
        patch.setattr(promises, "MOST_AT_ONCE", 0)
        agree(data)


@settings(max_examples=examples(250), deadline=None)
@given(data=st.data())
def test_rows_that_are_built_together_agree_with_one_that_looks_at_every_second(data: st.DataObject):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promises, "_ROWS_ONE_BY_ONE", 0)
        agree(data)


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_a_search_by_spans_of_time_agrees_with_one_that_looks_at_every_second(data: st.DataObject):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promises, "_SPAN_BITS", 1)
        patch.setattr(capacity_queries, "_SEARCHED_BY_SPANS", 0)
        patch.setattr(capacity_queries, "_FIRST_SPAN", 2)
        agree(data)


@settings(max_examples=examples(100), deadline=None)
@given(
    running=st.lists(st.tuples(st.integers(0, 2), st.integers(1, SECONDS), AMOUNTS), max_size=8),
    request=st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 5), min_size=1),
    times=st.lists(TIMES, min_size=1, max_size=2),
)
def test_releases_summed_row_by_row_equal_those_summed_at_once(
    running: list[tuple[int, int, Amounts]], request: Amounts, times: list[int]
):
    cluster = Cluster([Node(name=f"n{number}", allocatable=dict.fromkeys(SLOTS, 8)) for number in range(3)])
    timeline, demand = cluster.timeline, cluster.demand(tuple(sorted(request.items())))
    for key, (row, end, amounts) in enumerate(running):
        cluster.count_amounts([row], [amounts], 1)
        timeline.expect(key, row, end, amounts)
    answers: list[list[int]] = []
    for one_by_one in (0, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(capacity_queries, "_SUMMED_ONE_BY_ONE", one_by_one)
            capacities = timeline.capacities_without((), cluster.rows, demand, times)
            answers.append(np.concatenate(capacities).tolist())
    assert answers[0] == answers[1]


@settings(max_examples=examples(100), deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 3), TIMES, st.integers(0, 1), st.integers(-5, 5)), max_size=40),
    before=st.lists(st.tuples(st.integers(0, 3), TIMES, st.integers(0, 1), st.integers(-5, 5)), max_size=40),
    start=TIMES,
    seconds=st.integers(1, SECONDS),
)
def test_rows_built_in_a_batch_equal_rows_built_one_by_one(
    changes: list[tuple[int, int, int, int]], before: list[tuple[int, int, int, int]], start: int, seconds: int
):
    rows, slots = np.arange(4), np.arange(2)
    batch, one_by_one = step_functions.StepFunctions(4, 2), step_functions.StepFunctions(4, 2)
    for stage in (before, changes):
        batch.build_several(rows, *np.array(stage, dtype=np.int64).reshape(-1, 4).T)
        for row in rows.tolist():
            own = [(0, *rest) for number, *rest in stage if number == row]
            own_changes = np.array(own, dtype=np.int64).reshape(-1, 4).T
            _, times, amounts = step_functions.steps_of(*own_changes, rows=1, slots_in_all=2)
            one_by_one.build(row, times, amounts)
    for found, expected in (
        (
            batch.highest(rows, slots, start, start + seconds),
            one_by_one.highest(rows, slots, start, start + seconds),
        ),
        (batch.highest_ever(rows, slots[:, None]), one_by_one.highest_ever(rows, slots[:, None])),
        *zip(
            batch.within(rows, slots, start, start + seconds),
            one_by_one.within(rows, slots, start, start + seconds),
            strict=True,
        ),
    ):
        assert found.tolist() == expected.tolist()


def agree(data: st.DataObject) -> None:
    allocatable = [data.draw(st.fixed_dictionaries({slot: st.integers(0, 12) for slot in SLOTS})) for _ in range(ROWS)]
    taken = [data.draw(AMOUNTS) for _ in range(ROWS)]
    reference = Reference(allocatable, taken)
    cluster = Cluster()
    for number in range(ROWS):
        cluster.upsert(node(f"n{number}")._with(allocatable=allocatable[number], used=taken[number]).node)
    rows_of = [cluster.row_of(id_of(f"n{number}")) for number in range(ROWS)]
    timeline = cluster.timeline
    for _ in range(data.draw(st.integers(1, 8))):
        change(data, timeline, reference, [row for row in rows_of if row is not None])
        ask(data, cluster, reference)


@pytest.mark.parametrize("seed", range(3))
def test_a_row_changed_in_place_equals_a_rebuilt_one(seed: int):
    generator = random.Random(seed)
    timeline, core, rows = one_node(cores=64)
    row = int(rows[0])
    booked: dict[int, tuple[int, int, int]] = {}
    for number in range(1500):
        if booked and generator.random() < 0.3:
            removed = generator.choice(sorted(booked))
            timeline.remove(removed)
            del booked[removed]
        else:
            start = generator.randrange(5000)
            booked[number] = start, start + generator.randint(1, 200), 1000 * generator.randint(0, 3)
            timeline.add(number, row, *booked[number][:2], {"cpu": booked[number][2]})
        timeline.task_capacity(rows, core, 0, None)
        if number % 300 == 0:
            anew, _, _ = one_node(cores=64)
            for key, (start, end, cpu) in booked.items():
                anew.add(key, row, start, end, {"cpu": cpu})
            for begin in range(0, 5200, 97):
                for until in (begin + 1, begin + 60, None):
                    found, expected = (each.peaks(rows, core, begin, until) for each in (timeline, anew))
                    assert found.tolist() == expected.tolist()
            for cores, seconds in ((10, 50), (30, 500), (64, None)):
                found, expected = (
                    each.earliest(rows, core.times(cores), seconds, 100, horizon=3000) for each in (timeline, anew)
                )
                assert found.tolist() == expected.tolist()


def test_one_more_booking_costs_the_same_beside_a_thousand_and_beside_eight_thousand():
    assert cost_of_more_bookings(beside=8192) <= 2 * cost_of_more_bookings(beside=1024)


def cost_of_more_bookings(beside: int) -> int:
    """The steps that are written for more bookings of a node that has some, each of which is asked for by itself."""
    timeline, core, rows = one_node()
    row = int(rows[0])
    for number in range(beside):
        timeline.add(number, row, 100 * number, 100 * number + 150, {"cpu": 1000})
    assert timeline.task_capacity(rows, core, 0, None).tolist() == [6]
    before = timeline.steps_written
    for number in range(100):
        start = 100 * number * beside // 100 + 20
        assert timeline.task_capacity(rows, core, start, start + 120).tolist() == [6]
        timeline.add(beside + number, row, start, start + 120, {"cpu": 1000})
        assert timeline.task_capacity(rows, core, start, start + 120).tolist() == [5]
    return timeline.steps_written - before


def change(data: st.DataObject, timeline: Timeline, reference: Reference, rows_of: list[int]) -> None:
    key, number = data.draw(KEYS), data.draw(st.integers(0, ROWS - 1))
    start, length, amounts = data.draw(TIMES), data.draw(st.none() | SEEN), data.draw(AMOUNTS)
    end = None if length is None else start + length
    known = reference.stored.get(key)
    reference.seen.clear()
    match data.draw(st.sampled_from(["book", "book", "expect", "remove", "extend", "move", "advance"])):
        case "book":
            timeline.add(key, rows_of[number], start, end, amounts)
            reference.stored[key] = Stored(number, start, end, amounts)
        case "expect" if end is not None and _is_taken(reference, key, number, amounts):
            timeline.expect(key, rows_of[number], end, amounts)
            reference.stored[key] = Stored(number, None, end, amounts)
        case "remove":
            timeline.remove(key)
            reference.stored.pop(key, None)
        case "extend" if known is not None and (end is None or end > (known.start or 0)):
            timeline.extend(key, end)
            known.end = end
        case "move" if known is not None:
            timeline.move(key, rows_of[number], start, end)
            reference.stored[key] = Stored(number, start, end, known.amounts)
        case "advance":
            reference.now += data.draw(st.integers(0, 3))
            timeline.advance(reference.now)
            ended = [k for k, each in reference.stored.items() if _over(each, reference.now)]
            for each in ended:
                del reference.stored[each]


def _is_taken(reference: Reference, key: object, number: int, amounts: Amounts) -> bool:
    """Only what is taken comes back, and once."""
    others = [each for k, each in reference.stored.items() if k != key and each.start is None and each.row == number]
    comes_back = total([amounts, *(each.amounts for each in others)])
    return all(amount <= reference.taken[number].get(slot, 0) for slot, amount in comes_back.items())


def _over(stored: Stored, now: int) -> bool:
    return stored.start is not None and stored.end is not None and stored.end <= now


def ask(data: st.DataObject, cluster: Cluster, reference: Reference) -> None:
    timeline, numbers = cluster.timeline, range(ROWS)
    rows = np.array([cluster.row_of(id_of(f"n{number}")) for number in numbers], dtype=np.intp)
    start, length = data.draw(TIMES), data.draw(st.none() | SEEN)
    # What began before now is over for what is asked.
    start = max(start, reference.now)
    end = None if length is None else start + length
    request = data.draw(AMOUNTS)
    demand = cluster.demand(tuple(sorted(request.items())))
    peaks = timeline.peaks(rows, demand, start, end)
    for at, slot in enumerate(demand.names):
        assert peaks[at].tolist() == [reference.peak(number, slot, start, end) for number in numbers]
    fits = [reference.fits(number, request, start, end) for number in numbers]
    assert timeline.fits(rows, demand, start, end).tolist() == fits
    task_capacity = np.minimum(timeline.task_capacity(rows, demand, start, end), 4).tolist()
    assert task_capacity == [reference.task_capacity(number, request, start, end, 4) for number in numbers]
    found = [reference.earliest([number], request, length, start) for number in numbers]
    assert timeline.earliest(rows, demand, length, start).tolist() == [NEVER if t is None else t for t in found]
    each = timeline.earliest(rows, demand, length, start)
    first, has_it = timeline.soonest(rows, demand, length, start)
    assert first == each.min()
    assert has_it.tolist() == (each == first).tolist()
    gang_start = reference.earliest(numbers, request, length, start, count=3)
    assert timeline.earliest_for_gang(rows, demand, length, 3, start) == (NEVER if gang_start is None else gang_start)
    if cluster.fits(demand, rows).all():
        booked = [
            row
            for row, number in zip(rows.tolist(), numbers, strict=True)
            if not reference.fits(number, request, reference.now, None)
        ]
        assert timeline.conflicts(rows, demand, None).tolist() == booked
        touching = [
            int(row)
            for row, number in zip(rows, numbers, strict=True)
            if not reference.fits(number, request, reference.now, reference.now + (length or SECONDS))
        ]
        assert timeline.conflicts(rows, demand, length).tolist() == touching
    for number in numbers:
        alone = timeline.fits(rows[number : number + 1], demand, start, end)
        assert alone.tolist() == [reference.fits(number, request, start, end)]


def test_a_booking_counts_in_its_window_and_neither_before_nor_after_it():
    timeline, core, rows = one_node()
    timeline.add("lab", int(rows[0]), 100, 200, {"cpu": 7500})
    windows = [(0, 100), (0, 101), (199, 200), (200, 300), (50, None)]
    assert [bool(timeline.fits(rows, core, *window)[0]) for window in windows] == [True, False, False, True, False]


def test_a_booking_conflicts_only_with_tasks_that_do_not_fit_beside_it_and_reach_its_window():
    timeline, core, rows = one_node()
    timeline.add("lab", int(rows[0]), 100, 200, {"cpu": 5000})
    assert not len(timeline.conflicts(rows, core.times(3), None))
    assert len(timeline.conflicts(rows, core.times(4), None))
    assert not len(timeline.conflicts(rows, core.times(4), 100))
    assert len(timeline.conflicts(rows, core.times(4), 101))


def test_refused_bookings_state_when_all_would_fit_and_how_many_fit_as_requested():
    timeline, core, rows = one_node(8)
    timeline.add("lab", int(rows[0]), 100, 200, {"cpu": 2000})
    assert timeline.alternatives(rows, core, 8, 150, 160) == Alternatives(200, 6)
    assert timeline.alternatives(rows, core, 9, 150, 160) == Alternatives(None, 6)
    assert timeline.alternatives(rows, core, 8, 150, 160, horizon=199) == Alternatives(None, 6)


def test_an_end_that_passed_is_expected_any_second():
    cluster = Cluster([node("n").cpu(1).used(cpu=1).node])
    core, rows = cluster.demand((("cpu", 1000),)), cluster.rows
    cluster.set_expected_ends(id_of("n"), {id_of("task"): (50, {"cpu": 1000})})
    cluster.timeline.advance(70)
    assert cluster.timeline.earliest(rows, core, 10, 0).tolist() == [71]


def test_a_replaced_node_has_open_ends_until_its_ends_are_set():
    full = node("n").cpu(1).used(cpu=1).node
    cluster = Cluster([full])
    core, rows = cluster.demand((("cpu", 1000),)), cluster.rows
    cluster.set_expected_ends(id_of("n"), {id_of("task"): (50, {"cpu": 1000})})
    assert cluster.timeline.earliest(rows, core, 10, 0).tolist() == [50]
    cluster.upsert(full)
    assert cluster.timeline.earliest(rows, core, 10, 0).tolist() == [NEVER]


def test_the_promises_of_a_node_leave_with_it():
    cluster = Cluster([node("n").cpu(8).node])
    timeline = cluster.timeline
    timeline.add("lab", int(cluster.rows[0]), 100, 200, {"cpu": 1000})
    cluster.remove(id_of("n"))
    assert (len(timeline), timeline.booked) == (0, False)


def test_the_next_change_is_the_next_start_or_end_of_what_is_promised_and_not_taken():
    timeline, _, rows = one_node()
    row = int(rows[0])
    timeline.add("lab", row, 100, 200, {"cpu": 1000})
    timeline.add("other", row, 50, 60, {"cpu": 1000})
    timeline.remove("other")
    timeline.expect("running", row, 70, {"cpu": 1000})
    assert timeline.next_change() == 100
    timeline.advance(150)
    assert timeline.next_change() == 200
    timeline.advance(200)
    assert timeline.next_change() is None


def test_a_slot_added_later_is_on_the_timeline():
    cluster = Cluster([node("n").cpu(8).node])
    timeline, rows = cluster.timeline, cluster.rows
    for number in range(12):
        timeline.add(number, int(rows[0]), number, None, {f"licence-{number}": 1})
    demand = cluster.demand((("licence-11", 1),))
    assert timeline.peaks(rows, demand, 0, None).tolist() == [[1]]


def test_empty_windows_and_unknown_promises_are_refused_and_change_nothing():
    timeline, _, rows = one_node()
    timeline.add("lab", int(rows[0]), 100, 200, {"cpu": 1000})
    before = dict(timeline.on(int(rows[0])))
    with pytest.raises(InvalidInput, match="not after its start"):
        timeline.add("lab", int(rows[0]), 100, 100, {"cpu": 1000})
    with pytest.raises(InvalidInput, match="not after its start"):
        timeline.extend("lab", 90)
    with pytest.raises(InvalidInput, match="nothing is promised under other"):
        timeline.extend("other", 300)
    assert dict(timeline.on(int(rows[0]))) == before


def test_work_without_an_end_may_use_capacity_that_is_booked_beyond_its_notice():
    timeline, core, rows = one_node()
    timeline.add("year", rows[0], 1000, 2000, {"cpu": 8000})
    assert timeline.conflicts(rows, core, None).tolist() == rows.tolist()
    assert timeline.conflicts(rows, core, None, 1000).tolist() == []
    assert timeline.conflicts(rows, core, None, 1001).tolist() == rows.tolist()
    # The notice is for work without an end alone.
    assert timeline.conflicts(rows, core, 1001, 500).tolist() == rows.tolist()


def test_nothing_is_moved_for_planned_starts_and_maintenance():
    timeline, core, rows = one_node()
    timeline.add("upkeep", rows[0], 1000, 2000, {"cpu": 8000}, firm=True)
    assert timeline.conflicts(rows, core, None, 10).tolist() == rows.tolist()
    timeline.remove("upkeep")
    owner = UUID(int=1)
    timeline.plan("default", owner, 0, rows[0], 1000, None, {"cpu": 8000}, Footprint(NO_CONSTRAINTS))
    assert timeline.conflicts(rows, core, None, 10).tolist() == rows.tolist()
    timeline.drop_plan(owner)
    timeline.add("booked", rows[0], 1000, 2000, {"cpu": 8000})
    assert timeline.conflicts(rows, core, None, 10).tolist() == []


def test_only_what_has_no_end_counts_as_movable():
    cluster = Cluster([node("n").cpu(8).used(cpu=6).node])
    timeline, rows = cluster.timeline, cluster.rows
    timeline.expect(UUID(int=1), rows[0], 5000, {"cpu": 2000})
    core = cluster.demand((("cpu", 1000),))
    assert timeline.task_capacity(rows, core, 1000, 2000).tolist() == [2]
    with timeline.movable(rows, 1000):
        assert timeline.task_capacity(rows, core, 1000, 2000).tolist() == [6]
        assert timeline.task_capacity(rows, core, 999, 2000).tolist() == [2]
    assert timeline.task_capacity(rows, core, 1000, 2000).tolist() == [2]


def test_guessed_end_that_passes_is_corrected_and_never_exceeds_the_latest_end():
    cluster = Cluster([node("n").cpu(4).node])
    task = {id_of("task"): (500, {"cpu": 1000})}
    cluster.set_expected_ends(id_of("n"), task, {id_of("task"): (100, {"cpu": 1000})})
    seen = []
    for now in (99, 100, 159, 160, 460, 501):
        cluster.timeline.advance(now)
        promise = cluster.timeline.get(id_of("task"))
        assert promise is not None
        seen.append(promise.end)
    # One minute after 100, five minutes after that, then the latest end, and after it any moment.
    assert seen == [100, 160, 160, 460, 500, 502]


def test_guess_that_has_passed_is_corrected_when_it_is_read_again():
    cluster = Cluster([node("n").cpu(4).node])
    cluster.timeline.advance(200)
    cluster.set_expected_ends(id_of("n"), {}, {id_of("task"): (100, {"cpu": 1000})})
    promise = cluster.timeline.get(id_of("task"))
    assert promise is not None
    assert promise.end == 100 + 60 + 300


@pytest.mark.parametrize(("booked", "closed"), [(False, []), (True, [0])])
def test_predictions_count_beside_plans_and_limits_beside_bookings(booked: bool, closed: list[int]):
    cluster = Cluster([node("n").cpu(4).node])
    timeline = cluster.timeline
    demand = cluster.demand((("cpu", 3000),))
    if booked:
        timeline.add("booking", 0, 100, 200, {"cpu": 4000})
    else:
        timeline.plan("default", id_of("head"), 0, 0, 100, 200, {"cpu": 4000}, Footprint(NO_CONSTRAINTS))
    filler = Workload(name="filler", request={"cpu": 3000}, time_limit_seconds=1000, predicted_seconds=50)
    assert timeline.closed_to(filler, cluster.rows, demand).tolist() == closed
    assert timeline.planned_seconds(filler) == (1000 if booked else 50)


@pytest.mark.parametrize(("booked", "closed"), [(False, []), (True, [0])])
def test_work_starts_in_a_shorter_gap_than_its_prediction_only_beside_plans(booked: bool, closed: list[int]):
    cluster = Cluster([node("n").cpu(4).node])
    timeline, demand = cluster.timeline, cluster.demand((("cpu", 3000),))
    if booked:
        timeline.add("booking", 0, 100, 200, {"cpu": 4000})
    else:
        timeline.plan("default", id_of("head"), 0, 0, 100, 200, {"cpu": 4000}, Footprint(NO_CONSTRAINTS))
    filler = Workload(
        name="filler",
        request={"cpu": 3000},
        time_limit_seconds=1000,
        predicted_seconds=300,
        predicted_gap_seconds=75,
    )
    assert timeline.closed_to(filler, cluster.rows, demand).tolist() == closed
    assert timeline.is_closed_to(filler, 0, demand) in (None, bool(closed))
    assert timeline.planned_seconds(filler) == (1000 if booked else 300)


def test_guessed_end_of_running_work_frees_nothing_beside_a_booking():
    cluster = Cluster([node("n").cpu(4).node])
    timeline = cluster.timeline
    cluster.set_expected_ends(id_of("n"), {id_of("task"): (300, {"cpu": 2000})}, {id_of("task"): (50, {"cpu": 2000})})
    cluster.count_amounts([0], [{"cpu": 2000}], 1)
    timeline.add("booking", 0, 100, 200, {"cpu": 2000})
    demand = cluster.demand((("cpu", 2000),))
    filler = Workload(name="filler", request={"cpu": 2000}, time_limit_seconds=150)
    # By the guess, the booking and the filler would fit from second 50 on.
    assert timeline.closed_to(filler, cluster.rows, demand).tolist() == [0]
    promise = timeline.get(id_of("task"))
    assert promise is not None
    assert promise.end == 50
