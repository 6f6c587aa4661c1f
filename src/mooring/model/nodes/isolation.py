"""Isolation levels of process tasks, weakest first, and the check of a pool's required level."""

from __future__ import annotations

from typing import Literal, get_args

IsolationLevel = Literal["none", "user", "namespaces", "container"]

LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)
MAX_REASON_LENGTH = 500
"""Maximum length of the reason for a node's level."""
MEANINGS: dict[IsolationLevel, str] = {
    "none": "tasks run as the agent's own user",
    "user": "an OS user per tenant, without capabilities",
    "namespaces": "as user, with own PID, mount, IPC and UTS namespaces, a private /tmp and a seccomp filter",
    "container": "containers only",
}


def suffices(offered: str, required: str) -> bool:
    """Return whether a node with the offered level may run process tasks of a pool with the required level."""
    return rank(offered) >= rank(required)


def rank(level: str) -> int:
    """Return the rank of a level; an unknown one counts as the weakest."""
    return LEVELS.index(level) if level in LEVELS else 0
