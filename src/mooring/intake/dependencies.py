"""The workloads that a request depends on: found by id or name, never itself, and never in a circle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from uuid import UUID

from mooring.model.dependencies import Condition
from mooring.model.errors import Conflict, InvalidInput
from mooring.store.workloads import NewWorkload
from mooring.wire.sessions import DependencyRequest


def resolved(new: NewWorkload, asked: Sequence[DependencyRequest], known: Mapping[str, UUID]) -> NewWorkload:
    """The workload with its dependencies; `known`: what their names and ids mean to who asks."""
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
                f"{new.name!r} cannot depend on itself; an earlier one of the same name is meant by its id",
                code="dependency-cycle",
            )
        if other in found:
            raise InvalidInput(f"it depends on {reference!r} twice", code="invalid-dependency")
        found[other] = Condition(dependency.condition)
    return replace(new, terms=replace(new.terms, dependencies=tuple(found.items())))


def circle(new: Iterable[NewWorkload]) -> list[NewWorkload]:
    """Workloads that depend on each other in a circle, each on the next; none if there is no circle."""
    of_id = {workload.id: workload for workload in new}
    graph = {
        workload.id: [other for other, _ in workload.terms.dependencies if other in of_id]
        for workload in of_id.values()
        if workload.terms.dependencies
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # It tells them the other way round: each before the one that depends on it.
        return [of_id[workload_id] for workload_id in reversed(error.args[1][1:])]
    return []


def left_behind(new: Sequence[NewWorkload], refused: Collection[UUID]) -> dict[UUID, Conflict]:
    """Those of a batch that depend on what was refused, directly or by others."""
    gone, found = set(refused), dict[UUID, Conflict]()
    left = [workload for workload in new if workload.terms.dependencies]
    while lost := [w for w in left if w.id not in gone and any(other in gone for other, _ in w.terms.dependencies)]:
        found |= {workload.id: _without_dependency(workload) for workload in lost}
        gone |= found.keys()
    return found


def references(asked: Iterable[DependencyRequest]) -> tuple[set[str], set[UUID]]:
    """The names and the ids among them."""
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
