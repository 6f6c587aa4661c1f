"""What containers use: by the cgroups of their first processes, and by all their processes where those do not tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from mooring.agent import use
from mooring.agent.use import Use


def of_tasks(tasks: Mapping[UUID, Sequence[int]]) -> tuple[dict[UUID, Use], dict[UUID, tuple[int, int]]]:
    """By task, with the first processes of its containers: its use, and what it received and sent."""
    machine: use.Processes | None = None
    uses: dict[UUID, Use] = {}
    for task_id, pids in tasks.items():
        own: list[Use] = []
        for pid in pids:
            told = use.of_cgroup(use.cgroup_of(pid))
            if not told.complete:
                machine = machine or use.Processes()
                told = told.or_else(machine.from_on(pid))
            own.append(told)
        uses[task_id] = use.total(own)
    # The containers of a task share a network.
    return uses, {task_id: use.network_of(pids[0]) for task_id, pids in tasks.items() if pids}
