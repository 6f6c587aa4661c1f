"""Stateful test of quotas: no order of events exceeds a limit over all pools, and private work has its own cap."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from sqlalchemy import select

from mooring.clock import now
from mooring.model.decisions import Decision
from mooring.model.policy.pools import Binding
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.arrays import Array
from mooring.model.workloads.schedule import DEFAULT_SCHEDULE, ScheduleOptions
from mooring.model.workloads.workload import Kind
from mooring.store.nodes import pools
from mooring.store.nodes.pools import Pool
from mooring.store.tables import tenant_resources
from mooring.store.tenancy import tenants
from tests.properties import proofs
from tests.properties.machine import HEALTH, LATER, PICK, REPORTS, SORTS, Machine, Steps, on, on_sqlite, run
from tests.selection import examples
from tests.store.commit.test_quota_guard import limit
from tests.store.commit.test_tenant_usage import make_private
from tests.store.commit.test_tenant_usage import tenants as levels
from tests.store.harness import LONG_AGO, Harness
from tests.store.tenant_builders import make_project, make_user

LIMITED = [
    (Scope.KEYPAIR, "cpu"),
    (Scope.USER, "sessions"),
    (Scope.PROJECT, "cpu"),
    (Scope.DOMAIN, "cpu"),
    (Scope.USER, "private-sessions"),
]
WHO = st.integers(0, 1)


class Quotas(Machine):
    """Two projects of one domain in two pools; proposals know nothing of limits: the commit alone keeps them."""

    def __init__(self, url: str) -> None:
        self.limits: dict[tuple[Tenant, str], int] = {}
        self.usage: dict[tuple[Tenant, str], int] = {}
        self.proposed: list[Decision] = []
        super().__init__(url)

    stop = precondition(lambda self: self.workload_ids)(rule(pick=PICK, remove=st.booleans())(Machine.stop))
    force = precondition(lambda self: self.workload_ids)(rule(pick=PICK)(Machine.force))
    scale = precondition(lambda self: self.workload_ids)(rule(pick=PICK, replicas=st.integers(1, 4))(Machine.scale))
    replace_what_ended = rule()(Machine.replace_what_ended)
    time_is_over = rule(hours=st.integers(0, 1))(Machine.time_is_over)
    node_is = rule(pick=PICK, how=st.sampled_from(HEALTH))(Machine.node_is)

    @initialize(who=WHO, what=st.sampled_from(LIMITED), amount=st.integers(0, 3))
    def begin(self, who: int, what: tuple[Scope, str], amount: int) -> None:
        self.tenants = [self.harness, self.do(self._neighbour())]
        self.pools = [self.harness.pool, self.do(self._second_pool())]
        for pool in self.pools:
            self.node_ids.append(self.do(replace(self.harness, pool=pool).node(f"n-{pool.name}", cpu=8)))
        self.set_limit(who, what, amount)
        for private in (False, True):
            self.submit(0, 0, Kind.DEPLOYMENT, 2, "1", "limited", private)
            self.submit(1, 1, Kind.SESSION, 2, "1", "retried", private)

    async def _neighbour(self) -> Harness:
        """The same store for a user of another project."""
        database = self.harness.database
        await make_project(database, "other")
        user_id = await make_user(database, "neighbour", project="other")
        async with database.read() as connection:
            account = await tenants.account(connection, user_id)
        assert account is not None
        assert account.principal.access_key
        return replace(self.harness, principal=account.principal)

    async def _second_pool(self) -> Pool:
        return await self.harness.database.write(
            lambda c: pools.ensure(c, "second", runtimes=["process"], simulated=False, now=LONG_AGO)
        )

    @precondition(lambda self: len(self.workload_ids) < 10)
    @rule(
        who=WHO,
        where=st.integers(0, 1),
        kind=st.sampled_from(Kind),
        replicas=st.integers(1, 3),
        cpu=st.sampled_from(["500m", "1", "2"]),
        sort=st.sampled_from(sorted(SORTS)),
        private=st.booleans(),
    )
    def submit(self, who: int, where: int, kind: Kind, replicas: int, cpu: str, sort: str, private: bool) -> None:
        name = f"w{next(self.numbers)}"
        tenant = replace(self.tenants[who], pool=self.pools[where])
        is_array = kind is Kind.SESSION and sort == "array"
        schedule = ScheduleOptions(array=Array(0, 1, replicas)) if is_array else DEFAULT_SCHEDULE
        workload_id = self.do(tenant.submit(name, kind=kind, replicas=replicas, cpu=cpu, schedule=schedule))
        if kind is Kind.SESSION and not is_array:
            self.do(self.harness.set(workload_id, **SORTS[sort]))
        if private:
            self.do(make_private(self.harness, workload_id))
        self.workload_ids.append(workload_id)

    @rule(who=WHO, what=st.sampled_from(LIMITED), amount=st.integers(0, 4))
    def set_limit(self, who: int, what: tuple[Scope, str], amount: int) -> None:
        scope, slot = what
        units = 1000 * amount if slot == "cpu" else amount
        self.do(limit(self.tenants[who], scope, **{slot: units}))
        [tenant] = [level for level in levels(self.tenants[who]) if level.scope is scope]
        self.limits[tenant, slot] = units

    @rule(mode=st.sampled_from(Binding), late=st.booleans())
    def bind(self, mode: Binding, late: bool) -> None:
        """The same decisions again change nothing."""
        if not late:
            decisions = self.do(self.harness.propose(at=now() + LATER))
            self.proposed = [decision for decision in decisions if decision.placements]
        bound = self.do(self.harness.commit(*self.proposed, mode=mode)).bound
        before = self.do(proofs.books(self.harness))
        assert not bound or not self.do(self.harness.commit(*bound, mode=mode)).bound
        assert self.do(proofs.books(self.harness)) == before

    @rule(reports=st.lists(st.tuples(PICK, st.sampled_from(REPORTS)), min_size=1, max_size=4))
    def report(self, reports: list[tuple[int, Steps]]) -> None:
        ids = self.do(self.charged())
        if ids:
            self.do(self.tell([(ids[pick % len(ids)], s, gone) for pick, steps in reports for s, gone in steps]))

    @invariant()
    def usage_grows_up_to_a_limit_and_never_above_it(self) -> None:
        before, self.usage = self.usage, self.do(self._usage())
        for what, most in self.limits.items():
            assert self.usage.get(what, 0) <= max(most, before.get(what, 0)), what

    async def _usage(self) -> dict[tuple[Tenant, str], int]:
        row = tenant_resources.c
        amounts = select(row.scope, row.tenant_id, row.slot_name, row.reserved + row.used)
        rows = await self.harness.rows(amounts.where(row.pool == ""))
        return {(Tenant(Scope(scope), id), slot): amount for scope, id, slot, amount in rows}


def test_limits_hold_after_every_step_on_sqlite(sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run(on_sqlite(Quotas, sqlite_template, tmp_path), monkeypatch, max_examples=examples(6), stateful_step_count=25)


@pytest.mark.soak
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_limits_hold_over_long_histories(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run(on(database, Quotas, request, tmp_path), monkeypatch, max_examples=40, stateful_step_count=40)
