"""What is compared of a workload and a request for it."""

from uuid import UUID

from mooring.clock import now
from mooring.intake.circumstances import Circumstances
from mooring.intake.comparison import COMPARED
from mooring.intake.translation import translate
from mooring.model.pools import PoolPolicy
from mooring.model.tenants import Principal, Role
from mooring.store.pools import Pool
from mooring.store.views.workloads import WorkloadRow
from mooring.store.workloads import row_of
from mooring.wire.api import WorkloadRequest

ELSEWHERE = {
    "id", "name", "status", "created_at", "updated_at", "next_index",
    "domain_id", "user_id", "access_key",
    # Where they are named.
    "pool_id", "project_id", "timeslot_id", "rollout",
    # Field by field, with what follows from it.
    "template", "runtime", "requested_slots", "constraints",
}  # fmt: skip


def test_nothing_that_is_written_for_a_request_is_forgotten():
    who = Principal(UUID(int=1), "ada", Role.USER, UUID(int=2), UUID(int=3), "AK")
    pool = Pool(UUID(int=4), "default", PoolPolicy("locality"), frozenset({"process"}), simulated=False)
    request = WorkloadRequest.model_validate({"containers": [{"command": ["true"]}]})
    written = row_of(translate(request, Circumstances(who, [pool]))[0], now())
    assert written.keys() - ELSEWHERE == set(COMPARED)
    assert set(COMPARED) <= set(WorkloadRow.__dataclass_fields__)
