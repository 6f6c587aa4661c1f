"""The log lines of a committed transaction."""

from uuid import UUID

from structlog.testing import capture_logs

from mooring.model.lifecycle import WorkloadStatus
from mooring.model.workloads.workload import Kind
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.status_changes import Applied, WorkloadChange


def test_the_log_names_a_workload_by_its_name_and_id():
    old, new = WorkloadStatus.PENDING, WorkloadStatus.RUNNING
    change = WorkloadChange(UUID(int=7), "web", Kind.DEPLOYMENT, old, new, None)
    with capture_logs() as logged:
        log_applied(Applied(workloads=[change]))
    assert [line["event"] for line in logged] == [f"Deployment web ({UUID(int=7)}) status: pending -> running"]
