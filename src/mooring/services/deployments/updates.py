"""The template of an updated deployment. Pure; the rules of a submission hold for it as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import format_amounts
from mooring.model.workloads.containers import TaskTemplate
from mooring.model.workloads.lifetime.rollouts import Rollout, check
from mooring.model.workloads.workload import Kind
from mooring.services.submission.containers import template_of
from mooring.store.workloads import templates
from mooring.wire.workloads.containers import ContainerRequest, TaskTemplateRequest
from mooring.wire.workloads.rollouts import RolloutRequest, UpdateRequest


def updated(present: TaskTemplate, asked: UpdateRequest, replicas: int) -> TaskTemplate:
    """Return the requested template; the present one if nothing of it changes."""
    changes = _changes(asked)
    if asked.template is not None:
        if changes or asked.container is not None:
            raise InvalidInput("give either a whole template or the changes of one container", code="invalid-update")
        return template_of(asked.template, Kind.DEPLOYMENT, replicas)
    request = as_request(present)
    name = asked.container or request.containers[0].name
    if all(container.name != name for container in request.all_containers):
        known = ", ".join(container.name for container in request.all_containers)
        raise InvalidInput(f"there is no container {name!r}; there are: {known}", code="unknown-container")
    if not changes:
        return present
    changed = {
        part: [_changed(c, changes, asked) if c.name == name else c for c in getattr(request, part)]
        for part in ("containers", "init_containers")
    }
    return template_of(request.model_copy(update=changed), Kind.DEPLOYMENT, replicas)


def as_request(template: TaskTemplate) -> TaskTemplateRequest:
    """Return the request that would produce the template."""
    encoded = templates.encode(template)
    for container in (*encoded["containers"], *encoded.get("init_containers", ())):
        for stored, said in (("slots", "resources"), ("limits", "limits")):
            if stored in container:
                container[said] = format_amounts(container.pop(stored))
    return TaskTemplateRequest.model_validate(encoded)


def cause_of(asked: UpdateRequest) -> str:
    """Return a short description of the change, without values of environment variables."""
    if asked.cause is not None:
        return asked.cause
    if asked.template is not None:
        return "a new template"
    words = [] if asked.image is None else [f"image {asked.image}"]
    words += [] if asked.command is None else ["command"]
    words += [f"environment {', '.join(sorted(asked.environment))}"] if asked.environment else []
    words += [f"{slot} {amount}" for slot, amount in asked.resources.items()]
    where = "" if asked.container is None else f"{asked.container}: "
    return where + ", ".join(words)


def rollout_of(present: Rollout, asked: RolloutRequest | None) -> Rollout:
    given = {} if asked is None else asked.model_dump(exclude_none=True)
    for share in ("surge", "unavailable"):
        if share in given:
            given[share] = str(given[share])
    rollout = replace(present, **given)
    check(rollout)
    return rollout


def _changes(asked: UpdateRequest) -> dict[str, Any]:
    given = {"image": asked.image, "command": asked.command}
    merged = {"environment": asked.environment, "resources": asked.resources}
    return {name: value for name, value in given.items() if value is not None} | {
        name: value for name, value in merged.items() if value
    }


def _changed(container: ContainerRequest, changes: dict[str, Any], asked: UpdateRequest) -> ContainerRequest:
    environment = {**container.environment, **asked.environment}
    values = container.model_dump(exclude_unset=True) | changes
    values["environment"] = {name: value for name, value in environment.items() if value is not None}
    values["resources"] = {**container.resources, **asked.resources}
    return type(container).model_validate(values)
