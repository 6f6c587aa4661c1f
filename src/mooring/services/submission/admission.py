"""Admission at submission: what the validators refuse there is never written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mooring.intake.submitted import as_workload
from mooring.mirror.admission import tell_tenants
from mooring.model.admission import AdmissionError
from mooring.model.policies import Policy
from mooring.model.pools import Moment
from mooring.model.workloads import Workload
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, Admission, AdmissionContext, Pending, Validator
from mooring.scheduling.admission.validators import asked_at
from mooring.scheduling.usage import Usage, tenants_of
from mooring.store import admission, dependencies, pools
from mooring.store import policies as store_policies
from mooring.store.engine import Connection
from mooring.store.workloads import NewWorkload

_DEFAULT = frozenset(each.name for each in asked_at(Moment.ENQUEUE, BUILT_IN_VALIDATORS, None))
"""Those that only policies with a limit on what waits give something to do."""


@dataclass(slots=True)
class Gate:
    """Asks about the submissions of one transaction in their order; each that passes is pending to the next."""

    _workloads: Mapping[UUID, Workload]
    _pending: dict[str, Pending]
    _admission: Admission | None
    """None where nothing could be refused."""
    _apart: bool
    """Code of others is asked: not in the loop's own thread."""

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
    connection: Connection, fresh: Sequence[NewWorkload], validators: Sequence[Validator], now: datetime
) -> Gate:
    """Read what these submissions are judged by; keypairs that have limits on what waits are locked."""
    if not fresh:
        return _OPEN
    known = {pool.id: pool for pool in await pools.all_pools(connection)}
    asked = {
        each.name
        for pool_id in {new.pool_id for new in fresh}
        for each in asked_at(Moment.ENQUEUE, validators, known[pool_id].policy)
    }
    carried = await store_policies.policies_of(connection, {new.principal.access_key for new in fresh})
    found = {key: policies.innermost for key, policies in carried.items()}
    limited = {key for key, policy in found.items() if _limits_pending(policy)}
    if not limited and asked <= _DEFAULT:
        return _OPEN
    workloads = {
        new.id: as_workload(
            new, known[new.pool_id], await dependencies.as_they_stand(connection, new.terms.dependencies)
        )
        for new in fresh
    }
    usage = Usage()
    await tell_tenants(usage, connection, {t for each in workloads.values() for t in tenants_of(each)}, now)
    pending = {key: Pending(*waits) for key, waits in (await admission.pending(connection, limited)).items()}
    by_name = {pool.name: pool.policy for pool in known.values()}
    context = AdmissionContext(now, usage, Moment.ENQUEUE, found, pending)
    apart = not asked <= {each.name for each in BUILT_IN_VALIDATORS}
    return Gate(workloads, pending, Admission(context, validators, by_name), apart)


def _limits_pending(policy: Policy) -> bool:
    return bool(policy.max_pending_slots) or (policy.max_pending or 0) > 0
