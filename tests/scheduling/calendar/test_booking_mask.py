"""The kernels place work around bookings as the definition does, though they do not look at time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.policy.pools import HeadOfLine
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler, placer
from mooring.scheduling.calendar.seconds import seconds_of
from tests.scheduling.builders import NOW, id_of, node, workload
from tests.selection import examples


@pytest.fixture(autouse=True, scope="module")
def kernels_place_few_workloads() -> Iterator[None]:
    """Let the kernels place even a few workloads beside promises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placer, "_FEW_WORKLOADS", 0)
        yield


class Booking(NamedTuple):
    node: int
    starts: int
    lasts: int
    cores: int


class Wanted(NamedTuple):
    cores: int
    seconds: int | None
    tasks: int
    gang: bool
    single: bool


bookings = st.builds(Booking, st.integers(0, 3), st.integers(1, 90), st.integers(1, 60), st.integers(1, 8))
wishes = st.builds(
    Wanted,
    st.integers(1, 5),
    st.sampled_from([None, 10, 40, 80, 200]),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
)


def placements(
    cores: list[int],
    booked: list[Booking],
    queue: list[Workload],
    head_of_line: HeadOfLine,
    notice: int | None,
    *,
    compiled: bool,
) -> list[tuple[str, list[str]]]:
    scheduler = Scheduler(
        [node(f"n{number}").cpu(count).node for number, count in enumerate(cores)],
        head_of_line=head_of_line,
        compiled=compiled,
    )
    timeline = scheduler.cluster.timeline
    timeline.advance(seconds_of(NOW))
    timeline.allow_open_ended("default", notice)
    for number, (name, starts, lasts, taken) in enumerate(booked):
        row = scheduler.cluster.row_of(id_of(f"n{name}"))
        if row is not None:
            first = seconds_of(NOW) + starts
            timeline.add(number, row, first, first + lasts, {"cpu": min(taken, cores[name]) * 1000})
    decided = scheduler.place(queue, NOW).decisions
    return [(each.workload.name, [place.node_name for place in each.placements]) for each in decided]


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.lists(bookings, min_size=1, max_size=4),
    st.lists(wishes, min_size=1, max_size=14),
    st.sampled_from(HeadOfLine),
    st.sampled_from([None, 20, 60]),
)
def test_the_kernels_keep_off_what_is_booked_as_the_definition_does(
    cores: list[int], booked: list[Booking], wanted: list[Wanted], head_of_line: HeadOfLine, notice: int | None
):
    queue = [
        replace(
            workload(f"w{number:02}").cpu(each.cores).replicas(each.tasks).created(-number).workload,
            time_limit_seconds=each.seconds,
            gang=each.gang,
            single_node=each.single,
        )
        for number, each in enumerate(wanted)
    ]
    expected = placements(cores, booked, queue, head_of_line, notice, compiled=False)
    assert placements(cores, booked, queue, head_of_line, notice, compiled=True) == expected
