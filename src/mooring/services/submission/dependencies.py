"""The workloads that a request depends on: found by id or name, never itself, and never in a cycle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from mooring.model.errors import Conflict, InvalidInput
from mooring.model.workloads.dependencies import Condition
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.wire.workloads.sessions import DependencyRequest


def resolved(new: NewWorkload, asked: Sequence[DependencyRequest], known: Mapping[str, UUID]) -> NewWorkload:
    """Return the workload with its dependencies; `known` are the workloads that the user can refer to."""
    if not asked:
        return new
    found: dict[UUID, Condition] = {}
    for dependency in asked:
        reference = dependency.workload
        other = new.id if reference == new.name else known.get(reference)
        if other is None:
            raise InvalidInput(
                f"there is no workload {reference!r} to depend on; `mooring ps --all` lists yours",
                code="unknown-dependency",
                details={"workload": reference},
            )
        if other == new.id:
            raise InvalidInput(
                f"{new.name!r} cannot depend on itself; refer to an earlier workload of the same name by its id",
                code="dependency-cycle",
            )
        if other in found:
            raise InvalidInput(f"it depends on {reference!r} twice", code="invalid-dependency")
        found[other] = Condition(dependency.condition)
    return replace(new, schedule=replace(new.schedule, dependencies=tuple(found.items())))


def cycles(new: Iterable[NewWorkload]) -> list[list[NewWorkload]]:
    """Return the dependency cycles, each workload followed by one that it depends on; cycles share no workload.

    A depth-first search that removes a cycle from the graph as soon as it closes, so that a batch of many cycles
    costs no more than one without.
    """
    of_id = {workload.id: workload for workload in new}
    found: list[list[NewWorkload]] = []
    settled: set[UUID] = set()
    for root in of_id:
        if root in settled:
            continue
        path, position = [root], {root: 0}
        edges = [iter(of_id[root].schedule.dependencies)]
        while path:
            for other, _ in edges[-1]:
                if other in position:
                    start = position[other]
                    found.append([of_id[each] for each in path[start:]])
                    settled.update(path[start:])
                    for each in path[start:]:
                        del position[each]
                    del path[start:], edges[start:]
                    break
                if other in of_id and other not in settled:
                    position[other] = len(path)
                    path.append(other)
                    edges.append(iter(of_id[other].schedule.dependencies))
                    break
            else:
                edges.pop()
                settled.add(last := path.pop())
                del position[last]
    return found


def dependents_of_refused(new: Sequence[NewWorkload], refused: Collection[UUID]) -> dict[UUID, Conflict]:
    """Return the workloads of a batch that depend on refused ones, directly or indirectly."""
    dependents: dict[UUID, list[NewWorkload]] = {}
    for workload in new:
        for other, _ in workload.schedule.dependencies:
            dependents.setdefault(other, []).append(workload)
    gone, found = set(refused), dict[UUID, Conflict]()
    pending = list(gone)
    while pending:
        for workload in dependents.get(pending.pop(), ()):
            if workload.id not in gone:
                gone.add(workload.id)
                found[workload.id] = _without_dependency(workload)
                pending.append(workload.id)
    return found


def references(asked: Iterable[DependencyRequest]) -> tuple[set[str], set[UUID]]:
    """Return the names and the ids that dependencies refer to."""
    names: set[str] = set()
    ids: set[UUID] = set()
    for dependency in asked:
        try:
            ids.add(UUID(dependency.workload))
        except ValueError:
            names.add(dependency.workload)
    return names, ids


def _without_dependency(new: NewWorkload) -> Conflict:
    return Conflict(f"{new.name!r} depends on a workload of the same batch that was refused", code="dependency-refused")
