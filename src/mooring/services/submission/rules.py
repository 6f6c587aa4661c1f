"""Rules of policy and pool that a submission must satisfy, because waiting cannot cure a violation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mooring.model.calendar.durations import format_duration
from mooring.model.errors import InvalidInput, MooringError, NotAllowed
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.task_resources import requests_of
from mooring.model.tenancy.policies import Policy, Right
from mooring.model.workloads.paths import is_within
from mooring.model.workloads.workload import Kind
from mooring.services.submission.submission_context import SubmissionContext
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.new_workloads import NewWorkload

Rule = Callable[[NewWorkload, Pool, SubmissionContext], MooringError | None]


def check(new: NewWorkload, pool: Pool, context: SubmissionContext) -> None:
    """Raise one error with all violations."""
    found = [error for rule in RULES if (error := rule(new, pool, context)) is not None]
    if found:
        raise _combined(found)


def priority(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    highest = _limit(context.policy.max_priority)
    if highest is None or new.priority <= highest or context.principal.is_admin:
        return None
    return NotAllowed(
        f"priority {new.priority} exceeds the maximum of {highest} that your policy allows",
        code="priority-too-high",
        details={"requested": new.priority, "limit": highest},
    )


def private(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    return _right(Right.PRIVATE, context, "private sessions") if new.schedule.private else None


def system(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    return _right(Right.SYSTEM, context, "sessions of type system") if new.type == "system" else None


def designated(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    strictly = new.constraints.designated_strictly
    return _right(Right.DESIGNATE, context, "naming the only nodes that may be used") if strictly else None


def allowed_type(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    # Deployments have types of their own, which mean nothing to a pool.
    kind = new.type if new.kind is Kind.SESSION else "compute"
    allowed = pool.policy.allowed_types
    if kind in allowed:
        return None
    return InvalidInput(
        f"pool {pool.name!r} accepts {', '.join(allowed) or 'nothing'}, not {kind!r}",
        code="type-not-allowed",
        details={"pool": pool.name, "type": kind, "allowed": list(allowed)},
    )


def number_of_tasks(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    return too_many_tasks(new.replicas, context.policy, is_array=new.schedule.array is not None)


def time_limit(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    asked, longest = new.schedule.time_limit_seconds, max_run_seconds(pool.policy, context.policy)
    if new.kind is Kind.DEPLOYMENT or asked is None or context.principal.is_admin:
        return None
    return too_long(asked, longest)


def notice(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    asked, limit = new.schedule.notice, new.schedule.time_limit_seconds
    if asked is None or (limit is not None and asked.seconds < limit):
        return None
    if limit is None and new.schedule.idle_timeout_seconds is not None:
        # It is sent as the warning of the idle timeout.
        return None
    end = "it has no time limit" if limit is None else f"its time limit is {format_duration(limit)}"
    return InvalidInput(
        f"the signal cannot be sent {format_duration(asked.seconds)} before the time limit: {end}",
        code="invalid-signal",
    )


def served_slots(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    served = context.served.get(pool.id)
    if served is None:
        # Without nodes it is not known which slots the pool will serve.
        return None
    missing = sorted(slot for slot, amount in requests_of(new.template).items() if amount and slot not in served)
    if not missing:
        return None
    return InvalidInput(
        f"no node of pool {pool.name!r} has {', '.join(missing)}; its nodes have {', '.join(sorted(served))}",
        code="slot-not-served",
        details={"pool": pool.name, "missing": missing, "served": sorted(served)},
    )


def privileged(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    asking = next((container.name for container in new.template.all_containers if container.privileged), None)
    if asking is None or pool.policy.privileged:
        return None
    return NotAllowed(
        f"container {asking!r} asks to be privileged, which pool {pool.name!r} does not allow",
        code="privileged-not-allowed",
        details={"pool": pool.name, "container": asking},
    )


def host_paths(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    allowed = pool.policy.host_paths
    for volume in new.template.volumes:
        path = volume.path
        if path is not None and not any(is_within(path, folder) for folder in allowed):
            return NotAllowed(
                f"volume {volume.name!r} mounts {path} of the node, and pool {pool.name!r} allows"
                f" {', '.join(allowed) or 'no folders of its nodes'}",
                code="host-path-not-allowed",
                details={"pool": pool.name, "path": path, "allowed": list(allowed)},
            )
    return None


def isolation(new: NewWorkload, pool: Pool, context: SubmissionContext) -> MooringError | None:
    if pool.policy.isolation != "container" or new.template.runtime != "process":
        return None
    return InvalidInput(
        f"pool {pool.name!r} requires containers (isolation {pool.policy.isolation}), and this runs as a process; "
        "give it an image, or choose another pool",
        code="isolation-insufficient",
        details={"pool": pool.name, "required": pool.policy.isolation},
    )


RULES: Sequence[Rule] = (
    priority,
    private,
    system,
    designated,
    allowed_type,
    number_of_tasks,
    time_limit,
    notice,
    served_slots,
    privileged,
    host_paths,
    isolation,
)


def default_time(pool: PoolPolicy, policy: Policy) -> int | None:
    """Return the default time limit of a session: the pool's, else the policy's, else the maximum."""
    longest = max_run_seconds(pool, policy)
    usual = _limit(pool.default_time_seconds) or _limit(policy.default_time_seconds) or longest
    return usual if longest is None or usual is None else min(usual, longest)


def max_run_seconds(pool: PoolPolicy, policy: Policy) -> int | None:
    return min(filter(None, (_limit(pool.max_time_seconds), _limit(policy.max_time_seconds))), default=None)


def too_many_tasks(asked: int, policy: Policy, *, is_array: bool = False) -> MooringError | None:
    most = _limit(policy.max_array_size if is_array else policy.max_tasks)
    if most is None or asked <= most:
        return None
    what, code = ("an array", "array-too-large") if is_array else ("a workload", "too-many-tasks")
    return InvalidInput(
        f"your policy allows {what} of up to {most:,} tasks, and this one has {asked:,}",
        code=code,
        details={"requested": asked, "limit": most},
    )


def too_long(asked: int, longest: int | None) -> MooringError | None:
    if longest is None or asked <= longest:
        return None
    return InvalidInput(
        f"a time limit of {format_duration(asked)} exceeds the maximum of {format_duration(longest)}",
        code="time-limit-too-long",
        details={"requested_seconds": asked, "limit_seconds": longest},
    )


def _limit(number: int | None) -> int | None:
    """Return the number, or None if it is no limit (None or below 1)."""
    return number if number is not None and number > 0 else None


def _right(right: Right, context: SubmissionContext, what: str) -> MooringError | None:
    if context.principal.is_admin or right in context.policy.rights:
        return None
    return NotAllowed(
        f"{what} need the right {right.value!r}, which your policy does not grant",
        code="right-missing",
        details={"right": right.value},
    )


def _combined(errors: Sequence[MooringError]) -> MooringError:
    """Return one error as it is; several as one that lists them all, NotAllowed if one of them is."""
    if len(errors) == 1:
        return errors[0]
    kind = NotAllowed if any(isinstance(error, NotAllowed) for error in errors) else InvalidInput
    return kind(
        "; ".join(error.message for error in errors),
        code="rules-broken",
        details={"problems": [{"code": e.code, "message": e.message, **e.details} for e in errors]},
    )
