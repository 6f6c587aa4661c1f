"""The last run times of each user's jobs, by class of similar jobs. Bounded: the users and classes seen last remain."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from uuid import UUID

from mooring.model.workloads.lifetime.runs import EndedRun, JobFeatures

MAX_USERS = 1000
MAX_CLASSES = 32
"""Per user, so that no user displaces the classes of others."""
NEWEST = 10
"""Run times that are kept per class."""
ALL: Hashable = ()
"""The class of all jobs of a user."""


def classes_of(job: JobFeatures) -> tuple[Hashable, ...]:
    """Return the classes of a job, the most specific first: same limit and size, same limit, same size, any job."""
    size = job.millicores, job.gpu
    return (
        ("alike", job.type, job.name, job.limit_seconds, size),
        ("limit", job.type, job.name, job.limit_seconds),
        ("size", job.type, size),
        ALL,
    )


class RunHistory:
    def __init__(self) -> None:
        self._users: OrderedDict[UUID, OrderedDict[Hashable, list[int]]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of run times."""
        return sum(len(times) for own in self._users.values() for times in own.values())

    def recent(self, job: JobFeatures) -> list[Sequence[int]]:
        """Return the last run times of the user by class of the job, the most specific first, each oldest first."""
        own = self._users.get(job.user_id)
        return [()] * 4 if own is None else [own.get(each, ()) for each in classes_of(job)]

    def learn(self, run: EndedRun) -> None:
        own = self._users.setdefault(run.job.user_id, OrderedDict())
        self._users.move_to_end(run.job.user_id)
        for each in classes_of(run.job):
            times = own.setdefault(each, [])
            own.move_to_end(each)
            times.append(run.seconds)
            del times[:-NEWEST]
        while len(own) > MAX_CLASSES:
            own.popitem(last=False)
        while len(self._users) > MAX_USERS:
            self._users.popitem(last=False)
