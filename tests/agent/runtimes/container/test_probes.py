"""How many answers in a row make it certain that a container is well, or is not."""

from __future__ import annotations

from mooring.agent.containers.probes import Tally
from mooring.wire.agent import ProbeSpec


def test_only_answers_in_a_row_make_it_certain():
    tally = Tally(ProbeSpec(port=80, failures=3, successes=2))
    answers = [(True, None), (False, None), (True, None), (True, True), (False, None), (False, None), (False, False)]
    assert [tally.take(well) for well, _ in answers] == [certain for _, certain in answers]
