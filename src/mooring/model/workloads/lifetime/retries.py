"""The retry policy: which failed tasks of a session are replaced, and which failures use up a retry. Pure."""

from __future__ import annotations

from collections.abc import Collection

from mooring.model.lifecycle import TaskStatus

TIME_LIMIT = "time-limit"
"""The reason code of the time limit."""
EVICTED = "evicted"
"""The reason code of a task that failed by itself after it was evicted."""
_NODE_FAILED = frozenset({"node-rebooted", "record-lost"})
"""Agent reason codes for an end caused by the node."""
PULL_RETRIES = 6
"""Minimum retries after a failed image pull: the task is not at fault, and together they wait a minute
for the registry to come back."""
_PULL_FAILED = frozenset({"image-pull-failed", "image-not-present"})
"""Agent reason codes for an image that this node could not pull, but another may."""
_IMAGE_REFUSED = frozenset({"image-not-found", "image-denied", "invalid-image"})
"""Agent reason codes for an image that no node can pull until it is fixed."""
DISK_FULL = "disk-full"
"""The agent reason code for a node without the disk space to start a task; another may have it."""
PORT_IN_USE = "port-in-use"
"""The agent reason code for a port of the task that something else on the node uses. The task never ran, and its
placement is repeated without that port."""
_ANOTHER_NODE_MAY = _PULL_FAILED | {DISK_FULL}
_ON_A_NODE = frozenset({TaskStatus.SCHEDULED, TaskStatus.PREPARING, TaskStatus.RUNNING})


def is_replaced_after_loss(old: TaskStatus, new: TaskStatus, code: str | None, *, type: str) -> bool:
    """Return whether a task that was lost with its node, or could not have its ports there, is placed again."""
    return (is_requeued_after_eviction(old, type=type) or code == PORT_IN_USE) and is_loss(new, code)


def is_requeued_after_eviction(old: TaskStatus, *, type: str) -> bool:
    """Return whether an evicted task continues elsewhere; an interactive one does not, since its user is gone."""
    return old in _ON_A_NODE and type != "interactive"


def is_retried(
    old: TaskStatus,
    new: TaskStatus,
    exit_code: int | None,
    code: str | None = None,
    *,
    failures: int,
    max_retries: int,
    retry_on: Collection[int] | None,
) -> bool:
    """Return whether a failed task is retried after `failures` of earlier attempts."""
    if new is not TaskStatus.FAILED or old not in _ON_A_NODE or failures >= retries_for(code, max_retries):
        return False
    return retry_on is None or exit_code in retry_on or code in _ANOTHER_NODE_MAY


def retries_for(code: str | None, max_retries: int) -> int:
    """Return the maximum retries for this failure, given the retries that the owner allows."""
    if code in _IMAGE_REFUSED:
        return 0
    return max(max_retries, PULL_RETRIES) if code in _ANOTHER_NODE_MAY else max_retries


def is_image_trouble(code: str | None) -> bool:
    """Return whether the image could not be pulled."""
    return code in _PULL_FAILED or is_image_refused(code)


def is_image_refused(code: str | None) -> bool:
    """Return whether a retry soon is useless: the image does not exist, or the project has no access to it."""
    return code in _IMAGE_REFUSED


def is_loss(status: TaskStatus, code: str | None) -> bool:
    """Return whether a task ended because of its node, which is no failure of its own and uses no retry."""
    return status is TaskStatus.LOST or (status is TaskStatus.FAILED and code in _NODE_FAILED | {PORT_IN_USE})


def uses_retry(status: TaskStatus, code: str | None) -> bool:
    """Return whether a task failed by itself: it was neither lost with its node nor evicted."""
    return status is TaskStatus.FAILED and code != EVICTED and not is_loss(status, code)
