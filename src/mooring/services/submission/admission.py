"""Admission at submission: workloads that a validator refuses are never written."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mooring.clock import monotonic
from mooring.mirror.admission import read_tenants
from mooring.model.policy.pools import Moment
from mooring.model.tenancy.admission import AdmissionError
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, Admission, AdmissionContext, Pending, Validator
from mooring.scheduling.admission.registry import asked_at
from mooring.scheduling.tenant_usage import Usage, tenants_of
from mooring.services.submission.submitted import as_workload
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core.engine import Connection
from mooring.store.nodes import pools
from mooring.store.nodes.pools import Pool
from mooring.store.tenancy import pending_counts
from mooring.store.tenancy.policies import Policies, policies_of
from mooring.store.workloads import dependencies
from mooring.store.workloads.new_workloads import NewWorkload

_DEFAULT = frozenset(each.name for each in asked_at(Moment.ENQUEUE, BUILT_IN_VALIDATORS, None))
"""Validators that have an effect only with a policy that limits pending work."""


_RULES_SECONDS = 5.0
"""Pools and policies are read again after this long, in case the signal of a change was lost."""


class Rules:
    """The pools and policies that decide on admission, read again whenever the configuration may have changed."""

    def __init__(self, configuration: ConfigurationVersion | None = None) -> None:
        """Without `configuration` they are read each time."""
        self._configuration = configuration
        self._version = -1
        self._read_at = float("-inf")
        self._pools: Mapping[UUID, Pool] = {}
        self._policies: dict[str, Policies | None] = {}

    async def pools(self, connection: Connection, wanted: Set[UUID]) -> Mapping[UUID, Pool]:
        """Return all pools. Without one of the wanted ones, which may be new, they are read again."""
        self._forget_if_changed()
        if not wanted <= self._pools.keys():
            version = self._version
            found = {pool.id: pool for pool in await pools.all_pools(connection)}
            if not self._is_current(version):
                return found
            self._pools = found
        return self._pools

    async def policies_of(self, connection: Connection, access_keys: Collection[str]) -> dict[str, Policies]:
        """Return the policies of the given keypairs; keypairs that no policy applies to are absent."""
        self._forget_if_changed()
        known, version = self._policies, self._version
        missing = set(access_keys) - known.keys()
        read = await policies_of(connection, missing) if missing else {}
        if self._is_current(version):
            known |= {key: read.get(key) for key in missing}
        return {key: found for key in access_keys if (found := read.get(key) or known.get(key)) is not None}

    def _forget_if_changed(self) -> None:
        if not self._is_current(self._version) or monotonic() - self._read_at > _RULES_SECONDS:
            self._read_at = monotonic()
            self._version = -1 if self._configuration is None else self._configuration.number
            self._pools, self._policies = {}, {}

    def _is_current(self, version: int) -> bool:
        return self._configuration is not None and version == self._configuration.number


@dataclass(slots=True)
class Gate:
    """Checks the submissions of one transaction in order; each that passes counts as pending for the next."""

    _workloads: Mapping[UUID, Workload]
    _pending: dict[str, Pending]
    _admission: Admission | None
    """None if no validator could refuse anything."""
    _in_thread: bool
    """Third-party validators run, so not on the event loop."""

    async def refuses(self, new: NewWorkload) -> AdmissionError | None:
        workload = self._workloads.get(new.id)
        if self._admission is None or workload is None:
            return None
        try:
            if self._in_thread:
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
    rules: Rules | None = None,
) -> Gate:
    """Read the inputs of the validators; keypairs with limits on pending work are locked."""
    if not fresh:
        return _OPEN
    rules = rules or Rules()
    known = await rules.pools(connection, {new.pool_id for new in fresh})
    # Work for a pool that was removed meanwhile is refused by the database.
    fresh = [new for new in fresh if new.pool_id in known]
    asked = {
        each.name
        for pool_id in {new.pool_id for new in fresh}
        for each in asked_at(Moment.ENQUEUE, validators, known[pool_id].policy)
    }
    carried = await rules.policies_of(connection, {new.principal.access_key for new in fresh})
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
    in_thread = not asked <= {each.name for each in BUILT_IN_VALIDATORS}
    return Gate(workloads, pending, Admission(context, validators, by_name), in_thread)
