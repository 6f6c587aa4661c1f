"""Many workloads in one request. Each is checked by itself, and an invalid one is refused alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard
from uuid import UUID

from pydantic import ValidationError

from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.services.submission.dependencies import cycles, dependents_of_refused, resolved
from mooring.services.submission.submission_context import ContextByProject, of_project
from mooring.services.submission.translation import translate
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.wire.problems import ErrorBody
from mooring.wire.problems import refused as refused_by_schema
from mooring.wire.workloads.batches import BatchAccepted, BatchItem
from mooring.wire.workloads.workloads import WorkloadRequest

Item = tuple[NewWorkload, Pool] | MooringError
_MAX_PROBLEMS = 3
"""Schema errors reported per workload, so that the answer is not much larger than the batch."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The valid workloads with their pools, and the errors of the others, in the order of the request."""

    items: Sequence[Item]

    @property
    def new(self) -> list[NewWorkload]:
        return [new for new, _ in filter(_is_valid, self.items)]

    def answer(self, refused: Mapping[UUID, MooringError]) -> BatchAccepted:
        """Return the outcome of each; `refused` are valid workloads that the transaction refused."""
        found = [_item(item, refused) for item in self.items]
        accepted = sum(item.error is None for item in found)
        return BatchAccepted(accepted=accepted, refused=len(found) - accepted, workloads=found)


def read_batch(requests: Sequence[object]) -> list[WorkloadRequest | MooringError]:
    return [_read(request) for request in requests]


def translate_batch(requests: Sequence[WorkloadRequest | MooringError], contexts: ContextByProject) -> Batch:
    """Translate each request. Workloads of a batch may depend on each other by name."""
    items = [_translated(request, contexts) for request in requests]
    translated = {new.name: new.id for new, _ in filter(_is_valid, items)}
    items = _with_dependencies(requests, items, translated, contexts)
    valid = [new for new, _ in filter(_is_valid, items)]
    refused = _cyclic(valid)
    gone = {*translated.values(), *refused} - {new.id for new in valid if new.id not in refused}
    refused |= dependents_of_refused(valid, gone)
    return Batch([refused.get(item[0].id, item) if _is_valid(item) else item for item in items])


def _read(request: object) -> WorkloadRequest | MooringError:
    try:
        return WorkloadRequest.model_validate(request)
    except ValidationError as error:
        return refused_by_schema(error, most=_MAX_PROBLEMS)


def _translated(request: WorkloadRequest | MooringError, contexts: ContextByProject) -> Item:
    if isinstance(request, MooringError):
        return request
    try:
        return translate(request, of_project(contexts, request.project))
    except MooringError as error:
        return error


def _with_dependencies(
    requests: Sequence[WorkloadRequest | MooringError],
    items: Sequence[Item],
    translated: Mapping[str, UUID],
    contexts: ContextByProject,
) -> list[Item]:
    """Resolve dependencies. A name of the batch means its workload, even a refused one, never an older workload."""
    own_names = {request.name for request in requests if isinstance(request, WorkloadRequest)}
    known: dict[str | None, dict[str, UUID]] = {}
    found: list[Item] = []
    for request, item in zip(requests, items, strict=True):
        if isinstance(request, WorkloadRequest) and _is_valid(item) and request.dependencies:
            if request.project not in known:
                older = of_project(contexts, request.project).known.items()
                known[request.project] = {name: id for name, id in older if name not in own_names} | dict(translated)
            item = _with_own_dependencies(request, item, known[request.project])
        found.append(item)
    return found


def _with_own_dependencies(request: WorkloadRequest, item: tuple[NewWorkload, Pool], known: Mapping[str, UUID]) -> Item:
    try:
        return resolved(item[0], request.dependencies, known), item[1]
    except MooringError as error:
        return error


def _cyclic(new: Sequence[NewWorkload]) -> dict[UUID, MooringError]:
    """The workloads of dependency cycles, with the error that refuses them."""
    refused: dict[UUID, MooringError] = {}
    for cycle in cycles(new):
        names = [each.name for each in (*cycle, cycle[0])]
        error = InvalidInput(f"these workloads depend on each other: {' -> '.join(names)}", code="dependency-cycle")
        refused |= dict.fromkeys((each.id for each in cycle), error)
    return refused


def _is_valid(item: Item) -> TypeGuard[tuple[NewWorkload, Pool]]:
    return not isinstance(item, MooringError)


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
        f"you already have a workload {new.name!r}; choose another name, or remove it and wait until it has ended "
        f"(`mooring wait {new.name}`)",
        code="name-taken",
        details={"name": new.name},
    )


def hash_of(request: object) -> str:
    """Return a hash that does not depend on the order of keys."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
