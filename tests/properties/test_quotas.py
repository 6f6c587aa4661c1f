"""Whatever happens in whatever order: no commit exceeds a limit over all pools, and private work has its own cap."""

from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from sqlalchemy import select

from mooring.clock import now
from mooring.model.decisions import Decision
from mooring.model.pools import Binding
from mooring.model.quotas import Scope
from mooring.store.tables import tenant_resources
from tests.properties.machine import LATER, PICK, REPORTS, Machine, Steps, on_postgresql, on_sqlite, run
from tests.servers import PostgresServer
from tests.store.test_charges import make_private
from tests.store.test_quota_guard import limit

LIMITED = [(Scope.KEYPAIR, "cpu"), (Scope.USER, "sessions"), (Scope.PROJECT, "cpu"), (Scope.USER, "private-sessions")]


class Quotas(Machine):
    """What is proposed knows nothing of limits: the commit alone keeps them."""

    def __init__(self, url: str) -> None:
        self.limits: dict[tuple[Scope, str], int] = {}
        self.proposed: list[Decision] = []
        super().__init__(url)

    stop = precondition(lambda self: self.workload_ids)(rule(pick=PICK, remove=st.booleans())(Machine.stop))
    replace_what_ended = rule()(Machine.replace_what_ended)

    @initialize(what=st.sampled_from(LIMITED), amount=st.integers(0, 3))
    def begin(self, what: tuple[Scope, str], amount: int) -> None:
        for number in range(2):
            self.node_ids.append(self.do(self.harbour.node(f"n{number}", cpu=8)))
        self.set_limit(what, amount)
        for private in (False, True, False, True):
            self.submit(2, "1", private)

    @precondition(lambda self: len(self.workload_ids) < 10)
    @rule(replicas=st.integers(1, 3), cpu=st.sampled_from(["500m", "1", "2"]), private=st.booleans())
    def submit(self, replicas: int, cpu: str, private: bool) -> None:
        name = f"w{next(self.numbers)}"
        workload_id = self.do(self.harbour.submit(name, replicas=replicas, cpu=cpu))
        if private:
            self.do(make_private(self.harbour, workload_id))
        self.workload_ids.append(workload_id)

    @rule(what=st.sampled_from(LIMITED), amount=st.integers(0, 4))
    def set_limit(self, what: tuple[Scope, str], amount: int) -> None:
        scope, slot = what
        units = 1000 * amount if slot == "cpu" else amount
        self.do(limit(self.harbour, scope, **{slot: units}))
        self.limits[what] = units

    @rule(mode=st.sampled_from(Binding), late=st.booleans())
    def bind(self, mode: Binding, late: bool) -> None:
        """What is charged grows up to a limit, and not at all where the limit was lowered below it."""
        if not late:
            self.proposed = self.do(self.harbour.propose(at=now() + LATER))
        before = self.do(self._charged())
        self.do(self.harbour.commit(*self.proposed, mode=mode))
        after = self.do(self._charged())
        for what, most in self.limits.items():
            assert after.get(what, 0) <= max(most, before.get(what, 0)), what

    @rule(reports=st.lists(st.tuples(PICK, st.sampled_from(REPORTS)), min_size=1, max_size=4))
    def report(self, reports: list[tuple[int, Steps]]) -> None:
        ids = self.do(self.charged())
        if ids:
            self.do(self.tell([(ids[pick % len(ids)], s, gone) for pick, steps in reports for s, gone in steps]))

    async def _charged(self) -> dict[tuple[Scope, str], int]:
        """Of the one user, who is all that its keypair and project have."""
        row = tenant_resources.c
        rows = await self.harbour.rows(select(row.scope, row.slot_name, row.reserved + row.used).where(row.pool == ""))
        return {(Scope(scope), slot): amount for scope, slot, amount in rows}


def test_limits_hold_after_every_step_on_sqlite(sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run(on_sqlite(Quotas, sqlite_template, tmp_path), monkeypatch, max_examples=6, stateful_step_count=25)


@pytest.mark.soak
def test_limits_hold_after_every_step_on_postgresql(
    postgres_server: PostgresServer, postgres_template: str, monkeypatch: pytest.MonkeyPatch
):
    make = on_postgresql(Quotas, postgres_server, postgres_template)
    run(make, monkeypatch, max_examples=20, stateful_step_count=30)
