"""Administration of pools: create, change, revert, pause, remove."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from mooring.clock import now
from mooring.model.errors import InvalidInput
from mooring.model.policy.pools import AUTOMATIC, PoolPolicy
from mooring.model.tenancy.access import not_there
from mooring.model.workloads.lifetime.idleness import MIN_IDLE_SECONDS
from mooring.model.workloads.paths import check_path, is_within
from mooring.scheduling.admission import BUILT_IN_VALIDATORS, discovered_validators
from mooring.scheduling.plugins.ordering.multi_factor import MultiFactorSequencer
from mooring.scheduling.plugins.profiles import Registry
from mooring.services.administration.node_templates import template_of
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import pools
from mooring.store.scaling import node_templates
from mooring.store.scaling.node_templates import StoredTemplate
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import SERVER, Actor
from mooring.store.tenancy.policies import earlier
from mooring.store.workloads import volumes
from mooring.wire.cluster.pool_changes import changed
from mooring.wire.cluster.pools import PoolChange, PoolRequest
from mooring.wire.cluster.scaling import TemplateRequest

_NEVER_MOUNTED = ("/proc", "/sys", "/dev", "/run", "/var/run")
"""Folders that control a node, the container engine's socket included; never mounted."""


class PoolAdmin:
    """Reject unknown names (profile, plugin, plugin option, factor) with the list of known ones."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, asked: PoolRequest, actor: Actor = SERVER) -> None:
        policy = changed(PoolPolicy(AUTOMATIC), asked)
        check(policy)

        async def work(connection: Connection) -> None:
            at = now()
            made = await pools.create(
                connection, asked.name, runtimes=asked.runtimes, simulated=asked.simulated, now=at, policy=policy
            )
            await admin_actions.record(
                connection, actor, "create", "pool", asked.name, now=at, after=_state(policy), version=made.version
            )

        await self._database.write(work)

    async def change(self, name: str, asked: PoolChange, actor: Actor = SERVER) -> None:
        """Change the given options of a pool."""

        async def work(connection: Connection) -> None:
            found = await _found(connection, name)
            await _set(connection, found, changed(found.policy, asked), actor, "change")

        await self._database.write(work)

    async def revert(self, name: str, version: int | None, actor: Actor = SERVER) -> None:
        """Restore the policy of a version, by default the previous one; it is checked like any change."""

        async def work(connection: Connection) -> None:
            found = await _found(connection, name)
            wanted = earlier(version, found.version, f"pool {name!r}")
            state = await admin_actions.state_at(connection, "pool", name, wanted)
            if state is None:
                raise not_there(f"record of version {wanted} of pool {name!r}")
            policy = msgspec.convert(state, PoolPolicy)
            # Being paused is state, not policy, so it is not reverted.
            policy = replace(policy, paused=found.policy.paused, paused_reason=found.policy.paused_reason)
            await _set(connection, found, policy, actor, "revert")

        await self._database.write(work)

    async def pause(self, name: str, reason: str | None, actor: Actor = SERVER) -> None:
        """Stop placement in a pool until it is resumed; again, to change the reason."""
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
        """Create or replace a node template of a pool."""

        async def work(connection: Connection) -> StoredTemplate:
            template = template_of(asked, name=name, pool=await _found(connection, pool))
            return await node_templates.put(connection, template, actor=actor, now=now())

        return await self._database.write(work)

    async def remove(self, name: str, actor: Actor = SERVER) -> None:
        """Remove a pool that has neither nodes nor workloads, nor records of any."""

        async def work(connection: Connection) -> None:
            found = await _found(connection, name)
            at = now()
            await pools.remove(connection, found, at)
            await admin_actions.record(connection, actor, "remove", "pool", name, now=at, before=_state(found.policy))

        await self._database.write(work)


async def _found(connection: Connection, name: str) -> pools.Pool:
    """Return the pool, locked until the transaction ends, so that concurrent changes both count."""
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
    await admin_actions.record(
        connection, actor, action, "pool", pool.name, now=at, before=before, after=after, version=version
    )


def _state(policy: PoolPolicy) -> dict[str, Any]:
    state: dict[str, Any] = msgspec.to_builtins(policy)
    return state


def check(policy: PoolPolicy) -> None:
    """Raise if the policy is invalid."""
    registry = Registry()
    registry.discover()
    registry.profile_of(policy)
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
        raise InvalidInput(f"the default time of {default} s exceeds the maximum of {most} s", code="invalid-pool")
    if policy.idle_timeout_seconds is not None and policy.idle_timeout_seconds < MIN_IDLE_SECONDS:
        raise InvalidInput(f"an idle timeout is at least {MIN_IDLE_SECONDS} s, or 0 for none", code="invalid-pool")
    scaling = policy.scaling
    if scaling.most is not None and scaling.most < scaling.least:
        raise InvalidInput(
            f"the minimum of {scaling.least} nodes exceeds the maximum of {scaling.most}", code="invalid-pool"
        )
    for path in policy.host_paths:
        _check_folder(path, "host path")
    if policy.shared_volumes is not None:
        _check_folder(policy.shared_volumes, "folder for shared volumes")
        _check_disjoint(policy.shared_volumes, policy.host_paths)
    health = policy.health
    if health is not None and not health.command[0]:
        raise InvalidInput("the health program needs a name", code="invalid-pool")
    if health is not None and health.timeout_seconds > health.interval_seconds:
        raise InvalidInput(
            f"the health program's timeout, {health.timeout_seconds} s, exceeds its interval,"
            f" {health.interval_seconds} s; "
            "it must not be longer",
            code="invalid-pool",
        )


def _check_folder(path: str, what: str) -> None:
    """Check a folder of the nodes that containers may mount."""
    if check_path(path, what=what) != path:
        raise InvalidInput(f"{what} {path!r}: remove the trailing /", code="invalid-path")
    if reserved := next(
        (reserved for reserved in _NEVER_MOUNTED if is_within(path, reserved) or is_within(reserved, path)), None
    ):
        raise InvalidInput(f"{what} {path!r}: containers may not mount {reserved} of a node", code="invalid-path")


def _check_disjoint(shared: str, host_paths: Iterable[str]) -> None:
    for path in host_paths:
        if is_within(shared, path) or is_within(path, shared):
            raise InvalidInput(
                f"host path {path!r}: it would expose the shared volumes of all projects in {shared!r}",
                code="invalid-path",
            )
