"""Waiting for a workload by long polls, through short outages of the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mooring.cli.words import reason_text, running_text, status_text
from mooring.client.operations import LONG_POLL_SECONDS
from mooring.model.errors import Unavailable
from mooring.model.lifecycle import WorkloadStatus, is_workload_end
from mooring.wire.api import WorkloadDetail, WorkloadView

if TYPE_CHECKING:
    from mooring.cli.progress import Progress
    from mooring.client import Client

T = TypeVar("T")

OUTAGE_SECONDS = 60.0
# A server that answers at once although nothing has changed must not be asked in a tight loop.
PAUSE_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Waited:
    detail: WorkloadDetail
    met: bool
    """False: the time was over first."""


def has_ended(workload: WorkloadView) -> bool:
    return workload.status in WorkloadStatus.__members__ and is_workload_end(WorkloadStatus(workload.status))


def is_up(workload: WorkloadView) -> bool:
    """Runs, or never will."""
    return workload.status == WorkloadStatus.RUNNING or has_ended(workload)


def wait_until(
    client: Client,
    ref: str,
    condition: Callable[[WorkloadDetail], bool],
    *,
    timeout_seconds: float | None,
    progress: Progress,
) -> Waited:
    """Look at the workload at every change until the condition holds or the time is over."""
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    detail = through_outages(lambda: client.workload(ref), progress)
    while True:
        if condition(detail):
            return Waited(detail, met=True)
        remaining = LONG_POLL_SECONDS if deadline is None else deadline - time.monotonic()
        if remaining <= 0:
            return Waited(detail, met=False)
        progress.show(describe(detail))
        seen = detail
        asked = time.monotonic()
        hold = min(remaining, LONG_POLL_SECONDS)
        detail = through_outages(
            lambda: client.wait(str(seen.id), "changed", version=seen.version, timeout_seconds=hold),  # noqa: B023
            progress,
        )
        if detail.version == seen.version and time.monotonic() - asked < min(PAUSE_SECONDS, hold):
            time.sleep(min(PAUSE_SECONDS, remaining))


def through_outages(ask: Callable[[], T], progress: Progress) -> T:
    """Ask again while the server cannot be reached, for a minute; a restart of it should not end a wait."""
    began: float | None = None
    pause = 0.2
    while True:
        try:
            return ask()
        except Unavailable:
            began = began or time.monotonic()
            if time.monotonic() - began > OUTAGE_SECONDS:
                raise
            progress.show(f"the server does not answer; trying for {OUTAGE_SECONDS:g} seconds")
            time.sleep(pause)
            pause = min(pause * 2, 5.0)


def describe(workload: WorkloadView) -> str:
    """Where it stands and why."""
    text = f"{workload.name}: {status_text(workload.status, simulated=workload.simulated)}"
    if workload.replicas > 1 or workload.kind == "deployment":
        text += f", {running_text(workload.running, workload.replicas)}"
    if workload.kind == "deployment" and workload.ready != workload.running:
        text += f", {workload.ready} ready"
    if (rollout := workload.rollout) is not None and rollout.phase != "done":
        text += f", revision {rollout.revision} {rollout.phase}: {rollout.updated} updated, {rollout.outdated} outdated"
    reason = reason_text(workload.reason)
    return f"{text} ({reason})" if reason else text
