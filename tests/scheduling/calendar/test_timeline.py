"""What is promised of nodes over time: bookings, expected ends, and what fits from when on."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.errors import InvalidInput
from mooring.model.slots import Amounts, total
from mooring.scheduling import Cluster
from mooring.scheduling.arrays import Demand, Rows
from mooring.scheduling.timeline import NEVER, Alternatives, Timeline
from mooring.scheduling.trial import Trial
from tests.scheduling.builders import id_of, node
from tests.scheduling.timeline_reference import SECONDS, SLOTS, Kept, Reference

ROWS = 6
TIMES = st.integers(0, SECONDS - 20)
AMOUNTS = st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 5), max_size=2)
SEEN = st.integers(1, 18)
KEYS = st.integers(1, 8).map(lambda number: UUID(int=number))


def one_node(cores: int = 8) -> tuple[Timeline, Demand, Rows]:
    """A node, and the demand for one core of it."""
    cluster = Cluster([node("n").cpu(cores).node])
    return cluster.timeline, cluster.demand((("cpu", 1000),)), cluster.rows


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_the_timeline_agrees_with_one_that_looks_at_every_second(data: st.DataObject):
    allocatable = [data.draw(st.fixed_dictionaries({slot: st.integers(0, 12) for slot in SLOTS})) for _ in range(ROWS)]
    taken = [data.draw(AMOUNTS) for _ in range(ROWS)]
    reference = Reference(allocatable, taken)
    cluster = Cluster()
    for number in range(ROWS):
        cluster.upsert(node(f"n{number}")._with(allocatable=allocatable[number], used=taken[number]).node)
    places = [cluster.row_of(id_of(f"n{number}")) for number in range(ROWS)]
    timeline = cluster.timeline
    for _ in range(data.draw(st.integers(1, 8))):
        change(data, timeline, reference, [place for place in places if place is not None])
        ask(data, cluster, reference)


def change(data: st.DataObject, timeline: Timeline, reference: Reference, places: list[int]) -> None:
    key, number = data.draw(KEYS), data.draw(st.integers(0, ROWS - 1))
    start, length, amounts = data.draw(TIMES), data.draw(st.none() | SEEN), data.draw(AMOUNTS)
    end = None if length is None else start + length
    known = reference.kept.get(key)
    reference.seen.clear()
    match data.draw(st.sampled_from(["book", "book", "expect", "remove", "extend", "move", "advance"])):
        case "book":
            timeline.add(key, places[number], start, end, amounts)
            reference.kept[key] = Kept(number, start, end, amounts)
        case "expect" if end is not None and _is_taken(reference, key, number, amounts):
            timeline.expect(key, places[number], end, amounts)
            reference.kept[key] = Kept(number, None, end, amounts)
        case "remove":
            timeline.remove(key)
            reference.kept.pop(key, None)
        case "extend" if known is not None and (end is None or end > (known.start or 0)):
            timeline.extend(key, end)
            known.end = end
        case "move" if known is not None:
            timeline.move(key, places[number], start, end)
            reference.kept[key] = Kept(number, start, end, known.amounts)
        case "advance":
            reference.now += data.draw(st.integers(0, 3))
            timeline.advance(reference.now)
            ended = [k for k, each in reference.kept.items() if _over(each, reference.now)]
            for each in ended:
                del reference.kept[each]


def _is_taken(reference: Reference, key: object, number: int, amounts: Amounts) -> bool:
    """Only what is taken comes back, and once."""
    others = [each for k, each in reference.kept.items() if k != key and each.start is None and each.row == number]
    comes_back = total([amounts, *(each.amounts for each in others)])
    return all(amount <= reference.taken[number].get(slot, 0) for slot, amount in comes_back.items())


def _over(kept: Kept, now: int) -> bool:
    return kept.start is not None and kept.end is not None and kept.end <= now


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
    room = np.minimum(timeline.room(rows, demand, start, end), 4).tolist()
    assert room == [reference.room(number, request, start, end, 4) for number in numbers]
    found = [reference.earliest([number], request, length, start) for number in numbers]
    assert timeline.earliest(rows, demand, length, start).tolist() == [NEVER if t is None else t for t in found]
    together = reference.earliest(numbers, request, length, start, count=3)
    assert timeline.earliest_together(rows, demand, length, 3, start) == (NEVER if together is None else together)
    if cluster.fits(demand, rows).all():
        always = [reference.fits(number, request, reference.now, None) for number in numbers]
        assert (demand.amounts <= timeline.free_always(rows, demand)).all(axis=0).tolist() == always
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


def test_what_fits_free_always_needs_no_look_at_time():
    timeline, core, rows = one_node()
    timeline.add("lab", int(rows[0]), 100, 200, {"cpu": 5000})
    assert timeline.free_always(rows, core).tolist() == [[3000]]
    assert not len(timeline.conflicts(rows, core.times(3), None))
    assert len(timeline.conflicts(rows, core.times(4), None))
    assert not len(timeline.conflicts(rows, core.times(4), 100))
    assert len(timeline.conflicts(rows, core.times(4), 101))


def test_refused_bookings_are_told_when_all_would_fit_and_how_many_fit_as_asked():
    timeline, core, rows = one_node(8)
    timeline.add("lab", int(rows[0]), 100, 200, {"cpu": 2000})
    assert timeline.alternatives(rows, core, 8, 150, 160) == Alternatives(200, 6)
    assert timeline.alternatives(rows, core, 9, 150, 160) == Alternatives(None, 6)
    assert timeline.alternatives(rows, core, 8, 150, 160, horizon=199) == Alternatives(None, 6)


def test_an_end_that_passed_is_expected_any_second():
    cluster = Cluster([node("n").cpu(1).used(cpu=1).node])
    core, rows = cluster.demand((("cpu", 1000),)), cluster.rows
    cluster.tell_ends(id_of("n"), {id_of("task"): (50, {"cpu": 1000})})
    cluster.timeline.advance(70)
    assert cluster.timeline.earliest(rows, core, 10, 0).tolist() == [71]


def test_a_node_that_is_told_anew_has_open_ends_until_these_are_told():
    full = node("n").cpu(1).used(cpu=1).node
    cluster = Cluster([full])
    core, rows = cluster.demand((("cpu", 1000),)), cluster.rows
    cluster.tell_ends(id_of("n"), {id_of("task"): (50, {"cpu": 1000})})
    assert cluster.timeline.earliest(rows, core, 10, 0).tolist() == [50]
    cluster.upsert(full)
    assert cluster.timeline.earliest(rows, core, 10, 0).tolist() == [NEVER]


def test_the_promises_of_a_node_leave_with_it():
    cluster = Cluster([node("n").cpu(8).node])
    timeline = cluster.timeline
    timeline.add("lab", int(cluster.rows[0]), 100, 200, {"cpu": 1000})
    cluster.remove(id_of("n"))
    assert (len(timeline), timeline.booked) == (0, False)


def test_a_trial_of_promises_is_undone_as_a_whole():
    cluster = Cluster([node("n").cpu(8).node])
    timeline, rows = cluster.timeline, cluster.rows
    row = int(rows[0])
    timeline.add("kept", row, 100, 200, {"cpu": 1000})
    before = dict(timeline.on(row))
    trial = Trial(cluster)
    trial.promise("new", row, 10, 20, {"cpu": 1000})
    trial.promise("kept", row, 0, None, {"cpu": 3000})
    trial.withdraw("kept")
    trial.revert()
    assert dict(timeline.on(row)) == before
    assert timeline.peaks(rows, cluster.demand((("cpu", 1000),)), 0, None).tolist() == [[1000]]


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


def test_a_slot_that_comes_later_has_its_place_on_the_timeline():
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
