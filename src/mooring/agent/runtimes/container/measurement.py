"""Usage of containers, from the cgroups of their first processes or, if those do not count, all processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from mooring.agent.node import usage_counters
from mooring.agent.node.usage_counters import Usage


def of_tasks(tasks: Mapping[UUID, Sequence[int]]) -> tuple[dict[UUID, Usage], dict[UUID, tuple[int, int]]]:
    """Return the usage and network traffic of tasks, given the first processes of their containers."""
    machine: usage_counters.Processes | None = None
    uses: dict[UUID, Usage] = {}
    for task_id, pids in tasks.items():
        own: list[Usage] = []
        for pid in pids:
            counters = usage_counters.of_cgroup(usage_counters.cgroup_of(pid))
            if not counters.complete:
                machine = machine or usage_counters.Processes()
                counters = counters.or_else(machine.from_on(pid))
            own.append(counters)
        uses[task_id] = usage_counters.total(own)
    # The containers of a task share a network namespace.
    return uses, {task_id: usage_counters.network_of(pids[0]) for task_id, pids in tasks.items() if pids}
