"""Many workloads in one request: each is checked by itself, and one that cannot be meant is refused alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pydantic import ValidationError

from mooring.intake.acting import Act
from mooring.intake.translation import translate
from mooring.model.errors import Conflict, MooringError
from mooring.model.names import NAME
from mooring.store.pool_access import Grants
from mooring.store.pools import Pool
from mooring.store.workloads import NewWorkload
from mooring.wire.api import BatchAccepted, BatchItem, ErrorBody, WorkloadRequest
from mooring.wire.problems import refused as refused_by_schema


@dataclass(frozen=True, slots=True)
class Batch:
    """In the order of the request: what can be written with its pool, and what is refused already."""

    items: Sequence[tuple[NewWorkload, Pool] | MooringError]

    @property
    def new(self) -> list[NewWorkload]:
        return [item[0] for item in self.items if not isinstance(item, MooringError)]

    def answer(self, refused: Mapping[UUID, Conflict]) -> BatchAccepted:
        """What became of each; `refused` are those that the database says no to."""
        found = [_item(item, refused) for item in self.items]
        accepted = sum(item.error is None for item in found)
        return BatchAccepted(accepted=accepted, refused=len(found) - accepted, workloads=found)


def translate_batch(requests: Sequence[object], act: Act, pools: Sequence[Pool], grants: Grants) -> Batch:
    return Batch([_translated(request, act, pools, grants) for request in requests])


def project_of(request: object) -> str | None:
    """The project that a request names, before anything else of it is looked at."""
    named = request.get("project") if isinstance(request, Mapping) else None
    return named if isinstance(named, str) and NAME.fullmatch(named) else None


def _translated(
    request: object, act: Act, pools: Sequence[Pool], grants: Grants
) -> tuple[NewWorkload, Pool] | MooringError:
    try:
        asked = WorkloadRequest.model_validate(request)
        return translate(asked, act(asked.project), pools, grants)
    except ValidationError as error:
        return refused_by_schema(error)
    except MooringError as error:
        return error


def _item(item: tuple[NewWorkload, Pool] | MooringError, refused: Mapping[UUID, Conflict]) -> BatchItem:
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
        f"you have a workload {new.name!r} already; remove it or choose another name",
        code="name-taken",
        details={"name": new.name},
    )


def hash_of(request: object) -> str:
    """Equal for requests that say the same, however they are written."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
