"""Fair share: the ranks of tenants in a pool, and their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from mooring.clock import now
from mooring.mirror.fair_share import PastUse, past_use
from mooring.model.tenancy.access import (
    Action,
    Target,
    may,
    not_there,
    require,
    sight,
)
from mooring.model.tenancy.fair_share import DEFAULT_WEIGHT, Factors
from mooring.model.tenancy.quotas import Scope
from mooring.model.tenancy.tenants import Principal
from mooring.scheduling.plugins.ordering.drf import dominant_share
from mooring.scheduling.plugins.protocols import SHARE_ONE
from mooring.store.accounting import usage
from mooring.store.control import events
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import pools
from mooring.store.tenancy import admin_actions, fair_share, quotas
from mooring.store.tenancy.admin_actions import Actor
from mooring.wire.tenancy.shares import ShareList, ShareView, WeightedScope

_NOUN = "weight"


class Shares:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_pool(self, principal: Principal, name: str) -> ShareList:
        """Return the ranks of the tenants that the principal may see; they count all tenants."""
        async with self._database.read() as connection:
            pool = await pools.by_name(connection, name)
            if pool is None:
                raise not_there(f"pool {name!r}")
            found = await past_use(connection, name, pool.policy.fair_share, now())
            held = await fair_share.held_by_users(connection, name)
            capacity = await usage.capacity(connection, name)
            known = {*(user for _, user in found.users), *held, *found.weights.users, principal.user_id}
            members = await fair_share.members(connection, known)
        by_held = pool.policy.sequencer == "fair_queue"
        rows = _TenantShares(found, members, lambda user: dominant_share(held.get(user, {}), capacity) / SHARE_ONE)
        seen = sight(principal)
        return ShareList(
            pool=name,
            sequencer=pool.policy.sequencer,
            shares=[
                share.view(rank)
                for scope in (rows.domains(), rows.projects(), rows.users())
                for rank, share in enumerate(sorted(scope, key=lambda each: each.order(by_held)), start=1)
                if seen.shows(share.target)
            ],
        )

    async def set_weight(self, principal: Principal, scope: WeightedScope, ref: str, weight: int) -> None:
        async def work(connection: Connection) -> None:
            found = await quotas.find(
                connection, Scope(scope), ref, seen=lambda target: may(principal, Action.SEE_QUOTA, target)
            )
            require(principal, Action.CHANGE_QUOTA, found.target)
            before, at = await fair_share.set_weight(connection, found.tenant, weight), now()
            if before == weight:
                return
            await events.append(connection, [events.NewEvent("tenant", UUID(found.tenant.id), 0, events.QUOTA)], at)
            await admin_actions.record(
                connection,
                Actor.of(principal),
                "change",
                _NOUN,
                f"{scope} {found.name}",
                now=at,
                before={"weight": before},
                after={"weight": weight},
            )

        await self._database.write(work)


class _TenantShare(NamedTuple):
    scope: WeightedScope
    id: UUID
    name: str
    target: Target
    weight: int
    used: float
    held: float
    factors: tuple[float, ...]
    """Return the weights of the domain, the project and the user, as far as the scope goes."""
    weighted_held: float = 0.0

    def order(self, by_held: bool) -> tuple[object, ...]:
        past = tuple(-factor for factor in self.factors)
        return (self.weighted_held, past, self.name) if by_held else (past, self.weighted_held, self.name)

    def view(self, rank: int) -> ShareView:
        return ShareView(
            scope=self.scope,
            id=self.id,
            name=self.name,
            weight=self.weight,
            used_percent=round(self.used * 100, 3),
            held_percent=round(self.held * 100, 3),
            factor=round(self.factors[-1], 6),
            rank=rank,
        )


class _TenantShares:
    """Return the tenants of a pool with recent use or occupied capacity, and their parents."""

    def __init__(self, past: PastUse, members: list[fair_share.Member], held: Callable[[UUID], float]) -> None:
        self._past = past
        self._factors: Factors = past.factors()
        self._members = members
        self._held = held

    def domains(self) -> list[_TenantShare]:
        names = {member.domain_id: member.domain for member in self._members}
        weights = self._past.weights.domains
        return [
            _TenantShare(
                "domain",
                each,
                name,
                Target(each),
                weights.get(each, DEFAULT_WEIGHT),
                self._past.domains.get(each, 0.0),
                0.0,
                (self._domain(each),),
            )
            for each, name in names.items()
        ]

    def projects(self) -> list[_TenantShare]:
        found = {member.project_id: member for member in self._members}
        weights = self._past.weights.projects
        return [
            _TenantShare(
                "project",
                each,
                f"{member.domain}/{member.project}",
                Target(member.domain_id, each),
                weights.get(each, DEFAULT_WEIGHT),
                self._past.projects.get(each, 0.0),
                0.0,
                (self._domain(member.domain_id), self._project(each)),
            )
            for each, member in found.items()
        ]

    def users(self) -> list[_TenantShare]:
        weights = self._past.weights
        standings = []
        for member in self._members:
            held = self._held(member.user_id)
            weight = weights.product(member.domain_id, member.project_id, member.user_id)
            standings.append(
                _TenantShare(
                    "user",
                    member.user_id,
                    f"{member.domain}/{member.project}/{member.user}",
                    Target(member.domain_id, member.project_id, member.user_id),
                    weights.users.get(member.user_id, DEFAULT_WEIGHT),
                    self._past.users.get((member.project_id, member.user_id), 0.0),
                    held,
                    (
                        self._domain(member.domain_id),
                        self._project(member.project_id),
                        self._factors.users.get((member.project_id, member.user_id), 1.0),
                    ),
                    held / weight,
                )
            )
        return standings

    def _domain(self, domain_id: UUID) -> float:
        return self._factors.domains.get(domain_id, 1.0)

    def _project(self, project_id: UUID) -> float:
        return self._factors.projects.get(project_id, 1.0)
