"""The recorded history of a server, replayed: the same inputs in the same order, decided by the same scheduler.

A step is what one transaction of the server committed. Ends, cancellations and changes of nodes come from the history,
placements from the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from mooring.model.nodes.node import Node
from mooring.model.policy.pools import PoolPolicy
from mooring.simulation.engine import Replay
from mooring.simulation.jobs import Job
from mooring.simulation.live_state import Live, RunningPart, occupy
from mooring.simulation.outcomes import Cause, Placed, Status
from mooring.simulation.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Step:
    time: int
    nodes: tuple[Node, ...] = ()
    """Nodes that joined or changed, without what occupies them."""
    removed: tuple[UUID, ...] = ()
    """Nodes that were removed."""
    ended: tuple[UUID, ...] = ()
    """Tasks that left their nodes; tasks placed by one decision free their nodes when all of them have ended."""
    cancelled: tuple[UUID, ...] = ()
    """Workloads that ended; the pending ones are dropped."""
    submitted: tuple[int, ...] = ()
    """Numbers of jobs."""


def replay_history(jobs: Sequence[Job], pools: Mapping[str, PoolPolicy], steps: Sequence[Step]) -> list[Placed]:
    """Return the placements of the scheduler for a history, in the order of its decisions.

    The jobs stand for workloads of a server. The cluster is empty at first: the nodes join in the steps.
    """
    begins = steps[0].time if steps else 0
    return _History(Scenario((), jobs, pools, live=Live(begins))).follow(steps)


class _History(Replay):
    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._ended: set[UUID] = set()

    def follow(self, steps: Iterable[Step]) -> list[Placed]:
        """Apply each step and decide after it, as the server did."""
        known = {job.number: job for job in self._scenario.jobs}
        for position, step in enumerate(steps):
            decided = len(self._placed)
            self._now = self._pools.now = max(step.time, self._now)
            for node_id in step.removed:
                self._cluster.remove(node_id)
            for node in step.nodes:
                self._change(node)
            self._end(set(step.ended))
            for workload_id in step.cancelled:
                if self._number(workload_id) in self._waiting:
                    self._leave(self._number(workload_id), Status.EXPIRED)
            for number in step.submitted:
                self._submit(known[number])
            self._schedule()
            self._placed[decided:] = [each._replace(step=position) for each in self._placed[decided:]]
        return self._placed

    def _change(self, node: Node) -> None:
        """Add a node, or replace it and count the running tasks on it again."""
        self._cluster.upsert(node)
        self._cluster.set_tasks(node.id, ())
        parts: list[RunningPart] = []
        for running in self._running.values():
            decision = running.decision
            here = tuple(each for each in decision.placements if each.node_id == node.id)
            if here:
                longest = decision.workload.longest_seconds
                latest = None if longest is None else max(running.start + longest, self._now + 1)
                parts.append(RunningPart(running.number, decision.workload, here, running.start, None, latest))
        occupy(self._cluster, parts)

    def _end(self, ended: set[UUID]) -> None:
        """End the runs of which all tasks have ended by now."""
        self._ended |= ended
        for run, running in list(self._running.items()):
            if all(each.task_id in self._ended for each in running.decision.placements):
                self._stop(run, Cause.ENDED)
