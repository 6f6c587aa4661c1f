"""Many workloads in one request: each is checked by itself, and one that cannot be meant is refused alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard
from uuid import UUID

from pydantic import ValidationError

from mooring.intake.circumstances import ByProject, of_project
from mooring.intake.dependencies import circle, left_behind, resolved
from mooring.intake.translation import translate
from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.store.pools import Pool
from mooring.store.workloads import NewWorkload
from mooring.wire.api import BatchAccepted, BatchItem, ErrorBody, WorkloadRequest
from mooring.wire.problems import refused as refused_by_schema

Item = tuple[NewWorkload, Pool] | MooringError


@dataclass(frozen=True, slots=True)
class Batch:
    """In the order of the request: what can be written with its pool, and what is refused already."""

    items: Sequence[Item]

    @property
    def new(self) -> list[NewWorkload]:
        return [new for new, _ in filter(_is_meant, self.items)]

    def answer(self, refused: Mapping[UUID, MooringError]) -> BatchAccepted:
        """What became of each; `refused` are those that the database says no to."""
        found = [_item(item, refused) for item in self.items]
        accepted = sum(item.error is None for item in found)
        return BatchAccepted(accepted=accepted, refused=len(found) - accepted, workloads=found)


def read_batch(requests: Sequence[object]) -> list[WorkloadRequest | MooringError]:
    return [_read(request) for request in requests]


def translate_batch(requests: Sequence[WorkloadRequest | MooringError], circumstances: ByProject) -> Batch:
    """Workloads of a batch may depend on each other by their names."""
    items = [_translated(request, circumstances) for request in requests]
    own = {request.name for request in requests if isinstance(request, WorkloadRequest)}
    named = {new.name: new.id for new, _ in filter(_is_meant, items)}
    for number, (request, item) in enumerate(zip(requests, items, strict=True)):
        if isinstance(request, WorkloadRequest) and _is_meant(item) and request.dependencies:
            older = of_project(circumstances, request.project).known.items()
            known = {reference: found for reference, found in older if reference not in own} | named
            items[number] = _with_dependencies(request, item, known)
    meant = [new for new, _ in filter(_is_meant, items)]
    refused: dict[UUID, MooringError] = {}
    while around := circle(new for new in meant if new.id not in refused):
        refused |= {new.id: _in_circle(around) for new in around}
    gone = {*named.values(), *refused} - {new.id for new in meant if new.id not in refused}
    refused |= left_behind(meant, gone)
    return Batch([refused.get(item[0].id, item) if _is_meant(item) else item for item in items])


def _read(request: object) -> WorkloadRequest | MooringError:
    try:
        return WorkloadRequest.model_validate(request)
    except ValidationError as error:
        return refused_by_schema(error)


def _translated(request: WorkloadRequest | MooringError, circumstances: ByProject) -> Item:
    if isinstance(request, MooringError):
        return request
    try:
        return translate(request, of_project(circumstances, request.project))
    except MooringError as error:
        return error


def _with_dependencies(request: WorkloadRequest, item: tuple[NewWorkload, Pool], known: Mapping[str, UUID]) -> Item:
    try:
        return resolved(item[0], request.dependencies, known), item[1]
    except MooringError as error:
        return error


def _is_meant(item: Item) -> TypeGuard[tuple[NewWorkload, Pool]]:
    return not isinstance(item, MooringError)


def _in_circle(around: Sequence[NewWorkload]) -> InvalidInput:
    names = [new.name for new in (*around, around[0])]
    return InvalidInput(f"each would wait for the next for ever: {' -> '.join(names)}", code="dependency-cycle")


def _item(item: Item, refused: Mapping[UUID, MooringError]) -> BatchItem:
    if isinstance(item, MooringError):
        return BatchItem(error=_error(item))
    new, pool = item
    if new.id in refused:
        return BatchItem(name=new.name, error=_error(refused[new.id]))
    return BatchItem(id=new.id, name=new.name, pool=pool.name, simulated=pool.simulated)


def _error(error: MooringError) -> ErrorBody:
    return ErrorBody(code=error.code, message=error.message, details=error.details)


def name_taken(new: NewWorkload) -> Conflict:
    return Conflict(
        f"you have a workload {new.name!r} already; choose another name, or remove it and wait until it is gone "
        f"(`mooring wait {new.name}`)",
        code="name-taken",
        details={"name": new.name},
    )


def hash_of(request: object) -> str:
    """Equal for requests that say the same, however they are written."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
