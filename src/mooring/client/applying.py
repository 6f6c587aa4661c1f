"""Apply manifests: compare them with the server, create or update workloads, delete them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from mooring.client.files import Document
from mooring.client.synchronous import Client
from mooring.model.calendar.durations import parse_duration
from mooring.model.errors import Conflict, NotFound
from mooring.wire.workloads.containers import TaskTemplateRequest
from mooring.wire.workloads.manifests import (
    DeploymentManifest,
    LabManifest,
    lab_request,
    update_request,
    workload_request,
)
from mooring.wire.workloads.workloads import Difference

_CHANGEABLE = {*TaskTemplateRequest.model_fields, "replicas", "rollout"}
"""Fields of an existing deployment that can be changed."""
_MAX_CAUSE_LENGTH = 500


class State(StrEnum):
    MISSING = "missing"
    EQUAL = "unchanged"
    DIFFERENT = "different"
    ENDED = "ended"
    """It existed and has ended: it is created again only on request."""


class Result(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Comparison:
    state: State
    status: str | None = None
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    result: Result
    status: str | None = None
    """The status of a workload that has ended."""
    timeslot: UUID | None = None
    """A new lab, which is decided later."""
    simulated: bool = False
    """It runs on simulated nodes."""


def compare(client: Client, document: Document) -> Comparison:
    """Return the state of the server's workload relative to a document."""
    manifest = document.manifest
    try:
        found = client.compare(manifest.name, workload_request(manifest))
    except NotFound:
        return Comparison(State.MISSING)
    if found.removed or (found.ended and manifest.kind == "deployment"):
        return Comparison(State.MISSING)
    if found.ended:
        return Comparison(State.ENDED, found.status)
    differences = list(found.differences)
    if isinstance(manifest, LabManifest):
        differences += _window(client, manifest)
    state = State.DIFFERENT if differences else State.EQUAL
    return Comparison(state, found.status, tuple(differences))


def apply(client: Client, document: Document, *, again: bool = False) -> Applied:
    """Create missing workloads and change those that differ. `again`: also create ended sessions and labs again."""
    manifest, found = document.manifest, compare(client, document)
    if found.state is State.EQUAL:
        return Applied(Result.UNCHANGED)
    if found.state is State.ENDED and not again:
        return Applied(Result.ENDED, found.status)
    if found.state is State.DIFFERENT:
        _update(client, document, found.differences)
        return Applied(Result.UPDATED)
    if isinstance(manifest, LabManifest):
        return Applied(Result.CREATED, timeslot=client.create_lab(lab_request(manifest)).timeslot)
    return Applied(Result.CREATED, simulated=client.submit(workload_request(manifest)).simulated)


def delete(client: Client, document: Document) -> bool:
    """Remove the workload of a document; return False if it does not exist."""
    manifest = document.manifest
    try:
        found = client.workload(manifest.name)
    except NotFound:
        return False
    if found.removed:
        return False
    if isinstance(manifest, LabManifest) and found.ended_at is None:
        client.cancel_lab(manifest.name)
    client.remove(str(found.id))
    return True


def _update(client: Client, document: Document, differences: Sequence[Difference]) -> None:
    manifest = document.manifest
    fields = [difference.field for difference in differences]
    fixed = [field for field in fields if field.partition(".")[0] not in _CHANGEABLE]
    if fixed or not isinstance(manifest, DeploymentManifest):
        raise Conflict(
            f"{manifest.kind} {manifest.name!r} exists and differs in {', '.join(fixed or fields)}, which cannot be"
            " changed: delete it first",
            code="cannot-change",
            details={"fields": fixed or fields},
        )
    client.update(manifest.name, update_request(manifest, cause=f"applied: {', '.join(fields)}"[:_MAX_CAUSE_LENGTH]))


def _window(client: Client, manifest: LabManifest) -> list[Difference]:
    """Return the differences between the window of a lab and its document."""
    slot = client.lab(manifest.name).timeslot
    start = manifest.start or slot.start
    end = manifest.end
    if manifest.duration is not None:
        length = manifest.duration if isinstance(manifest.duration, int) else parse_duration(manifest.duration)
        end = start + timedelta(seconds=length)
    pairs: dict[str, tuple[datetime, datetime | None]] = {"start": (slot.start, start), "end": (slot.end, end)}
    return [
        Difference(field=field, present=present.isoformat(), wanted=wanted.isoformat())
        for field, (present, wanted) in pairs.items()
        if wanted is not None and wanted != present
    ]
