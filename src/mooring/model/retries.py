"""Which tasks of a session get a successor when they end badly, and which of these ends use up a retry. Pure."""

from __future__ import annotations

from collections.abc import Collection

from mooring.model.lifecycle import TaskStatus

TIME_LIMIT = "time-limit"
"""The code of the reason why a task ends whose time is over."""
_NODE_FAILED = frozenset({"node-rebooted", "record-lost"})
"""Codes of agents for an end that was their node's doing."""
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
    *,
    failures: int,
    max_retries: int,
    retry_on: Collection[int] | None,
) -> bool:
    """Whether a task that failed by itself, after `failures` of earlier attempts, is tried once more."""
    if new is not TaskStatus.FAILED or old not in _ON_A_NODE or failures >= max_retries:
        return False
    return retry_on is None or exit_code in retry_on


def is_loss(status: TaskStatus, code: str | None) -> bool:
    """A task that was lost with its node did not fail: it uses no retry."""
    return status is TaskStatus.LOST or (status is TaskStatus.FAILED and code in _NODE_FAILED)
