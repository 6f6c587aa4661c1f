"""A request as it travels, translated into what is written. Whatever waiting cannot cure is refused here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from mooring.intake.circumstances import Circumstances
from mooring.intake.containers import template_of
from mooring.intake.guests import booking_of, check_fits
from mooring.intake.mounting import check_reach, check_settled, volumes_of
from mooring.intake.placing import constraints_of
from mooring.intake.rules import check, usual_time
from mooring.intake.terms import terms_of
from mooring.intake.together import check_together, group_of_request
from mooring.intake.updates import rollout_of
from mooring.model.constraints import check_constraints
from mooring.model.containers import TaskTemplate
from mooring.model.devices import DeviceDemand
from mooring.model.errors import InvalidInput, NotAllowed
from mooring.model.groups import Direction, grouped
from mooring.model.images import parse_image
from mooring.model.resources import requests_of
from mooring.model.rollouts import Rollout
from mooring.model.slots import Amounts
from mooring.model.workloads import Kind, OnInsufficient
from mooring.store.ids import new_id
from mooring.store.mounts import Mounted
from mooring.store.pools import Pool
from mooring.store.workloads import NewWorkload
from mooring.wire.api import WorkloadRequest


def translate(request: WorkloadRequest, circumstances: Circumstances) -> tuple[NewWorkload, Pool]:
    """What is written, except for its dependencies."""
    principal = circumstances.principal
    kind = Kind(request.kind)
    terms = terms_of(request)
    replicas = request.replicas if terms.array is None else terms.array.count
    template = template_of(request, kind, replicas)
    volumes = volumes_of(template, circumstances)
    slot = booking_of(request, circumstances)
    if slot is None:
        named = request.pool or next((volume.pool for volume in volumes), None)
        pool = choose_pool(named, template.runtime, circumstances.pools, circumstances.may_use, circumstances.offered)
    else:
        # Who may use the timeslot may use its pool for that.
        pool = choose_pool(slot.pool, template.runtime, circumstances.pools)
        terms = replace(terms, booking=slot.id)
    check_reach(volumes, pool)
    if kind is Kind.SESSION and terms.time_limit_seconds is None:
        terms = replace(terms, time_limit_seconds=usual_time(pool.policy, circumstances.policy))
    if kind is Kind.SESSION and request.type == "interactive" and terms.idle_timeout_seconds is None:
        terms = replace(terms, idle_timeout_seconds=pool.policy.idle_timeout_seconds)
    workload_id = new_id()
    name = request.name or _made_up_name(template, workload_id)
    constraints = constraints_of(
        request.placement,
        name=name,
        labels=request.labels,
        project=str(principal.project_id),
        images=images_of(template),
    )
    check_constraints(constraints)
    check_devices(constraints.devices, requests_of(template))
    check_together(request)
    group = group_of_request(request, constraints)
    if group is not None:
        constraints = grouped(constraints, group, principal.user_id)
    on_insufficient = OnInsufficient(request.on_insufficient or pool.policy.on_insufficient)
    new = NewWorkload(
        id=workload_id,
        name=name,
        kind=kind,
        type=request.type if request.type != "batch" or kind is Kind.SESSION else "compute",
        principal=principal,
        pool_id=pool.id,
        replicas=replicas,
        template=template,
        region=request.region,
        priority=request.priority,
        labels=request.labels,
        constraints=constraints,
        gang=request.gang or (on_insufficient is OnInsufficient.FAIL and request.min_tasks is None),
        min_tasks=request.min_tasks,
        single_node=request.single_node,
        pack=tuple(request.pack),
        spread=request.spread and (group is None or group.direction is not Direction.PACK),
        max_per_node=request.max_per_node,
        on_insufficient=on_insufficient,
        task_ids=tuple(new_id() for _ in range(replicas)),
        preempts=request.preempts,
        preemptible=request.preemptible,
        min_available=request.min_available,
        terms=terms,
        mounts=tuple(map(Mounted.of, volumes)),
        rollout=_rollout(request, kind),
    )
    check(new, pool, circumstances)
    if slot is not None:
        check_settled(new.mounts)
        check_fits(new, slot)
    return new, pool


def _rollout(request: WorkloadRequest, kind: Kind) -> Rollout | None:
    if request.rollout is None:
        return None
    if kind is not Kind.DEPLOYMENT:
        raise InvalidInput(f"a {kind} is not rolled out as deployments are: leave out rollout", code="not-a-deployment")
    return rollout_of(Rollout(), request.rollout)


def choose_pool(
    name: str | None,
    runtime: str | None,
    pools: Sequence[Pool],
    allowed: Callable[[Pool], bool] = lambda _pool: True,
    offered: Mapping[UUID, frozenset[str]] | None = None,
) -> Pool:
    """The pool by its name, or one that may be used and takes the runtime: a real one before the simulated one.

    By `offered`, one with a node that has the runtime comes before all others, and one with nodes before one without.
    Without a runtime any may be meant: what will run there is not known yet.
    """
    if name is not None:
        found = next((pool for pool in pools if pool.name == name), None)
        if found is None:
            known = ", ".join(sorted(pool.name for pool in pools))
            raise InvalidInput(f"there is no pool {name!r}; there are: {known}", code="unknown-pool")
        if not allowed(found):
            raise NotAllowed(
                f"pool {name!r} is for those who were given access to it; an admin gives it with"
                f" `mooring pool access add {name}`",
                code="pool-not-allowed",
                details={"pool": name, "allowed": sorted(pool.name for pool in pools if allowed(pool))},
            )
        if runtime is not None and runtime not in found.runtimes:
            raise InvalidInput(
                f"pool {name!r} allows {' and '.join(sorted(found.runtimes))} tasks, not {runtime} tasks",
                code="runtime-not-allowed",
                details={"pool": name, "runtime": runtime, "allowed": sorted(found.runtimes)},
            )
        return found
    offering = [pool for pool in pools if runtime is None or runtime in pool.runtimes]
    had = offered or {}
    usable = sorted(
        filter(allowed, offering),
        key=lambda pool: (runtime not in had.get(pool.id, ()), pool.id not in had, pool.simulated, pool.name),
    )
    if not usable and offering:
        raise NotAllowed(
            f"no pool that you may use offers {runtime or 'any'} tasks; ask an admin for access to one",
            code="pool-not-allowed",
            details={"runtime": runtime},
        )
    if not usable:
        raise InvalidInput(
            f"no pool offers {runtime} tasks here"
            + ("; start the server with --simulate 5 to play with simulated nodes" if runtime == "container" else ""),
            code="runtime-not-offered",
            details={"runtime": runtime},
        )
    return usable[0]


def images_of(template: TaskTemplate) -> list[str]:
    """The whole names of all images that a node fetches for a task; InvalidInput where one is no name."""
    return [str(parse_image(image)) for image in template.images]


def check_devices(demands: Sequence[DeviceDemand], request: Amounts) -> None:
    """InvalidInput for a demand on devices that could have no effect."""
    described: set[str] = set()
    for demand in demands:
        if not request.get(demand.slot):
            raise InvalidInput(
                f"it says what its {demand.slot} devices must be, but asks for no {demand.slot}: say how much it needs",
                code="invalid-devices",
            )
        if demand.slot in described:
            raise InvalidInput(f"devices: {demand.slot} is described twice", code="invalid-devices")
        described.add(demand.slot)


def _made_up_name(template: TaskTemplate, workload_id: UUID) -> str:
    """A name that a person can tell apart: what runs, and the random end of the id."""
    first = template.containers[0]
    word = first.image or first.command[0]
    stem = "".join(c for c in word.rsplit("/", 1)[-1].split(":", 1)[0].lower() if c.isascii() and c.isalnum())[:20]
    return f"{stem or 'task'}-{workload_id.hex[-8:]}"
