"""Comparison of a workload with a request: the fields that differ, by the names in requests. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mooring.model.resources.slots import slot_type
from mooring.model.workloads.workload import PLACEMENT_OPTIONS
from mooring.store.core.constraint_columns import decode_constraints, encode_constraints
from mooring.store.views.workloads import WorkloadRow
from mooring.store.workloads import templates
from mooring.store.workloads.new_workloads import NewWorkload, row_of
from mooring.store.workloads.option_columns import decode_rollout
from mooring.wire.workloads.workloads import Difference, WorkloadRequest

COMPARED = (
    "kind",
    "type",
    "replicas",
    "architecture",
    "labels",
    *PLACEMENT_OPTIONS,
    "preemptible",
    "min_available",
    "private",
    "starts_at",
    "time_limit_seconds",
    "idle_timeout_seconds",
    "warning_signal",
    "warning_seconds",
    "array",
    "parallel",
    "max_retries",
    "retry_on",
    "on_dependency_failure",
    "singleton",
)
"""The compared columns. Dependencies are left out: they have no effect after they are met."""
_SAID_ELSEWHERE = ("labels", "project", "images")
"""Parts of constraints that repeat other fields."""


def compare_workload(present: WorkloadRow, request: WorkloadRequest, wanted: NewWorkload) -> list[Difference]:
    """Return the differences; `wanted` is the translated request. Defaults and later changes count only if given."""
    columns = row_of(wanted, present.created_at)
    stands: dict[str, Any] = {name: getattr(present, name) for name in COMPARED}
    asked: dict[str, Any] = {name: columns[name] for name in COMPARED}
    stands |= _body(present.template, present.constraints)
    asked |= _body(columns["template"], columns["constraints"])
    if "replicas" not in request.model_fields_set and request.array is None:
        stands["replicas"] = asked["replicas"]
    if request.pool is not None:
        stands["pool"], asked["pool"] = present.pool, request.pool
    if request.project is not None:
        stands["project"], asked["project"] = present.project, request.project
    if request.booking is not None:
        stands["booking"], asked["booking"] = present.timeslot_id, wanted.schedule.booking
    if request.rollout is not None:
        named = request.rollout.model_dump(exclude_none=True).keys()
        stands["rollout"], asked["rollout"] = (
            {name: getattr(decode_rollout(state), name) for name in named}
            for state in (present.rollout, columns["rollout"])
        )
    old, new = dict(_fields(stands)), dict(_fields(asked))
    return [
        Difference(field=field, present=old.get(field), wanted=new.get(field))
        for field in sorted({*old, *new})
        if old.get(field) != new.get(field)
    ]


def _body(template: Mapping[str, Any], constraints: Mapping[str, Any]) -> dict[str, Any]:
    """Return template and constraints in the form in which this version writes them."""
    body = templates.encode(templates.decode(template))
    body.pop("architecture", None)
    placement = encode_constraints(decode_constraints(dict(constraints)))
    body["placement"] = {name: value for name, value in placement.items() if name not in _SAID_ELSEWHERE}
    return body


def _fields(value: Any, path: str = "", *, amounts: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every field by its path, `containers.main.ports`; None and empty values are left out."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            # The requests of a container have another name in the API.
            called = "resources" if name == "slots" else name
            shown = slot_type(name).format(part) if amounts else part
            yield from _fields(shown, f"{path}.{called}" if path else called, amounts=name in ("slots", "limits"))
    elif path.endswith(("containers", "volumes")):
        yield path, ", ".join(each["name"] for each in value)
        for each in value:
            yield from _fields({**each, "name": None}, f"{path}.{each['name']}")
    elif value is not None and value != [] and value != ():
        yield path, json.dumps(value, default=str).strip('"')
