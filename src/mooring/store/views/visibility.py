"""Visibility of work to a principal, as a condition on workloads or other rows that have the same tenant columns."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ColumnElement, false, or_, true

from mooring.model.tenancy.access import Sight
from mooring.store.tables import workloads


def shown_to(
    sight: Sight,
    *,
    domain_id: ColumnElement[UUID] = workloads.c.domain_id,
    project_id: ColumnElement[UUID] = workloads.c.project_id,
    user_id: ColumnElement[UUID] = workloads.c.user_id,
) -> ColumnElement[bool]:
    """Return the SQL equivalent of `Sight.shows`."""
    if sight.everything:
        return true()
    reasons: list[ColumnElement[bool]] = []
    if sight.domain_id is not None:
        reasons.append(domain_id == sight.domain_id)
    if sight.project_ids:
        reasons.append(project_id.in_(sorted(sight.project_ids)))
    if sight.user_id is not None:
        own = user_id == sight.user_id
        reasons.append(own if sight.within is None else own & (project_id == sight.within))
    return or_(false(), *reasons)
