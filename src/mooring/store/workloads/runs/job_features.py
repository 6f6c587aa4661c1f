"""The features of a workload's row that predict how long it runs."""

from __future__ import annotations

from mooring.model.workloads.lifetime.runs import JobFeatures
from mooring.store.core.types import AnyRow
from mooring.store.tables import workloads

_own = workloads.c
FEATURES = (
    _own.user_id,
    _own.type,
    _own.name,
    _own.time_limit_seconds,
    _own.gang,
    _own.replicas,
    _own.requested_slots.label("workload_slots"),
    _own.created_at.label("submitted_at"),
)


def features_of(row: AnyRow) -> JobFeatures:
    """Return the features from a row with the columns `FEATURES`; the tasks of a gang count as one run."""
    return JobFeatures.of(
        user_id=row.user_id,
        type=row.type,
        name=row.name,
        limit_seconds=row.time_limit_seconds,
        request=row.workload_slots,
        tasks=row.replicas if row.gang else 1,
        submitted_at=row.submitted_at,
    )
