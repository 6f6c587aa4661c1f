"""What waiting cannot cure: the rules of policy and pool that a submission keeps, or is refused. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mooring.intake.circumstances import Circumstances
from mooring.model.durations import format_duration
from mooring.model.errors import InvalidInput, MooringError, NotAllowed
from mooring.model.paths import is_within
from mooring.model.policies import Policy, Right
from mooring.model.pools import PoolPolicy
from mooring.model.resources import requests_of
from mooring.model.workloads import Kind
from mooring.store.pools import Pool
from mooring.store.workloads import NewWorkload

Rule = Callable[[NewWorkload, Pool, Circumstances], MooringError | None]


def check(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> None:
    """Raises what is wrong with it, all of it together."""
    found = [error for rule in RULES if (error := rule(new, pool, circumstances)) is not None]
    if found:
        raise _together(found)


def priority(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    highest = _limit(circumstances.policy.max_priority)
    if highest is None or new.priority <= highest or circumstances.principal.is_admin:
        return None
    return NotAllowed(
        f"priority {new.priority} is above the {highest} that your policy allows",
        code="priority-too-high",
        details={"requested": new.priority, "limit": highest},
    )


def private(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    return _right(Right.PRIVATE, circumstances, "private sessions") if new.terms.private else None


def system(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    return _right(Right.SYSTEM, circumstances, "sessions of type system") if new.type == "system" else None


def designated(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    strictly = new.constraints.designated_strictly
    return _right(Right.DESIGNATE, circumstances, "naming the only nodes that may be used") if strictly else None


def allowed_type(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    # Deployments have types of their own, which mean nothing to a pool.
    kind = new.type if new.kind is Kind.SESSION else "compute"
    allowed = pool.policy.allowed_types
    if kind in allowed:
        return None
    return InvalidInput(
        f"pool {pool.name!r} takes {', '.join(allowed) or 'nothing'}, not {kind!r}",
        code="type-not-allowed",
        details={"pool": pool.name, "type": kind, "allowed": list(allowed)},
    )


def number_of_tasks(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    policy, is_array = circumstances.policy, new.terms.array is not None
    most = _limit(policy.max_array_size if is_array else policy.max_tasks)
    if most is None or new.replicas <= most:
        return None
    what, code = ("an array", "array-too-large") if is_array else ("a workload", "too-many-tasks")
    return InvalidInput(
        f"your policy allows {what} of {most:,} tasks, and this has {new.replicas:,}",
        code=code,
        details={"requested": new.replicas, "limit": most},
    )


def time_limit(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    asked, longest = new.terms.time_limit_seconds, longest_time(pool.policy, circumstances.policy)
    if new.kind is Kind.DEPLOYMENT or asked is None or circumstances.principal.is_admin:
        return None
    return too_long(asked, longest)


def notice(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    asked, limit = new.terms.notice, new.terms.time_limit_seconds
    if asked is None or (limit is not None and asked.seconds < limit):
        return None
    if limit is None and new.terms.idle_timeout_seconds is not None:
        # It is sent when the session is told that it is idle.
        return None
    end = "it has no time limit" if limit is None else f"its time limit is {format_duration(limit)}"
    return InvalidInput(
        f"a signal {format_duration(asked.seconds)} before its time is over cannot be sent: {end}",
        code="invalid-signal",
    )


def served_slots(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    served = circumstances.served.get(pool.id)
    if served is None:
        # Without nodes nothing is known of what the pool will serve.
        return None
    missing = sorted(slot for slot, amount in requests_of(new.template).items() if amount and slot not in served)
    if not missing:
        return None
    return InvalidInput(
        f"no node of pool {pool.name!r} has {', '.join(missing)}; its nodes have {', '.join(sorted(served))}",
        code="slot-not-served",
        details={"pool": pool.name, "missing": missing, "served": sorted(served)},
    )


def privileged(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    asking = next((container.name for container in new.template.all_containers if container.privileged), None)
    if asking is None or pool.policy.privileged:
        return None
    return NotAllowed(
        f"container {asking!r} asks to be privileged, which pool {pool.name!r} does not allow",
        code="privileged-not-allowed",
        details={"pool": pool.name, "container": asking},
    )


def host_paths(new: NewWorkload, pool: Pool, circumstances: Circumstances) -> MooringError | None:
    allowed = pool.policy.host_paths
    for volume in new.template.volumes:
        path = volume.path
        if path is not None and not any(is_within(path, folder) for folder in allowed):
            return NotAllowed(
                f"volume {volume.name!r} is {path} of the node, and pool {pool.name!r} allows"
                f" {', '.join(allowed) or 'no folders of its nodes'}",
                code="host-path-not-allowed",
                details={"pool": pool.name, "path": path, "allowed": list(allowed)},
            )
    return None


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
)


def usual_time(pool: PoolPolicy, policy: Policy) -> int | None:
    """How long a session may take that does not say: the pool's word, else the policy's, else all that is allowed."""
    longest = longest_time(pool, policy)
    usual = _limit(pool.default_time_seconds) or _limit(policy.default_time_seconds) or longest
    return usual if longest is None or usual is None else min(usual, longest)


def longest_time(pool: PoolPolicy, policy: Policy) -> int | None:
    return min(filter(None, (_limit(pool.max_time_seconds), _limit(policy.max_time_seconds))), default=None)


def too_long(asked: int, longest: int | None) -> MooringError | None:
    if longest is None or asked <= longest:
        return None
    return InvalidInput(
        f"a time limit of {format_duration(asked)} is above the {format_duration(longest)} that are allowed here",
        code="time-limit-too-long",
        details={"requested_seconds": asked, "limit_seconds": longest},
    )


def _limit(number: int | None) -> int | None:
    """None or below 1 is no limit."""
    return number if number is not None and number > 0 else None


def _right(right: Right, circumstances: Circumstances, what: str) -> MooringError | None:
    if circumstances.principal.is_admin or right in circumstances.policy.rights:
        return None
    return NotAllowed(
        f"the right {right.value!r} is needed for {what}, and your policy does not give it",
        code="right-missing",
        details={"right": right.value},
    )


def _together(errors: Sequence[MooringError]) -> MooringError:
    """One error as it is; several as one that names them all, forbidden if one of them is."""
    if len(errors) == 1:
        return errors[0]
    kind = NotAllowed if any(isinstance(error, NotAllowed) for error in errors) else InvalidInput
    return kind(
        "; ".join(error.message for error in errors),
        code="rules-broken",
        details={"problems": [{"code": e.code, "message": e.message, **e.details} for e in errors]},
    )
