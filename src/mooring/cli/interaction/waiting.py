"""Wait for a workload by long polling, through short outages of the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mooring.cli.rendering.formatting import health_text, reason_text, running_text, workload_status
from mooring.client.operations.core import LONG_POLL_SECONDS
from mooring.concurrency import backoff
from mooring.model.errors import Unavailable
from mooring.model.lifecycle import WorkloadStatus, is_workload_end
from mooring.wire.workloads.workloads import WorkloadDetail, WorkloadView

if TYPE_CHECKING:
    from mooring.cli.rendering.progress import Progress
    from mooring.client import Client

T = TypeVar("T")

OUTAGE_SECONDS = 60.0
# Avoid a tight loop if the server answers at once although nothing has changed.
PAUSE_SECONDS = 0.3
STEADY_SECONDS = 2.0
"""Time that the replicas of a new deployment have to stay ready."""


@dataclass(frozen=True, slots=True)
class Waited:
    detail: WorkloadDetail
    met: bool
    """False if the time ran out first."""


def has_ended(workload: WorkloadView) -> bool:
    return workload.status in WorkloadStatus.__members__ and is_workload_end(WorkloadStatus(workload.status))


def is_failing(workload: WorkloadView) -> bool:
    """Return whether the workload does not recover by itself: it crashes in a loop, or its image cannot be pulled."""
    return workload.health in ("crash-looping", "image-pull-failing")


class Settled:
    """The condition that a deployment has ended, is failing, or that all its replicas stay ready.

    A process without readiness probes is ready as soon as it runs, even one that crashes at its start; so the replicas
    have to stay ready for a moment, or for the steady time of the deployment.
    """

    def __init__(self) -> None:
        self._ready_since: float | None = None
        self._steady_seconds = STEADY_SECONDS

    def __call__(self, workload: WorkloadView) -> bool:
        if has_ended(workload) or is_failing(workload):
            return True
        if workload.status != WorkloadStatus.RUNNING or workload.ready < workload.replicas:
            self._ready_since = None
            return False
        wanted = 0 if workload.rollout is None else workload.rollout.steady_seconds
        self._steady_seconds = max(0 if workload.simulated else STEADY_SECONDS, wanted)
        if self._ready_since is None:
            self._ready_since = time.monotonic()
        return time.monotonic() - self._ready_since >= self._steady_seconds

    def due_in(self) -> float | None:
        """Return the seconds until the condition may hold although nothing changes."""
        if self._ready_since is None:
            return None
        return max(0.0, self._ready_since + self._steady_seconds - time.monotonic())


def wait_until(
    client: Client,
    ref: str,
    condition: Callable[[WorkloadDetail], bool],
    *,
    timeout_seconds: float | None,
    progress: Progress,
) -> Waited:
    """Poll the workload until the condition holds or the time runs out."""
    due_in = condition.due_in if isinstance(condition, Settled) else lambda: None
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
        due = due_in()
        hold = min(remaining, LONG_POLL_SECONDS if due is None else due)
        detail = through_outages(
            lambda: client.wait(str(seen.id), "changed", version=seen.version, timeout_seconds=hold),  # noqa: B023
            progress,
        )
        if detail.version == seen.version and time.monotonic() - asked < min(PAUSE_SECONDS, hold):
            time.sleep(min(PAUSE_SECONDS, remaining))


def through_outages(ask: Callable[[], T], progress: Progress) -> T:
    """Retry for a minute while the server is unreachable, so that its restart does not end a wait."""
    began: float | None = None
    pauses = backoff.delays(0.2, 5.0, jitter=0)
    while True:
        try:
            return ask()
        except Unavailable:
            began = began or time.monotonic()
            if time.monotonic() - began > OUTAGE_SECONDS:
                raise
            progress.show(f"the server does not answer; retrying for {OUTAGE_SECONDS:g} seconds")
            time.sleep(next(pauses))


def describe(workload: WorkloadView) -> str:
    """Return the status of a workload and its reason as one line."""
    text = f"{workload.name}: {workload_status(workload)}"
    if workload.replicas > 1 or workload.kind == "deployment":
        text += f", {running_text(workload.running, workload.replicas)}"
    if workload.kind == "deployment" and workload.ready != workload.running:
        text += f", {workload.ready} ready"
    if (rollout := workload.rollout) is not None and rollout.phase != "done":
        text += f", revision {rollout.revision} {rollout.phase}: {rollout.updated} updated, {rollout.outdated} outdated"
    reason = health_text(workload) or reason_text(workload.reason)
    return f"{text} ({reason})" if reason else text
