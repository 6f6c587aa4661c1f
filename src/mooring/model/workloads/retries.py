"""Which tasks of a session get a successor when they end badly, and which of these ends use up a retry. Pure."""

from __future__ import annotations

from collections.abc import Collection

from mooring.model.lifecycle import TaskStatus

TIME_LIMIT = "time-limit"
"""The code of the reason why a task ends whose time is over."""
_NODE_FAILED = frozenset({"node-rebooted", "record-lost"})
"""Codes of agents for an end that was their node's doing."""
PULL_RETRIES = 6
"""How often a task that failed for want of its image is tried again at least: it did nothing wrong, and waits a minute
in all for a registry that comes back."""
_PULL_FAILED = frozenset({"image-pull-failed", "image-not-present"})
"""Codes of agents for an image that their node could not get, and another may."""
_IMAGE_REFUSED = frozenset({"image-not-found", "image-denied", "invalid-image"})
"""Codes of agents for an image that no node gets until a person does something about it."""
_ON_A_NODE = frozenset({TaskStatus.SCHEDULED, TaskStatus.PREPARING, TaskStatus.RUNNING})


def comes_again_after_loss(old: TaskStatus, new: TaskStatus, code: str | None, *, type: str) -> bool:
    """Whether its node took the task along and another is to take it over."""
    return comes_again(old, type=type) and is_loss(new, code)


def comes_again(old: TaskStatus, *, type: str) -> bool:
    """Whether a task that could not stay on its node goes on elsewhere: at an interactive one nobody waits any more."""
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
    """Whether a task that failed by itself, after `failures` of earlier attempts, is tried once more."""
    if new is not TaskStatus.FAILED or old not in _ON_A_NODE or failures >= retries_for(code, max_retries):
        return False
    return retry_on is None or exit_code in retry_on or code in _PULL_FAILED


def retries_for(code: str | None, max_retries: int) -> int:
    """How often a task is tried again that failed so, where its owner allowed so many."""
    if code in _IMAGE_REFUSED:
        return 0
    return max(max_retries, PULL_RETRIES) if code in _PULL_FAILED else max_retries


def is_image_trouble(code: str | None) -> bool:
    """Whether it could not be prepared because its image did not come."""
    return code in _PULL_FAILED or is_image_refused(code)


def is_image_refused(code: str | None) -> bool:
    """Whether it is of no use to try soon again: its image is missing, or kept from its project."""
    return code in _IMAGE_REFUSED


def is_loss(status: TaskStatus, code: str | None) -> bool:
    """A task that was lost with its node did not fail: it uses no retry."""
    return status is TaskStatus.LOST or (status is TaskStatus.FAILED and code in _NODE_FAILED)
