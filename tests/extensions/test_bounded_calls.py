"""Code of others is called for a limited time."""

import threading
from functools import partial

import pytest

from mooring.extensions.bounded_calls import Contained, Hangs


def test_results_and_exceptions_of_the_call_are_passed_on():
    contained = Contained(10)
    assert contained.call(lambda: 7) == 7
    with pytest.raises(ValueError, match="wrong"):
        contained.call(partial(int, "wrong"))
    assert contained.call(lambda: 8) == 8


def test_while_a_call_hangs_no_further_one_is_made_and_afterwards_they_are():
    begun, released, made = threading.Event(), threading.Event(), []

    def hang() -> None:
        made.append("hang")
        begun.set()
        released.wait()

    contained = Contained(0.01)
    with pytest.raises(Hangs, match=r"did not answer within 0\.01 s"):
        contained.call(hang)
    with pytest.raises(Hangs, match="still hangs in an earlier call"):
        contained.call(partial(made.append, "other"))
    assert begun.wait(60)
    assert made == ["hang"]
    released.set()
    while contained.hangs:
        threading.Event().wait(0.001)
    contained._seconds = 60
    contained.call(partial(made.append, "after"))
    assert made == ["hang", "after"]


def test_calls_do_not_wait_for_each_other():
    meeting = threading.Barrier(2)
    contained = Contained(10)
    both = [threading.Thread(target=contained.call, args=(meeting.wait,)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(10)
    assert not any(thread.is_alive() for thread in both)
