"""Translation of a request into the workload to write. Raises for every problem that waiting cannot cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from mooring.model.calendar.timeslots import Timeslot
from mooring.model.errors import InvalidInput
from mooring.model.resources.devices import DeviceDemand
from mooring.model.resources.slots import Amounts
from mooring.model.resources.task_resources import requests_of
from mooring.model.workloads.constraints import Constraints, check_constraints
from mooring.model.workloads.containers import TaskTemplate
from mooring.model.workloads.groups import grouped
from mooring.model.workloads.images import parse_image
from mooring.model.workloads.lifetime.rollouts import Rollout
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.simulation import behaviour_of
from mooring.model.workloads.workload import Kind
from mooring.services.deployments.updates import rollout_of
from mooring.services.submission.containers import template_of, with_default_requests
from mooring.services.submission.gang_options import check_gang_options, group_of_request, placement_options_of
from mooring.services.submission.placement_constraints import constraints_of
from mooring.services.submission.pool_choice import choose_pool
from mooring.services.submission.reservation_access import booking_of, check_fits
from mooring.services.submission.rules import check, default_time
from mooring.services.submission.schedule_options import schedule_of
from mooring.services.submission.submission_context import SubmissionContext
from mooring.services.submission.volume_mounts import check_available, check_settled, volumes_of
from mooring.services.uploads.session_files import with_files
from mooring.store.core.ids import new_id
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.mounts import Mounted
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.store.workloads.volumes import Volume
from mooring.wire.workloads.workloads import WorkloadRequest


def translate(request: WorkloadRequest, context: SubmissionContext) -> tuple[NewWorkload, Pool]:
    """Return the workload to write, without its dependencies, and its pool."""
    kind = Kind(request.kind)
    schedule = schedule_of(request)
    replicas = request.replicas if schedule.array is None else schedule.array.count
    template = with_files(template_of(request, kind, replicas), request.files, kind)
    volumes = volumes_of(template, context)
    booking = booking_of(request, context)
    pool = _pool_of(request, template, volumes, booking, context)
    check_available(volumes, pool)
    default = _default_requests(pool, booking)
    template = with_default_requests(template, default, context.served.get(pool.id), replicas)
    workload_id = new_id()
    name = request.name or _generated_name(template, workload_id)
    constraints = _checked_constraints(request, name, template, context)
    check_gang_options(request)
    group = group_of_request(request, constraints)
    new = NewWorkload(
        id=workload_id,
        name=name,
        kind=kind,
        type=request.type if request.type != "batch" or kind is Kind.SESSION else "compute",
        principal=context.principal,
        pool_id=pool.id,
        replicas=replicas,
        template=template,
        labels=request.labels,
        constraints=constraints if group is None else grouped(constraints, group, context.principal.user_id),
        task_ids=(),
        preemptible=request.preemptible,
        min_available=request.min_available,
        schedule=_with_defaults(schedule, request, pool, booking, context),
        mounts=tuple(map(Mounted.of, volumes)),
        rollout=_rollout(request, kind),
        **placement_options_of(request, group, pool.policy.on_insufficient),
    )
    check(new, pool, context)
    if booking is not None:
        check_settled(new.mounts)
        check_fits(new, booking)
    return _with_task_ids(new), pool


def _pool_of(
    request: WorkloadRequest,
    template: TaskTemplate,
    volumes: Sequence[Volume],
    booking: Timeslot | None,
    context: SubmissionContext,
) -> Pool:
    """Return the pool of the booking, of the request or of a volume, in that order; else choose one."""
    if booking is not None:
        # Access to a timeslot includes access to its pool.
        return choose_pool(booking.pool, template.runtime, context.pools)
    named = request.pool or next((volume.pool for volume in volumes), None)
    return choose_pool(named, template.runtime, context.pools, context.may_use, context.offered)


def _default_requests(pool: Pool, booking: Timeslot | None) -> Amounts:
    """Return the pool's default requests; in a booking, no more than it reserves for each task."""
    default = pool.policy.default_requests
    if booking is None:
        return default
    return {slot: min(amount, booking.request.get(slot, 0)) for slot, amount in default.items()}


def _with_defaults(
    schedule: ScheduleOptions,
    request: WorkloadRequest,
    pool: Pool,
    booking: Timeslot | None,
    context: SubmissionContext,
) -> ScheduleOptions:
    """Add the booking, and the limits that sessions have where the request gives none."""
    if booking is not None:
        schedule = replace(schedule, booking=booking.id)
    if request.kind != "session":
        return schedule
    if schedule.time_limit_seconds is None:
        schedule = replace(schedule, time_limit_seconds=default_time(pool.policy, context.policy))
    if request.type == "interactive" and schedule.idle_timeout_seconds is None:
        schedule = replace(schedule, idle_timeout_seconds=pool.policy.idle_timeout_seconds)
    return schedule


def _checked_constraints(
    request: WorkloadRequest, name: str, template: TaskTemplate, context: SubmissionContext
) -> Constraints:
    constraints = constraints_of(
        request.placement,
        name=name,
        labels=request.labels,
        project=str(context.principal.project_id),
        images=images_of(template),
    )
    check_constraints(constraints)
    # Raises for labels that describe a simulated task wrongly.
    behaviour_of(request.labels)
    check_devices(constraints.devices, requests_of(template))
    return constraints


def _with_task_ids(new: NewWorkload) -> NewWorkload:
    """Generate the ids of the tasks; those of an array are generated as its tasks are created.

    After all checks, so that refusing a request of many tasks costs as little as refusing one of a single task.
    """
    if new.schedule.array is not None:
        return new
    return replace(new, task_ids=tuple(new_id() for _ in range(new.replicas)))


def _rollout(request: WorkloadRequest, kind: Kind) -> Rollout | None:
    if request.rollout is None:
        return None
    if kind is not Kind.DEPLOYMENT:
        raise InvalidInput(f"rollout applies to deployments, not to a {kind}; leave it out", code="not-a-deployment")
    return rollout_of(Rollout(), request.rollout)


def images_of(template: TaskTemplate) -> list[str]:
    """Return the full names of all images that a task needs; raise InvalidInput for an invalid one."""
    return [str(parse_image(image)) for image in template.images]


def check_devices(demands: Sequence[DeviceDemand], request: Amounts) -> None:
    """Raise InvalidInput for a device demand that could have no effect."""
    described: set[str] = set()
    for demand in demands:
        if not request.get(demand.slot):
            raise InvalidInput(
                f"devices: {demand.slot} is described but not requested; request some {demand.slot}",
                code="invalid-devices",
            )
        if demand.slot in described:
            raise InvalidInput(f"devices: {demand.slot} is described twice", code="invalid-devices")
        described.add(demand.slot)


def _generated_name(template: TaskTemplate, workload_id: UUID) -> str:
    """Return a name that people can tell apart: the image or command, and the random end of the id."""
    first = template.containers[0]
    word = first.image or next(iter(first.command), "script")
    stem = "".join(c for c in word.rsplit("/", 1)[-1].split(":", 1)[0].lower() if c.isascii() and c.isalnum())[:20]
    return f"{stem or 'task'}-{workload_id.hex[-8:]}"
