"""Topics of the most frequent commits: submissions, placements and starts, which give most loops nothing to do.

A loop names those that it ignores. Every other commit starts it, also one whose topics nobody foresaw: a needless
iteration costs a query, a missing one delays work until the timer.
"""

from __future__ import annotations

from mooring.model.events import Topic
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.store.control import events

Group = frozenset[Topic]

SUBMITTED: Group = frozenset({("workload", WorkloadStatus.PENDING.value)})
UNSCHEDULABLE: Group = frozenset({("workload", events.UNSCHEDULABLE)})
PLACED: Group = frozenset(
    {
        ("workload", WorkloadStatus.SCHEDULED.value),
        ("task", TaskStatus.SCHEDULED.value),
        ("pool", events.PLACED),
        ("tenant", events.USAGE),
    }
)
CHARGED: Group = frozenset({("tenant", events.USAGE)})
STARTED: Group = frozenset(
    {
        ("workload", WorkloadStatus.PREPARING.value),
        ("workload", WorkloadStatus.RUNNING.value),
        ("task", TaskStatus.PREPARING.value),
        ("task", TaskStatus.RUNNING.value),
        ("task", events.READY),
        ("task", events.RENEWED),
    }
)
ROUTINE = SUBMITTED | UNSCHEDULABLE | PLACED | STARTED
