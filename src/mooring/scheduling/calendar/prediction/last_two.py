"""The mean of a user's last two similar runs, after Tsafrir, Etsion and Feitelson (2007).

Similar are the runs of the most specific class of which the user has had two.
"""

from __future__ import annotations

from mooring.model.workloads.lifetime.runs import EndedRun, JobFeatures
from mooring.scheduling.calendar.prediction.run_history import RunHistory

_FEWEST = 2


class LastTwoRuns:
    gap_share = 1.0

    def __init__(self) -> None:
        self.history = RunHistory()

    def seconds(self, job: JobFeatures) -> float | None:
        """Return the mean of the last two similar runs; None if there were fewer."""
        for times in self.history.recent(job):
            if len(times) >= _FEWEST:
                return sum(times[-_FEWEST:]) / _FEWEST
        return None

    def learn(self, run: EndedRun) -> None:
        self.history.learn(run)
