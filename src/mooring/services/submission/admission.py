"""Admission at submission: workloads that a validator refuses are never written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mooring.mirror.admission import read_tenants
from mooring.model.policy.pools import Moment
from mooring.model.tenancy.admission import AdmissionError
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, Admission, AdmissionContext, Pending, Validator
from mooring.scheduling.admission.registry import asked_at
from mooring.scheduling.tenant_usage import Usage, tenants_of
from mooring.services.submission.submitted import as_workload
from mooring.store.core.engine import Connection
from mooring.store.nodes import pools
from mooring.store.tenancy import pending_counts
from mooring.store.tenancy.policies import Policies, policies_of
from mooring.store.workloads import dependencies
from mooring.store.workloads.new_workloads import NewWorkload

_DEFAULT = frozenset(each.name for each in asked_at(Moment.ENQUEUE, BUILT_IN_VALIDATORS, None))
"""Validators that have an effect only with a policy that limits pending work."""


@dataclass(slots=True)
class Gate:
    """Checks the submissions of one transaction in order; each that passes counts as pending for the next."""

    _workloads: Mapping[UUID, Workload]
    _pending: dict[str, Pending]
    _admission: Admission | None
    """None if no validator could refuse anything."""
    _apart: bool
    """Third-party validators run, so not on the event loop."""

    async def refuses(self, new: NewWorkload) -> AdmissionError | None:
        if self._admission is None:
            return None
        workload = self._workloads[new.id]
        try:
            if self._apart:
                await asyncio.to_thread(self._admission.check, workload)
            else:
                self._admission.check(workload)
        except AdmissionError as error:
            return error
        if not workload.exempt and workload.access_key in self._pending:
            self._pending[workload.access_key] = self._pending[workload.access_key].plus(workload)
        return None


_OPEN = Gate({}, {}, None, False)


async def open_gate(
    connection: Connection,
    fresh: Sequence[NewWorkload],
    validators: Sequence[Validator],
    now: datetime,
    carried: Mapping[str, Policies] | None = None,
) -> Gate:
    """Read the inputs of the validators; keypairs with limits on pending work are locked.

    `carried`: the policies of the keypairs that have any, read here unless they are given.
    """
    if not fresh:
        return _OPEN
    known = {pool.id: pool for pool in await pools.all_pools(connection)}
    asked = {
        each.name
        for pool_id in {new.pool_id for new in fresh}
        for each in asked_at(Moment.ENQUEUE, validators, known[pool_id].policy)
    }
    if carried is None:
        carried = await policies_of(connection, {new.principal.access_key for new in fresh})
    found = {key: policies.effective for key, policies in carried.items()}
    limited = {key for key, policy in found.items() if policy.limits_pending}
    if not limited and asked <= _DEFAULT:
        return _OPEN
    workloads = {
        new.id: as_workload(
            new, known[new.pool_id], await dependencies.with_current_status(connection, new.schedule.dependencies)
        )
        for new in fresh
    }
    usage = Usage()
    await read_tenants(usage, connection, {t for each in workloads.values() for t in tenants_of(each)}, now)
    pending = {key: Pending(*waits) for key, waits in (await pending_counts.pending(connection, limited)).items()}
    by_name = {pool.name: pool.policy for pool in known.values()}
    context = AdmissionContext(now, usage, Moment.ENQUEUE, found, pending)
    apart = not asked <= {each.name for each in BUILT_IN_VALIDATORS}
    return Gate(workloads, pending, Admission(context, validators, by_name), apart)
