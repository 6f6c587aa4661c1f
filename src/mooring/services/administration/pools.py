"""What an admin does with pools: make and remove them, and choose how their workloads are ordered and placed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from mooring.clock import now
from mooring.intake.templates import template_of
from mooring.model.access import not_there
from mooring.model.errors import InvalidInput
from mooring.model.idleness import LEAST_SECONDS
from mooring.model.paths import check_path, is_within
from mooring.model.pools import PoolPolicy
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, discovered_validators
from mooring.scheduling.ordering.multi_factor import MultiFactorSequencer
from mooring.scheduling.profiles import DEFAULT_PROFILE, Registry
from mooring.store import actions, node_templates, pools, volumes
from mooring.store.actions import SERVER, Actor
from mooring.store.engine import Connection, Database
from mooring.store.node_templates import StoredTemplate
from mooring.store.policies import earlier
from mooring.wire.pools import PoolChange, PoolRequest, PreemptionChange
from mooring.wire.scaling import TemplateRequest

_NONE_WHERE_EMPTY = (
    "max_tasks_per_node",
    "default_time_seconds",
    "max_time_seconds",
    "idle_timeout_seconds",
    "shared_volumes",
)
_PAIRS = ("weights", "factors", "validators")
"""Options that travel as objects and are kept as sorted pairs."""

_NEVER_MOUNTED = ("/proc", "/sys", "/dev", "/run", "/var/run")
"""What a node is ruled through, the engine's socket included."""


