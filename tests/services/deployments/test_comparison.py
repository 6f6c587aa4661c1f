"""Comparison of a workload with a request."""

from uuid import UUID

from mooring.clock import now
from mooring.model.policy.pools import PoolPolicy
from mooring.model.tenancy.tenants import Principal, Role
from mooring.services.deployments.comparison import COMPARED
from mooring.services.submission.submission_context import SubmissionContext
from mooring.services.submission.translation import translate
from mooring.store.nodes.pools import Pool
from mooring.store.views.workloads import WorkloadRow
from mooring.store.workloads.new_workloads import row_of
from mooring.wire.workloads.workloads import WorkloadRequest

ELSEWHERE = {
    "id", "name", "status", "created_at", "updated_at", "next_index",
    "domain_id", "user_id", "access_key",
    # Where they are named.
    "pool_id", "project_id", "timeslot_id", "rollout",
    # Field by field, with what follows from it.
    "template", "runtime", "requested_slots", "constraints", "upload_id",
}  # fmt: skip


def test_nothing_that_is_written_for_a_request_is_forgotten():
    who = Principal(UUID(int=1), "ada", Role.USER, UUID(int=2), UUID(int=3), "AK")
    pool = Pool(UUID(int=4), "default", PoolPolicy("locality"), frozenset({"process"}), simulated=False)
    request = WorkloadRequest.model_validate({"containers": [{"command": ["true"]}]})
    written = row_of(translate(request, SubmissionContext(who, [pool]))[0], now())
    assert written.keys() - ELSEWHERE == set(COMPARED)
    assert set(COMPARED) <= set(WorkloadRow.__dataclass_fields__)
