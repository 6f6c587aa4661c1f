"""Mooring's own records of ended workloads, as `mooring usage --workloads -o json` prints them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import slot_type
from mooring.simulation.inputs.text_files import invalid
from mooring.simulation.jobs import Job
from mooring.wire.tenancy.accounting import WorkloadRecord, WorkloadRecordList


def read_accounting(text: str, name: str) -> list[Job]:
    """Return the workloads that ran, with the tenants, pools and priorities that they had; time 0 is the first one."""
    try:
        records = WorkloadRecordList.model_validate_json(text).workloads
    except ValidationError as problem:
        first = problem.errors()[0]
        raise invalid(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    ran = sorted(
        (record for record in records if record.started_at is not None and record.run_seconds > 0),
        key=lambda record: (record.created_at, record.id),
    )
    return [_job(number, record, ran, name) for number, record in enumerate(ran)]


def _job(number: int, record: WorkloadRecord, ran: Sequence[WorkloadRecord], name: str) -> Job:
    try:
        request = {slot: slot_type(slot).parse(amount) for slot, amount in record.requested.items()}
    except InvalidInput as problem:
        raise invalid(f"{name}, workload {record.name}: {problem.message}") from None
    return Job(
        number,
        record.name,
        int((record.created_at - ran[0].created_at).total_seconds()),
        record.run_seconds,
        None,
        request,
        max(record.tasks, 1),
        user=record.user,
        project=f"{record.domain}/{record.project}",
        domain=record.domain,
        pool=record.pool,
        priority=record.priority,
    )