class PoolAdmin:
    """What is not known (a profile, scorer, sequencer, factor, validator) is refused, with what is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, asked: PoolRequest, actor: Actor = SERVER) -> None:
        policy = changed(PoolPolicy(DEFAULT_PROFILE), asked)
        check(policy)

        async def work(connection: Connection) -> None:
            at = now()
            made = await pools.create(
                connection, asked.name, runtimes=asked.runtimes, simulated=asked.simulated, now=at, policy=policy
            )
            await actions.record(
                connection, actor, "create", "pool", asked.name, now=at, after=_state(policy), version=made.version
            )

        await self._database.write(work)

    async def change(self, name: str, asked: PoolChange, actor: Actor = SERVER) -> None:
        """Only what is given changes."""

        async def work(connection: Connection) -> None:
            found = await _found(connection, name)
            await _set(connection, found, changed(found.policy, asked), actor, "change")

        await self._database.write(work)

    async def revert(self, name: str, version: int | None, actor: Actor = SERVER) -> None:
        """The policy of an earlier version again, the one before if none is named; it is checked as any change is."""

        async def work(connection: Connection) -> None:
            found = await _found(connection, name)
            wanted = earlier(version, found.version, f"pool {name!r}")
            state = await actions.state_at(connection, "pool", name, wanted)
            if state is None:
                raise not_there(f"record of version {wanted} of pool {name!r}")
            policy = msgspec.convert(state, PoolPolicy)
            # Whether it is paused is how it stands, not how it was meant.
            policy = replace(policy, paused=found.policy.paused, paused_reason=found.policy.paused_reason)
            await _set(connection, found, policy, actor, "revert")

        await self._database.write(work)

    async def pause(self, name: str, reason: str | None, actor: Actor = SERVER) -> None:
        """Nothing of it is placed until it is resumed; once more, with another reason."""
        await self._set_paused(name, actor, "pause", paused=True, paused_reason=reason)

    async def resume(self, name: str, actor: Actor = SERVER) -> None:
        await self._set_paused(name, actor, "resume", paused=False, paused_reason=None)

    async def _set_paused(self, name: str, actor: Actor, action: str, **values: Any) -> None:
        async def work(connection: Connection) -> None:
            found = await _found(connection, name)
            policy = replace(found.policy, **values)
            if policy != found.policy:
                await _set(connection, found, policy, actor, action)

        await self._database.write(work)

    async def put_template(self, pool: str, name: str, asked: TemplateRequest, actor: Actor = SERVER) -> StoredTemplate:
        """Say what nodes a pool can be given; in place of what was said under that name."""

        async def work(connection: Connection) -> StoredTemplate:
            template = template_of(asked, name=name, pool=await _found(connection, pool))
            return await node_templates.put(connection, template, actor=actor, now=now())

        return await self._database.write(work)

    async def remove(self, name: str, actor: Actor = SERVER) -> None:
        """One that has neither nodes nor workloads, nor ever had any of these that are kept."""

        async def work(connection: Connection) -> None:
            found = await _found(connection, name)
            at = now()
            await pools.remove(connection, found, at)
            await actions.record(connection, actor, "remove", "pool", name, now=at, before=_state(found.policy))

        await self._database.write(work)


async def _found(connection: Connection, name: str) -> pools.Pool:
    """The pool as it is, until the transaction ends: two changes at once both count."""
    await pools.lock(connection, name)
    found = await pools.by_name(connection, name)
    if found is None:
        raise not_there(f"pool {name[:63]!r}")
    return found


async def _set(connection: Connection, pool: pools.Pool, policy: PoolPolicy, actor: Actor, action: str) -> None:
    check(policy)
    if policy.shared_volumes != pool.policy.shared_volumes:
        await volumes.check_none_shared(connection, pool.id, pool.name)
    at = now()
    version = await pools.set_policy(connection, pool.name, policy, at)
    before, after = _state(pool.policy), _state(policy)
    await actions.record(
        connection, actor, action, "pool", pool.name, now=at, before=before, after=after, version=version
    )


def _state(policy: PoolPolicy) -> dict[str, Any]:
    state: dict[str, Any] = msgspec.to_builtins(policy)
    return state


def check(policy: PoolPolicy) -> None:
    """Raise if it cannot be meant."""
    registry = Registry()
    registry.discover()
    registry.profile(policy.profile, weights=dict(policy.weights) if policy.weights else None)
    registry.sequencer(policy)
    MultiFactorSequencer(dict(policy.factors))
    known = sorted(validator.name for validator in (*BUILT_IN_VALIDATORS, *discovered_validators()))
    for name, _ in policy.validators:
        if name not in known:
            raise InvalidInput(
                f"there is no validator {name!r}; known are {', '.join(known)}",
                code="unknown-validator",
                details={"validator": name, "known": known},
            )
    default, most = policy.default_time_seconds, policy.max_time_seconds
    if default is not None and most is not None and default > most:
        raise InvalidInput(f"the default time of {default} s is above the longest of {most} s", code="invalid-pool")
    if policy.idle_timeout_seconds is not None and policy.idle_timeout_seconds < LEAST_SECONDS:
        raise InvalidInput(f"an idle timeout is at least {LEAST_SECONDS} s, or 0 for none", code="invalid-pool")
    scaling = policy.scaling
    if scaling.most is not None and scaling.most < scaling.least:
        raise InvalidInput(f"at least {scaling.least} nodes are more than at most {scaling.most}", code="invalid-pool")
    for path in policy.host_paths:
        _check_folder(path, "host path")
    if policy.shared_volumes is not None:
        _check_folder(policy.shared_volumes, "folder for shared volumes")
        _check_apart(policy.shared_volumes, policy.host_paths)
    health = policy.health
    if health is not None and not health.command[0]:
        raise InvalidInput("the health program needs a name", code="invalid-pool")
    if health is not None and health.timeout_seconds > health.interval_seconds:
        raise InvalidInput(
            f"the health program may take {health.timeout_seconds} s and is run every {health.interval_seconds} s; "
            "it cannot take longer than that",
            code="invalid-pool",
        )


def _check_folder(path: str, what: str) -> None:
    """Of the nodes, for containers."""
    if check_path(path, what=what) != path:
        raise InvalidInput(f"{what} {path!r}: leave out the / at its end", code="invalid-path")
    if kept := next((kept for kept in _NEVER_MOUNTED if is_within(path, kept) or is_within(kept, path)), None):
        raise InvalidInput(f"{what} {path!r}: {kept} of a node is for no container", code="invalid-path")


def _check_apart(shared: str, host_paths: Iterable[str]) -> None:
    for path in host_paths:
        if is_within(shared, path) or is_within(path, shared):
            raise InvalidInput(
                f"host path {path!r}: who mounts it would see the shared volumes of all projects in {shared!r}",
                code="invalid-path",
            )


def changed(policy: PoolPolicy, asked: PoolChange) -> PoolPolicy:
    """The policy with what is asked for in place of what was."""
    state = _state(policy)
    given = {name: getattr(asked, name) for name in asked.model_fields_set if name in state}
    for name, value in given.items():
        if value is None:
            continue
        if name in _PAIRS:
            state[name] = sorted(value.items()) or (None if name == "weights" else [])
        elif name == "preemption":
            state[name] = _preemption(value)
        elif name == "bookings":
            state[name] |= value.model_dump(exclude_none=True)
        elif name == "health":
            state[name] = value.model_dump() if value.command else None
        elif name == "fair_share":
            fair = value.model_dump(exclude_none=True)
            if "slot_weights" in fair:
                fair["slot_weights"] = sorted(fair["slot_weights"].items())
            state[name] |= fair
        elif name == "backfill":
            state[name] |= value.model_dump(exclude_none=True)
        elif name == "scaling":
            state[name] |= value.model_dump(exclude_none=True)
            state[name]["most"] = state[name]["most"] or None
        elif name in _NONE_WHERE_EMPTY:
            state[name] = value or None
        else:
            state[name] = value
    return msgspec.convert(state, PoolPolicy)


def _preemption(asked: PreemptionChange) -> dict[str, Any] | None:
    return asked.model_dump(exclude={"enabled"}) if asked.enabled else None
