"""What a principal may see of work, as a condition on workloads or on what belongs to tenants as they do."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ColumnElement, false, or_, true

from mooring.model.access import Sight
from mooring.store.tables import workloads


def shown_to(
    sight: Sight,
    *,
    domain_id: ColumnElement[UUID] = workloads.c.domain_id,
    project_id: ColumnElement[UUID] = workloads.c.project_id,
    user_id: ColumnElement[UUID] = workloads.c.user_id,
) -> ColumnElement[bool]:
    """The same as `Sight.shows`, for the database."""
    if sight.everything:
        return true()
    reasons: list[ColumnElement[bool]] = []
    if sight.domain_id is not None:
        reasons.append(domain_id == sight.domain_id)
    if sight.project_ids:
        reasons.append(project_id.in_(sorted(sight.project_ids)))
    if sight.user_id is not None:
        reasons.append(user_id == sight.user_id)
    return or_(false(), *reasons)
