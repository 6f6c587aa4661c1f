"""A rolling update step by step: within its bounds whatever happens, and always to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.lifetime.rollouts import (
    Member,
    Phase,
    Rollout,
    bounds,
    check,
    is_done,
    next_step,
    progress,
    steady_at,
    to_scale,
    worst_first,
)

T = TaskStatus
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = 1, 2


@dataclass
class Fleet:
    """The tasks of a deployment on their way from one revision to the next."""

    desired: int
    surge: int = 1
    unavailable: int = 0
    members: list[Member] = field(default_factory=list)
    made: int = 0

    def add(self, number: int, revision: int = OLD, status: TaskStatus = T.RUNNING, *, ready: bool = True) -> Fleet:
        for _ in range(number):
            self.made += 1
            at = NOW + timedelta(seconds=self.made)
            self.members.append(Member(UUID(int=self.made), revision, status, at if ready else None, at, self.made))
        return self

    def change(self, chosen: Callable[[Member], bool], **values: object) -> None:
        self.members = [replace(m, **values) if chosen(m) else m for m in self.members]  # type: ignore[arg-type]

    def step(self) -> tuple[int, int]:
        """Return the numbers of created and retired tasks."""
        ready_before = self.ready
        step = next_step(self.desired, self.surge, self.unavailable, NEW, self.members)
        gone = {member.id for member in step.retire}
        assert not any(m.retiring for m in step.retire)
        self.change(lambda m: m.id in gone, retiring=True)
        self.add(step.create, NEW, T.PENDING, ready=False)
        assert not step.create or len(self.members) <= self.desired + self.surge
        assert self.ready >= min(ready_before, self.desired - self.unavailable)
        return step.create, len(step.retire)

    def arrive(self) -> None:
        """New ones become ready, and what retires is gone."""
        self.change(lambda m: m.revision == NEW, status=T.RUNNING, ready_at=NOW)
        self.members = [m for m in self.members if not m.retiring]

    @property
    def ready(self) -> int:
        return sum(m.ready for m in self.members if not m.retiring)

    def of(self, revision: int) -> int:
        return sum(m.revision == revision for m in self.members if not m.retiring)

    @property
    def done(self) -> bool:
        return is_done(self.desired, NEW, self.members)


def test_three_replicas_with_one_more_and_one_less():
    fleet = Fleet(3, surge=1, unavailable=1).add(3)
    assert fleet.step() == (1, 1)
    # While the new one starts: wait, also when the old one is gone.
    assert fleet.step() == (0, 0)
    fleet.members = [m for m in fleet.members if not m.retiring]
    assert fleet.step() == (0, 0)
    fleet.arrive()
    assert (fleet.of(NEW), fleet.of(OLD)) == (1, 2)
    assert fleet.step() == (1, 1)
    fleet.arrive()
    assert (fleet.of(NEW), fleet.of(OLD)) == (2, 1)
    assert fleet.step() == (1, 1)
    fleet.arrive()
    assert (fleet.of(NEW), fleet.of(OLD)) == (3, 0)
    assert fleet.done
    assert fleet.step() == (0, 0)


def test_a_single_replica_is_replaced_before_it_goes():
    fleet = Fleet(1).add(1)
    assert fleet.step() == (1, 0)
    fleet.arrive()
    assert fleet.step() == (0, 1)
    fleet.arrive()
    assert fleet.done


def test_without_surge_an_old_replica_ends_before_a_new_one_starts():
    fleet = Fleet(1, surge=0, unavailable=1).add(1)
    assert fleet.step() == (0, 1)
    assert fleet.step() == (0, 0)
    fleet.arrive()
    assert fleet.step() == (1, 0)
    fleet.arrive()
    assert fleet.done


def test_a_new_revision_that_never_gets_ready_takes_no_old_task_along():
    fleet = Fleet(3).add(3)
    assert fleet.step() == (1, 0)
    for _ in range(5):
        assert fleet.step() == (0, 0)
    assert (fleet.of(OLD), fleet.ready) == (3, 3)


def test_old_tasks_that_are_broken_go_as_new_ones_get_ready():
    fleet = Fleet(3).add(3, ready=False)
    for _ in range(3):
        assert fleet.step()[0] == 1
        fleet.arrive()
        assert fleet.step()[1] == 1
        fleet.arrive()
    assert fleet.done


@settings(max_examples=60, deadline=None)
@given(
    desired=st.integers(1, 12),
    surge=st.integers(0, 12),
    unavailable=st.integers(0, 12),
    broken=st.integers(0, 12),
    seed=st.integers(0, 2**32),
)
def test_it_stays_within_its_bounds_and_ends(desired: int, surge: int, unavailable: int, broken: int, seed: int):
    random = Random(seed)
    surge, unavailable = bounds(desired, str(surge), str(unavailable))
    fleet = Fleet(desired, surge, unavailable).add(desired)
    fleet.change(lambda m: m.index <= broken, ready_at=None)
    for _ in range(20):
        fleet.step()
        # Some become ready, one becomes unready, some are gone, and sometimes more or fewer are wanted.
        fleet.change(lambda m: m.revision == NEW and random.random() < 0.5, status=T.RUNNING, ready_at=NOW)
        fleet.change(lambda m: random.random() < 0.05, ready_at=None)
        fleet.members = [m for m in fleet.members if not (m.retiring and random.random() < 0.5)]
        if random.random() < 0.1:
            fleet.desired = random.randint(1, 12)
            fleet.surge, fleet.unavailable = bounds(fleet.desired, str(surge), str(unavailable))
    for _ in range(4 * (12 + fleet.made)):
        fleet.step()
        fleet.arrive()
    assert fleet.done


def test_scaling_down_removes_pending_then_broken_then_the_newest_replicas():
    fleet = Fleet(5).add(2).add(1, ready=False).add(2).add(1, status=T.PENDING, ready=False)
    assert [m.index for m in worst_first(fleet.members)] == [6, 3, 5, 4, 2, 1]
    assert [m.index for m in to_scale(3, fleet.members).retire] == [6, 3, 5]
    assert to_scale(8, fleet.members).create == 2


@pytest.mark.parametrize(
    ("desired", "surge", "unavailable", "expected"),
    [
        pytest.param(3, "1", "0", (1, 0), id="numbers"),
        pytest.param(10, "25%", "25%", (3, 2), id="more is rounded up and fewer down"),
        pytest.param(2, "0", "25%", (0, 1), id="nothing could move otherwise"),
        pytest.param(2, "0", "5", (0, 2), id="not fewer than none"),
    ],
)
def test_bounds_are_numbers_or_shares_of_what_is_wanted(desired, surge, unavailable, expected):
    assert bounds(desired, surge, unavailable) == expected


@pytest.mark.parametrize(("surge", "unavailable"), [("0", "0"), ("0%", "0"), ("-1", "1"), ("1", "x"), ("1.5", "1")])
def test_bounds_that_make_no_sense_are_refused(surge: str, unavailable: str):
    with pytest.raises(InvalidInput):
        check(Rollout(surge, unavailable))


def test_it_has_longer_than_a_task_needs_to_be_steady():
    with pytest.raises(InvalidInput, match="ready for 1m, and the rollout stalls after 30s"):
        check(Rollout(steady_seconds=60, deadline_seconds=30))


def test_a_task_counts_when_it_was_ready_for_long_enough():
    rollout = Rollout(phase=Phase.ROLLING, steady_seconds=10, progressed_at=NOW)
    fleet = Fleet(2).add(2).add(1, NEW)
    got_ready = NOW + timedelta(minutes=1)
    fleet.change(lambda m: m.revision == NEW, ready_at=got_ready)
    soon, later = (got_ready + timedelta(seconds=seconds) for seconds in (9, 10))
    assert progress("web", 2, NEW, rollout, fleet.members, soon) is None
    assert steady_at(rollout, fleet.members, soon) == later
    came = progress("web", 2, NEW, rollout, fleet.members, later)
    assert came is not None
    assert [member.revision for member in came.step.retire] == [OLD]
    assert came.rollout.ready == 1
    assert steady_at(rollout, fleet.members, later) is None
    # Nor is it done before the last one is steady.
    last = [member for member in fleet.members if member.revision == NEW]
    assert progress("web", 1, NEW, rollout, last, soon) is None
    came = progress("web", 1, NEW, rollout, last, later)
    assert came is not None
    assert came.kind == "rolled-out"
