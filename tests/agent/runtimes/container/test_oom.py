"""OOM kills in the kernel log of containers that ended while no agent listened."""

from __future__ import annotations

import time

import pytest

from mooring.agent.runtimes.container import oom
from mooring.agent.runtimes.container.oom import MemoryWatch

CONTAINER = "89f87b5972b4ab52b92b235ea6c19e427fc590b86b17732323e83ea81e79ce98"
OTHER = CONTAINER[::-1]


def ended(group: str, constraint: str = "CONSTRAINT_MEMCG") -> str:
    """By a process in the container that is asked about."""
    cause = f"oom-kill:constraint={constraint},nodemask=(null),cpuset=libpod-{CONTAINER},mems_allowed=0"
    return f"{cause},oom_memcg=/libpod_parent,task_memcg=/libpod_parent/libpod-{group},task=sh,pid=7,uid=0\n"


@pytest.mark.parametrize(
    ("text", "seconds_after_start", "oom_killed"),
    [
        (ended(CONTAINER), 5.0, True),
        (ended(CONTAINER), -5.0, False),
        (ended(OTHER), 5.0, False),
        (ended(CONTAINER, "CONSTRAINT_NONE"), 5.0, False),
        (f"{CONTAINER} says oom-kill:", 5.0, False),
    ],
    ids=["for its limit", "in an earlier run", "another one", "since the node ran short", "something else"],
)
async def test_only_an_end_for_its_own_limit_in_this_run_is_want_of_memory(
    monkeypatch: pytest.MonkeyPatch, text: str, seconds_after_start: float, oom_killed: bool
):
    monkeypatch.setattr(oom, "_messages", lambda: [(1.0, "Linux begins"), (1000.0, text)])
    started_at = time.time() - time.monotonic() + 1000.0 - seconds_after_start
    assert await MemoryWatch().oom_killed(CONTAINER, started_at) is oom_killed
