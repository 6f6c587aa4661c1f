"""Runs of workloads, as the prediction of run times sees them: known at submission, and how long they took."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from mooring.model.resources.slots import Amounts

_CPU, _GPU = "cpu", "gpu"
_MOST_NAME_CHARACTERS = 32


class JobFeatures(NamedTuple):
    """The features of a workload that are known when it is submitted."""

    user_id: UUID
    type: str
    name: str
    """Its name without digits: jobs that are numbered are alike."""
    limit_seconds: int | None
    millicores: int
    """Of all its tasks."""
    gpu: int
    """Of all its tasks, in thousandths."""
    submitted_at: datetime

    @classmethod
    def of(
        cls,
        *,
        user_id: UUID,
        type: str,
        name: str,
        limit_seconds: int | None,
        request: Amounts,
        tasks: int,
        submitted_at: datetime,
    ) -> JobFeatures:
        letters = "".join(each for each in name if not each.isdigit())[:_MOST_NAME_CHARACTERS]
        cpu, gpu = request.get(_CPU, 0) * tasks, request.get(_GPU, 0) * tasks
        return cls(user_id, type, letters, limit_seconds, cpu, gpu, submitted_at)


class EndedRun(NamedTuple):
    job: JobFeatures
    seconds: int
