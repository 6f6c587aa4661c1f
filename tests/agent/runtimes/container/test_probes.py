"""Number of consecutive results that decide a probe."""

from __future__ import annotations

from mooring.agent.runtimes.container.probes import ProbeTally
from mooring.wire.agents.desired_tasks import ProbeSpec


def test_only_answers_in_a_row_make_it_certain():
    tally = ProbeTally(ProbeSpec(port=80, failures=3, successes=2))
    answers = [(True, None), (False, None), (True, None), (True, True), (False, None), (False, None), (False, False)]
    assert [tally.take(well) for well, _ in answers] == [certain for _, certain in answers]
